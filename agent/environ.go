package agent

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
)

// errorFileVariable names the file to which a training process writes its error.
const errorFileVariable = "TORCHELASTIC_ERROR_FILE"

// processFiles are paths for one training process; "" where there is none.
type processFiles struct {
	error    string // to which it writes its error
	progress string // to which it may say its progress
	members  string // the list of members
	hook     string // a directory for PYTHONPATH
}

// environ is the environment of one training process: base, which has what the user declared, plus torchrun's variables with
// torchrun's meaning (docs of torch.distributed.run), plus ours. Paths in c are absolute. It has the name of the token's file,
// never the token. These variables are removed from base first, so that an agent that was itself started under a launcher
// passes no stale values on.
func environ(base []string, c *job.AgentConfig, p elastic.Place, local int, files processFiles, service string) []string {
	env := slices.DeleteFunc(slices.Clone(base), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(job.ProcessVariables, name)
	})
	set := func(name, value string) { env = append(env, name+"="+value) }
	number := func(name string, n int) { set(name, strconv.Itoa(n)) }
	unlessSet := func(name, value string) {
		if !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") }) {
			set(name, value)
		}
	}

	role := roleOf(c.Slot)
	if c.Ranked {
		number("RANK", p.RankBase+local)
		number("WORLD_SIZE", p.WorldSize)
		number("GROUP_RANK", p.GroupRank)
		number("GROUP_WORLD_SIZE", p.GroupSize)
	}
	if p.MasterAddr != "" {
		set("MASTER_ADDR", p.MasterAddr)
		number("MASTER_PORT", p.MasterPort)
	}
	number("LOCAL_RANK", local)
	number("LOCAL_WORLD_SIZE", c.Processes)
	set("ROLE_NAME", role)
	number("ROLE_RANK", p.RoleRankBase+local)
	number("ROLE_WORLD_SIZE", p.RoleWorldSize)
	number("TORCHELASTIC_RESTART_COUNT", p.RestartCount)
	number("TORCHELASTIC_MAX_RESTARTS", c.MaxRestarts)
	set("TORCHELASTIC_RUN_ID", runID(c))
	// "True" would make rank 0 a client of a TCPStore served by the launcher; we serve none.
	set("TORCHELASTIC_USE_AGENT_STORE", "False")
	set(errorFileVariable, files.error)
	// A collective with a lost peer must end the process, not block it. The second is the variable's name up to torch 2.1.
	unlessSet("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
	unlessSet("NCCL_ASYNC_ERROR_HANDLING", "1")
	if c.Processes > 1 {
		// Otherwise each would start a thread per core, and all would compete for the same cores.
		unlessSet("OMP_NUM_THREADS", "1")
	}
	// torchrun runs `python -u`: without it Python buffers output, and progress is read late.
	unlessSet("PYTHONUNBUFFERED", "1")

	set("ELTRAIN_JOB", c.Job)
	set("ELTRAIN_ROLE", role)
	set("ELTRAIN_SLOT", c.Slot)
	number("ELTRAIN_INCARNATION", c.Incarnation)
	number("ELTRAIN_GENERATION", p.Generation)
	if c.CheckpointDir != "" {
		set("ELTRAIN_CHECKPOINT_DIR", c.CheckpointDir)
	}
	if c.CheckpointSignal != "SIGUSR2" {
		set(job.StacksVariable, strings.TrimSuffix(files.error, ".json")+".stacks")
	}
	if files.hook != "" && !slices.Contains(env, hookVariable+"=off") {
		path := files.hook
		for _, kv := range env {
			if own, is := strings.CutPrefix(kv, "PYTHONPATH="); is && own != "" {
				path = files.hook + string(os.PathListSeparator) + own
			}
		}
		set("PYTHONPATH", path)
	}
	if p.ResumeStep > 0 {
		set("ELTRAIN_RESUME_STEP", strconv.FormatInt(p.ResumeStep, 10))
	}
	if files.progress != "" {
		set("ELTRAIN_PROGRESS", files.progress)
	}
	if files.members != "" {
		set("ELTRAIN_MEMBERS_FILE", files.members)
	}
	set("ELTRAIN_SERVICE", service)
	if c.TokenFile != "" {
		set("ELTRAIN_TOKEN_FILE", c.TokenFile)
	}
	if ca, err := os.Stat(c.CAFile); err == nil && ca.Size() > 0 {
		set("ELTRAIN_CA_FILE", c.CAFile)
	}
	return env
}

// roleOf is the role in a slot's short address: worker for worker[3].
func roleOf(slot string) string {
	role, _, _ := strings.Cut(slot, "[")
	return role
}

// runID is one name for all of a job's worlds; a job created again under the same name has another.
func runID(c *job.AgentConfig) string {
	if c.UID != "" {
		return c.UID
	}
	return c.Job
}
