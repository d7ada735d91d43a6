package detect

import "github.com/eltrain/eltrain/job"

// Codes of the evidence of a suspicion. docs/reasons.md says what each means, and with which arguments.
const (
	NoStepSince     job.Code = "no_step_since"     // the world has shown no step since then
	NoActivitySince job.Code = "no_activity_since" // its processes have done nothing since then
	RankStopped     job.Code = "rank_stopped"      // processes are stopped by a signal
	RankBlocked     job.Code = "rank_blocked"      // processes are blocked in the kernel
	RankSilent      job.Code = "rank_silent"       // their agent is silent
	RankTraced      job.Code = "rank_traced"       // a debugger has stopped processes
	RankBehind      job.Code = "rank_behind"       // processes have shown fewer steps than the others
	RankWorks       job.Code = "rank_works"        // processes work while the others wait
	RankWaits       job.Code = "rank_waits"        // processes wait while the others work
	RankElsewhere   job.Code = "rank_elsewhere"    // processes wait elsewhere than the others, where they do not usually
	RankStacks      job.Code = "rank_stacks"       // processes have another stack than the others
	RankNotEntered  job.Code = "rank_not_entered"  // processes have not entered a collective in which others wait
	RankNotInvolved job.Code = "rank_not_involved" // processes wait for no peer, while others do
	RankOtherCall   job.Code = "rank_other_call"   // processes are in another collective than the others, under the same number
	RankCollective  job.Code = "rank_collective"   // where a process that is suspected is in the collectives of one process group
	RankGroup       job.Code = "rank_group"        // the smallest group of the parallel layout that has all processes that are suspected
	RankSlow        job.Code = "rank_slow"         // a process works longer than the others, which wait for it
	RankIn          job.Code = "rank_in"           // where the kernel has a process that is suspected
	RankStack       job.Code = "rank_stack"        // its stack
	RankOutput      job.Code = "rank_output"       // one of its last lines
	RankDiffers     job.Code = "rank_differs"      // a process says another value than its peers at the same step
	NobodyDiffers   job.Code = "nobody_differs"    // no process differs from the others
	LongestPause    job.Code = "longest_pause"     // the pauses of this phase so far
	PausesTooFew    job.Code = "pauses_too_few"    // of this phase too few pauses are known to tell a hang from one
)
