package job

// ProcessVariables are the environment variables that the agent sets for each training process: its place in the world,
// with torchrun's names and meanings, and its job, role and slot. They override a role's env.
var ProcessVariables = []string{
	"RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME",
	"WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE",
	"MASTER_ADDR", "MASTER_PORT",
	"TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID",
	"TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE",
	"ELTRAIN_JOB", "ELTRAIN_ROLE", "ELTRAIN_SLOT", "ELTRAIN_INCARNATION", "ELTRAIN_GENERATION",
	"ELTRAIN_CHECKPOINT_DIR", "ELTRAIN_RESUME_STEP", "ELTRAIN_MEMBERS_FILE", "ELTRAIN_STACKS_FILE", "ELTRAIN_PROGRESS", "ELTRAIN_SERVICE", "ELTRAIN_TOKEN_FILE", "ELTRAIN_CA_FILE",
}
