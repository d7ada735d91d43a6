package plan

import "github.com/eltrain/eltrain/job"

// The codes of the planner's reasons. docs/reasons.md explains each and its arguments; cmd/view has the sentences.

// Why a slot is started, stopped or replaced, or a job removed.
const (
	DeclarationChanged job.Code = "declaration_changed" // its declaration differs from what it was started with
	ReplaceRequested   job.Code = "replace_requested"   // a replacement was asked for
	Edited             job.Code = "edited"              // somebody else edited it
	EditedAttribute    job.Code = "edited_attribute"    // part of Edited: an attribute
	Superseded         job.Code = "superseded"          // a newer incarnation has the slot
	JobEnded           job.Code = "job_ended"           // its job has ended
	AgentOutlivesJob   job.Code = "agent_outlives_job"  // its job succeeded, but its agent has not exited
	StoppedBefore      job.Code = "stopped_before"      // it was stopped before, but still runs
	EarlierDecision    job.Code = "earlier_decision"    // decided by a version that did not record why
	RoleSucceeded      job.Code = "role_succeeded"      // another slot of its role has succeeded
	NotDeclared        job.Code = "not_declared"        // its job is no longer declared
	DestroyRequested   job.Code = "destroy_requested"   // destroy was requested
	SuspendRequested   job.Code = "suspend_requested"   // its job is suspended
	DestroyAsked       job.Code = "destroy_asked"       // somebody asked to destroy its job
	BudgetSuspends     job.Code = "budget_suspends"     // the directory's budget is spent, and suspends its job
	SuspendAsked       job.Code = "suspend_asked"       // somebody asked to suspend its job
	ScaleAsked         job.Code = "scale_asked"         // somebody asked for this number of slots of its role
	ScalingPaused      job.Code = "scaling_paused"      // somebody paused the scaling of its role at this number of slots
	RoleNotDeclared    job.Code = "role_not_declared"   // its role is no longer declared
	AboveMost          job.Code = "above_most"          // its index is above the role's max
	GivesWay           job.Code = "gives_way"           // it cannot start, and another job fits without it
	PreemptedBy        job.Code = "preempted_by"        // a job of a higher priority takes the places of the whole job
	MakesRoom          job.Code = "makes_room"          // its role shrinks so that another job fits
	Shrunk             job.Code = "shrunk"              // its role is made smaller
	Scaled             job.Code = "scaled"              // its role is made larger within its bounds
	MemoryEnlarged     job.Code = "memory_enlarged"     // it gets more memory after it ran out of it
	NoRoomToReturn     job.Code = "no_room_to_return"   // no node has room for it; it starts again once one has
	NodeDrained        job.Code = "node_drained"        // its node is drained
	DrainAsked         job.Code = "drain_asked"         // somebody drains its node
	NodeOverloaded     job.Code = "node_overloaded"     // its node has less than its slots need
	JobLimits          job.Code = "job_limits"          // the job's limits allow no more
	DirectoryLimits    job.Code = "directory_limits"    // the directory's limits allow no more
	RoleMax            job.Code = "role_max"            // the role's max allows no more
	NoRoomForMore      job.Code = "no_room_for_more"    // no node has room for more
	Stray              job.Code = "stray"               // it belongs to an earlier job of the name, or to none
	NothingRuns        job.Code = "nothing_runs"        // nothing of the job is running
	Remains            job.Code = "remains"             // it is what is left of an earlier job
	ScaledByPolicy     job.Code = "scaled_by_policy"    // scaling policies decided about the size of its role
	FollowsRole        job.Code = "follows_role"        // the number of slots of its role follows another role's
	MoreReasons        job.Code = "more_reasons"        // there are more than are listed
)

// How a slot was lost. The code is the cause, if one is known.
const (
	LeaseLost     = job.Code(job.LeaseLost)         // its lease expired
	NodeGone      = job.Code(job.NodeGone)          // its node was removed
	Preempted     = job.Code(job.Preemption)        // it was preempted
	Evicted       = job.Code(job.Eviction)          // it was evicted
	Deleted       = job.Code(job.Deletion)          // it was deleted, not by eltrain
	NodeFailed    = job.Code(job.NodeFailed)        // its node could not start it
	LaunchFailed  = job.Code(job.LaunchFailed)      // its agent did not register
	AgentLeft     = job.Code(job.AgentLeft)         // its agent was asked to stop
	AgentGone     = job.Code(job.AgentGone)         // its agent exited
	OutOfMemory   = job.Code(job.OutOfMemory)       // it ran out of memory
	StartFailed   = job.Code(job.StartFailed)       // it could not be started
	ProcessKilled = job.Code(job.ProcessKilled)     // a process was killed by a signal
	ProcessFailed = job.Code(job.ProcessFailed)     // a process exited with an exit code
	NodeFaulty    = job.Code(job.NodeFaulty)        // its node is faulty
	Hang          = job.Code(job.Hang)              // it hangs
	Straggler     = job.Code(job.Straggler)         // it is slower than its peers
	Diverged      = job.Code(job.Diverged)          // its results differ from its peers'
	NaNLoss       = job.Code(job.NaNLoss)           // its loss is not finite
	Network       = job.Code(job.Network)           // a connection failed
	DeviceOOM     = job.Code(job.DeviceOutOfMemory) // an accelerator's memory is full
	Accelerator   = job.Code(job.Accelerator)       // an accelerator failed
	ScriptError   = job.Code(job.ScriptError)       // the program has an error

	PlaceLost job.Code = "place_lost" // it lost its place
)

// The evidence of an incident, or of what ended while no master ran. NodeGone, Preempted, Evicted, Deleted, AgentLeft and
// AgentGone are evidence as well.
const (
	SilentForLease   job.Code = "silent_for_lease"  // no heartbeat for a whole lease
	NotRegistered    job.Code = "not_registered"    // its agent is running but has not registered
	KillOutlived     job.Code = "kill_outlived"     // its processes were killed, and run
	NodeRemoved      job.Code = "node_removed"      // the named node was removed
	NodeCannotStart  job.Code = "node_cannot_start" // the named node could not start it
	CannotStart      job.Code = "cannot_start"      // its command could not be started
	KilledForMemory  job.Code = "killed_for_memory" // the kernel killed it for memory
	ExitSignal       job.Code = "exit_signal"       // a process was killed by this signal
	ExitCode         job.Code = "exit_code"         // a process exited with this code
	ErrorFile        job.Code = "error_file"        // what a process wrote to its error file
	Signature        job.Code = "signature"         // what it printed, by which its cause is known
	Output           job.Code = "output"            // one of the last lines of its output
	Reported         job.Code = "reported"          // what its infrastructure reports about it
	NodeTrouble      job.Code = "node_trouble"      // what is known about its node
	NodeCheckFailed  job.Code = "node_check_failed" // a part of the check of its node failed
	NodeCheckLate    job.Code = "node_check_late"   // the check of its node did not end in time
	NodeCheckSlow    job.Code = "node_check_slow"   // the check of its node took over twice the median
	NoWorldFormed    job.Code = "no_world_formed"   // the rendezvous took too long
	AgentNotThere    job.Code = "agent_not_there"   // the world waits for its agent to register
	NoPlace          job.Code = "no_place"          // the world waits for it, and it has no place
	NotStarting      job.Code = "not_starting"      // the world waits for it, and its infrastructure says why it does not start
	EndedWell        job.Code = "ended_well"        // it succeeded
	Gone             job.Code = "gone"              // nothing of it is left
	NotRecorded      job.Code = "not_recorded"      // an unrecorded incarnation runs
	NewerIncarnation job.Code = "newer_incarnation" // a newer incarnation runs than is recorded
)

// What is not as configured, and why.
const (
	NoRoom                job.Code = "no_room"                  // what is wanted and what is available
	NeverFits             job.Code = "never_fits"               // it cannot run on these nodes even when they are empty
	BudgetScarce          job.Code = "budget_scarce"            // little is left of the directory's budget: nothing grows
	BudgetSpent           job.Code = "budget_spent"             // the directory's budget is spent
	GrowthAwaitsSave      job.Code = "growth_awaits_save"       // a role grows after the job's next checkpoint, which is near
	AboveDirectoryLimits  job.Code = "above_directory_limits"   // the directory's limits leave no room for what is wanted
	AboveLimits           job.Code = "above_limits"             // the job's limits leave no room for what is wanted
	StillStopping         job.Code = "still_stopping"           // slots start again once what ran in them has stopped
	ReplacementTooLarge   job.Code = "replacement_too_large"    // what is to replace its slots does not fit
	RollingUpdate         job.Code = "rolling_update"           // slots are replaced later, some at a time
	RetryWaits            job.Code = "retry_waits"              // the job ended, and starts again once there is room
	Queued                job.Code = "queued"                   // slots wait on their infrastructure
	QueuedLong            job.Code = "queued_long"              // the same, for longer than a rendezvous may take
	RestartDelayed        job.Code = "restart_delayed"          // slots failed again without progress in between, and start again later
	EndedUnheard          job.Code = "ended_unheard"            // processes have ended, and no master has read from their agents how
	CheckingNodes         job.Code = "checking_nodes"           // the nodes of slots are checked before they join a world
	StuckOnDrained        job.Code = "stuck_on_drained"         // no other node has room for slots on a drained node
	NoOtherNode           job.Code = "no_other_node"            // slots are to be restarted on another node, and none has room
	ProviderNotConfigured job.Code = "provider_not_configured"  // its provider is not configured
	ProviderRefuses       job.Code = "provider_refuses"         // its provider starts no job at the moment
	NameInUse             job.Code = "name_in_use"              // a job of this name runs there under another state
	ImageMissing          job.Code = "image_missing"            // a role has no image, and its provider needs one
	ImageUnsupported      job.Code = "image_unsupported"        // a role has an image, and its provider runs none
	PodUnsupported        job.Code = "pod_unsupported"          // a role has a pod overlay, and its provider has no pods
	WouldScale            job.Code = "would_scale"              // what policies would do that only tell
	MoveBlocked           job.Code = "move_blocked"             // a job of the new name already exists
	AtOtherSite           job.Code = "at_other_site"            // it runs at another site than its provider looks at
	NotPruned             job.Code = "not_pruned"               // it is no longer in the files, and jobs are not to be removed
	EndsWhole             job.Code = "ends_whole"               // held back: a job ends as a whole
	StartsWhole           job.Code = "starts_whole"             // held back: a job starts as a whole
	RoleUpdatesWhole      job.Code = "role_updates_whole"       // held back: a role is updated as a whole
	FailsWhole            job.Code = "fails_whole"              // held back: a failed job is stopped as a whole
	NotRunningOutOfScope  job.Code = "not_running_out_of_scope" // held back: slots out of scope do not run
)

// Waiting has the codes of what a job waits for, except those of refusals and of what withholds it, and whether the wait lasts.
// The others end by themselves, or with the run.
var Waiting = map[job.Code]bool{
	NoRoom: true, NeverFits: true, AboveLimits: true, ReplacementTooLarge: true, RetryWaits: true, QueuedLong: true, StuckOnDrained: true, NoOtherNode: true,
	ProviderNotConfigured: true, ProviderRefuses: true, NameInUse: true, ImageMissing: true, ImageUnsupported: true, PodUnsupported: true,
	MoveBlocked: true, AtOtherSite: true, WouldScale: true,
	Overridden: true, StillStopping: false, RollingUpdate: false, Queued: false, RestartDelayed: false, EndedUnheard: false, CheckingNodes: false,
	EndsWhole: false, StartsWhole: false, RoleUpdatesWhole: false, FailsWhole: false, NotRunningOutOfScope: false,
}

// FirstStepDue is what a job waits for whose world has formed, and that says how far it is: the first step.
const FirstStepDue job.Code = "first_step_due"

// RestartCostsMore is why a straggler is only reported although it is to be healed: the training ends before that pays.
const RestartCostsMore job.Code = "restart_costs_more"

// The parts of a shortage.
const (
	Wanted           job.Code = "wanted"             // how many slots of a role, and what each takes
	NodeFree         job.Code = "node_free"          // what a node has free
	NodeNothingFree  job.Code = "node_nothing_free"  // a node has no free resources
	NodeFull         job.Code = "node_full"          // a node has its maximum number of slots
	NodeClosed       job.Code = "node_closed"        // a node accepts no new slots
	NodeCordoned     job.Code = "node_cordoned"      // an operator keeps new slots off a node
	NodeBarred       job.Code = "node_barred"        // a node can never run the slots
	NotForRole       job.Code = "not_for_role"       // a node can never run those of one role
	MoreNodes        job.Code = "more_nodes"         // there are more nodes than are listed
	MoreUselessNodes job.Code = "more_useless_nodes" // there are more unusable nodes than are listed
)

// What else is known of a node.
const (
	NodeUnlisted job.Code = "node_unlisted" // its provider does not list it
	NodeAvoided  job.Code = "node_avoided"  // slots that failed there are started elsewhere if there is room
	NodeMarked   job.Code = "node_marked"   // it had so many incidents that it is used last for a while
	NodeIncident job.Code = "node_incident" // one of these incidents
	NodeProblem  job.Code = "node_problem"  // what monitoring on the node reports

	// TooManyToMark: no further nodes are marked.
	TooManyToMark job.Code = "too_many_to_mark"
)

// Supplies are the parts of a shortage that say what the nodes have.
var Supplies = map[job.Code]bool{NodeFree: true, NodeNothingFree: true, NodeFull: true, NodeClosed: true, NodeCordoned: true, NodeBarred: true, MoreNodes: true, MoreUselessNodes: true}

// Why a change is refused.
const (
	PreventDestroy           job.Code = "prevent_destroy"            // the job must not be destroyed
	PreventDestroyUndeclared job.Code = "prevent_destroy_undeclared" // the same, as it was last applied; it is no longer declared
	PreventDestroyMove       job.Code = "prevent_destroy_move"       // it would be destroyed to start under another provider
	ImportConflict           job.Code = "import_conflict"            // imports to one job name two running jobs
	ImportOtherProvider      job.Code = "import_other_provider"      // it runs under another provider
	ImportJobToSlot          job.Code = "import_job_to_slot"         // a whole job is imported to a slot
	ImportOtherSlot          job.Code = "import_other_slot"          // a slot is imported to another slot
	ImportAmbiguous          job.Code = "import_ambiguous"           // the ID exists in two jobs
	ImportNotFound           job.Code = "import_not_found"           // nothing runs with that ID
	ImportManaged            job.Code = "import_managed"             // it is another job of this state
	ImportDuplicate          job.Code = "import_duplicate"           // it is already imported to another job
)

// What notices report, and why a job failed or was canceled.
const (
	ScaleDecided      job.Code = "scale_decided"        // policies changed the size of a role
	StopReached       job.Code = "stop_reached"         // the figure that ends the job was reached
	PhaseEntered      job.Code = "phase_entered"        // the job entered a phase
	StartsAnew        job.Code = "starts_anew"          // a job that had ended starts again
	JobFailed         job.Code = "job_failed"           // the job failed
	Incident          job.Code = "incident"             // an incident, and what is done about it
	EventRejected     job.Code = "event_rejected"       // an event that a slot's phase does not accept
	SlotFailed        job.Code = "slot_failed"          // a slot failed permanently
	WorldBrokeTooLate job.Code = "world_broke_too_late" // a world broke after a slot of the role succeeded
	FailedTooLate     job.Code = "failed_too_late"      // a slot failed after another of its role succeeded
	CanceledBy        job.Code = "canceled_by"          // an operator canceled the job
	ExitCodeFails     job.Code = "exit_code_fails"      // a slot's process exited with a code that heal's exit_codes fail the job for
	CauseFails        job.Code = "cause_fails"          // a slot has a fault of a cause that is to fail the job
	LimitReached      job.Code = "limit_reached"        // a slot has had a fault of a cause more often than its limit allows
	SameError         job.Code = "same_error"           // the program ends with the same error again
	NoProgress        job.Code = "no_progress"          // the job ends at the same step after each restart
	PendingTooLong    job.Code = "pending_too_long"     // the job has waited for places for as long as it may
	SlotCannotStart   job.Code = "slot_cannot_start"    // a slot's command cannot be started
	RestartsSpent     job.Code = "restarts_spent"       // the restart budget is exhausted
)

// What has become of a request.
const (
	RequestAccepted job.Code = "request_accepted" // it is recorded, and being carried out
	RequestDone     job.Code = "request_done"     // it is carried out
	RequestFailed   job.Code = "request_failed"   // it will not be carried out
	RequestRefused  job.Code = "request_refused"  // nothing is done about it
	RequestUnknown  job.Code = "request_unknown"  // it was begun, and may have been carried out or not
)

// Why a request was refused, has failed, or is no longer in effect.
const (
	NothingThere      job.Code = "nothing_there"      // nothing that is declared and recorded has the address
	IsSuspended       job.Code = "is_suspended"       // the job is suspended
	IsDestroyed       job.Code = "is_destroyed"       // the job was destroyed on request
	HasEnded          job.Code = "has_ended"          // the job is over
	RequestExpired    job.Code = "request_expired"    // it expired before a master accepted it
	RequestSuperseded job.Code = "request_superseded" // a later request contradicts it
	VerbUnknown       job.Code = "verb_unknown"       // this version does not know the verb
	WholeJobOnly      job.Code = "whole_job_only"     // it can only be asked of a whole job
	WholeRoleOnly     job.Code = "whole_role_only"    // it can only be asked of a whole role
	SizeFixed         job.Code = "size_fixed"         // the role's size is what the files say: it has no scaling
	SizeNotLegal      job.Code = "size_not_legal"     // the role may not have so many slots
	Overridden        job.Code = "overridden"         // an operator asked for something else than the files say
	OverrideEdited    job.Code = "override_edited"    // the files say something else since
	OverrideExpired   job.Code = "override_expired"   // its time is over
	OverrideIllegal   job.Code = "override_illegal"   // the files no longer allow it

	Cordoned      job.Code = "cordoned"       // an operator keeps new slots off a node
	Draining      job.Code = "draining"       // the same, and running slots are to leave it
	NoSuchNode    job.Code = "no_such_node"   // no node has the name
	NodeScheduled job.Code = "node_scheduled" // a scheduler places slots on the node: it is asked by its own means

	NotTraining             job.Code = "not_training"              // no training process that it is about runs
	WorldForming            job.Code = "world_forming"             // the world that it is about has not formed yet, or forms again
	NoRankedRole            job.Code = "no_ranked_role"            // what is named has no role with ranks, and forms no world
	ValueInvalid            job.Code = "value_invalid"             // the verb does not take the value
	CheckpointUndeclared    job.Code = "checkpoint_undeclared"     // the job does not say how to ask for a checkpoint, or how to find it
	CheckpointDirUndeclared job.Code = "checkpoint_dir_undeclared" // the job does not say where its checkpoints are
	CheckpointLate          job.Code = "checkpoint_late"           // no whole checkpoint was there in time
	CheckpointMissing       job.Code = "checkpoint_missing"        // there is no such checkpoint
	CheckpointTorn          job.Code = "checkpoint_torn"           // the checkpoint is not whole
	ProcessesEnded          job.Code = "processes_ended"           // no training process ran in a slot, or they ended before
	AgentCannot             job.Code = "agent_cannot"              // a slot's agent is of a version that cannot do it
	OutcomeUnknown          job.Code = "outcome_unknown"           // a slot's agent has ended without reporting the outcome
)

// What a request has yielded.
const (
	CheckpointWritten job.Code = "checkpoint_written" // a checkpoint was written
	ResumedFrom       job.Code = "resumed_from"       // training continues from a checkpoint
)
