package view

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/detect"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/scaling"
	"github.com/eltrain/eltrain/signature"
)

// Reasons found by the status and the plan's drift.
const (
	slotsGone         job.Code = "slots_gone"         // slots are gone; no master has checked since
	slotsMissing      job.Code = "slots_missing"      // fewer slots of a role run than are to
	jobFailedBy       job.Code = "job_failed_by"      // the job failed; the incident that ended it
	notRestarted      job.Code = "not_restarted"      // why a job failed instead of being healed
	startAgain        job.Code = "start_anew"         // how a job that failed is started again
	startAgainWatched job.Code = "start_anew_watched" // the same, while a watch runs
	changedBy         job.Code = "changed_by"         // somebody changed an attribute
	suspectedHang     job.Code = "suspected_hang"     // the world makes no progress
)

// Sentence returns a reason as text. It is not redacted.
func Sentence(r job.Reason) string {
	say, known := sentences[r.Code]
	if !known {
		return r.String() // of a newer version
	}
	if several := conditions.Reasons(r); !several[0].Equal(r) {
		return strings.Join(each(several), " ")
	}
	return say(r, each(r.Of))
}

func each(reasons []job.Reason) []string {
	texts := make([]string, len(reasons))
	for i, r := range reasons {
		texts[i] = Sentence(r)
	}
	return texts
}

// Sentences returns reasons as text, without sensitive values.
func (r *Redactor) Sentences(reasons []job.Reason) []string {
	texts := each(reasons)
	for i := range texts {
		texts[i] = r.Text(texts[i])
	}
	return texts
}

// Reasons returns reasons without sensitive values; an empty list, not nil, if there are none.
func (r *Redactor) Reasons(reasons []job.Reason) []job.Reason {
	if len(reasons) == 0 {
		return []job.Reason{}
	}
	return job.MapReasons(reasons, r.Text)
}

// sentence makes a reason's text. of are the texts of its parts.
type sentence func(r job.Reason, of []string) string

// says makes a sentence from a template: ${name} is an argument, ${name:q} the same in quotes, ${name:slots} a number of
// slots, ${name:ranks} the numbers of ranks, ${name:clock} and ${name:date} a time; ${of} is the parts.
func says(text string) sentence {
	if !strings.Contains(text, "$") {
		return func(job.Reason, []string) string { return text }
	}
	if text == "${message}" {
		return func(r job.Reason, _ []string) string { return r.Args["message"] }
	}
	return func(r job.Reason, of []string) string {
		return os.Expand(text, func(key string) string {
			name, as, _ := strings.Cut(key, ":")
			switch {
			case name == "of":
				return strings.Join(of, " ")
			case as == "q":
				return strconv.Quote(r.Args[name])
			case as == "slots":
				return plural(number(r, name), "slot")
			case as == "ranks":
				return "rank" + map[bool]string{true: "s"}[strings.ContainsAny(r.Args[name], ",-")] + " " + r.Args[name]
			case as == "clock", as == "date":
				return localTime(r.Args[name], as == "date")
			}
			return r.Args[name]
		})
	}
}

// localTime returns a time of day, with the date if asked, of a time in RFC 3339.
func localTime(text string, date bool) string {
	at, err := time.Parse(time.RFC3339, text)
	switch {
	case err != nil:
		return text
	case date:
		return at.Local().Format(time.DateTime)
	}
	return at.Local().Format(time.TimeOnly)
}

// fact makes a sentence of evidence, after the slot's address.
func fact(text string) sentence { return ofSlot(says(text)) }

func ofSlot(say sentence) sentence {
	return func(r job.Reason, of []string) string {
		if slot := r.Args["slot"]; slot != "" {
			return slot + ": " + say(r, of)
		}
		return say(r, of)
	}
}

// suspected says who may hang, and when that is acted on.
func suspected(r job.Reason, of []string) string {
	text := "Training may hang: " + strings.Join(of, "; ") + "."
	if due := r.Args["due"]; due != "" {
		text += " It counts as a hang from " + localTime(due, false) + " on."
	}
	return text
}

// causeFails says that a fault fails the job.
func causeFails(r job.Reason, _ []string) string {
	return r.Args["slot"] + ": " + spaced(r.Args["cause"]) + ", which heal says is not worth a restart"
}

// limitReached says that a cause's limit is why the job fails.
func limitReached(r job.Reason, _ []string) string {
	text := spaced(r.Args["cause"]) + " in ${slot} once more: the limit of ${limit}"
	if r.Args["window"] != "" {
		text += " within ${window}"
	}
	return says(text+" that heal has for it is reached")(r, nil)
}

// hinted adds what can be changed, if the reason has a hint.
func hinted(say sentence) sentence {
	return func(r job.Reason, of []string) string {
		text := say(r, of)
		if hint := Hint(signature.Hint(r.Args["hint"])); hint != "" {
			text += ". What may help: " + hint
		}
		return text
	}
}

// number returns a numeric argument.
func number(r job.Reason, name string) int {
	n, _ := strconv.Atoi(r.Args[name])
	return n
}

// either chooses a template by whether an argument is present.
func either(arg, with, without string) sentence {
	there, missing := says(with), says(without)
	return func(r job.Reason, of []string) string {
		if r.Args[arg] != "" {
			return there(r, of)
		}
		return missing(r, of)
	}
}

var sentences = map[job.Code]sentence{
	job.Verbatim: says("${message}"),

	// Why a slot is started, stopped or replaced, or a job removed.
	plan.DeclarationChanged: editedFields,
	plan.ReplaceRequested:   says("replacement was requested"),
	plan.Edited:             func(_ job.Reason, of []string) string { return "it was edited: " + strings.Join(of, ", ") },
	plan.EditedAttribute:    either("by", "${path} by ${by}", "${path}"),
	plan.Superseded:         says("a newer incarnation replaced it"),
	plan.JobEnded:           func(r job.Reason, _ []string) string { return "the job " + ended(r) },
	plan.AgentOutlivesJob:   says("the job succeeded, but its agent has not exited"),
	plan.StoppedBefore:      says("it was stopped before, but still runs"),
	plan.EarlierDecision:    says("decided by an earlier version"),
	plan.RoleSucceeded:      says("another slot of its role has succeeded"),
	plan.NotDeclared:        says("it is no longer declared"),
	plan.DestroyRequested:   says("destroy was requested"),
	plan.BudgetSuspends:     says("the directory's budget of node hours is used up"),
	plan.SuspendRequested:   says("its job is suspended"),
	plan.DestroyAsked:       either("why", "${by} destroyed it: ${why}", "${by} destroyed it"),
	plan.ScalingPaused:      either("why", "${by} paused scaling at ${size:slots}: ${why}", "${by} paused scaling at ${size:slots}"),
	plan.ScaleAsked:         either("why", "${by} asked for ${size:slots}: ${why}", "${by} asked for ${size:slots}"),
	plan.SuspendAsked:       either("why", "${by} suspended its job: ${why}", "${by} suspended its job"),
	plan.RoleNotDeclared:    says("role ${role} is no longer declared"),
	plan.AboveMost:          says("its role may have at most ${most:slots}"),
	plan.GivesWay:           says("it cannot start, and job.${job} fits without it"),
	plan.PreemptedBy:        says("job.${job} has a higher priority and takes its places"),
	plan.MakesRoom:          says("job.${job} waits and fits with ${role} at ${to} instead of ${from} slots"),
	plan.Shrunk:             says("${of}: ${from} -> ${to} slots"),
	plan.Scaled:             says("scaled within ${min}..${max}: ${from} -> ${to} slots"),
	plan.ScaledByPolicy:     scaledByPolicy,
	plan.MemoryEnlarged:     says("memory ${from} -> ${to} after running out of memory"),
	plan.NoRoomToReturn:     says("no node has room for it: it starts again once one does"),
	plan.NodeDrained:        says("node ${node} is drained (${message})"),
	plan.DrainAsked:         either("why", "${by} drains node ${node}: ${why}", "${by} drains node ${node}"),
	plan.NodeOverloaded:     says("node ${node} has less than its slots need"),
	plan.DirectoryLimits:    says("the directory's limits (of all jobs together)"),
	plan.JobLimits:          says("the job's limits"),
	plan.RoleMax:            says("at most ${most:slots}"),
	plan.FollowsRole:        says("replicas follows role.${role}"),
	plan.NoRoomForMore:      says("no node has room for more"),
	plan.Stray:              says("it belongs to an earlier job of this name, or to none"),
	plan.NothingRuns:        says("no slot is running"),
	plan.Remains:            says("left over from an earlier job"),
	plan.MoreReasons:        either("count", "and ${count} more reasons", "and more"),

	// How a slot was lost.
	plan.LeaseLost:     says("its lease expired"),
	plan.NodeGone:      ofSlot(either("node", "its node ${node} was removed", "its node was removed")),
	plan.Preempted:     fact("it was preempted"),
	plan.Evicted:       fact("it was evicted"),
	plan.Deleted:       fact("it was deleted externally"),
	plan.NodeFailed:    says("its node could not start it"),
	plan.LaunchFailed:  says("its agent did not register"),
	plan.AgentLeft:     fact("its agent was asked to stop"),
	plan.AgentGone:     ofSlot(either("signal", "its agent ended: signal: ${signal}", "its agent ended")),
	plan.OutOfMemory:   says("it ran out of memory"),
	plan.StartFailed:   says("it could not be started"),
	plan.ProcessKilled: says("a process was killed by signal: ${signal}"),
	plan.ProcessFailed: says("a process exited with code ${code}"),
	plan.NodeFaulty:    fact("its node is faulty"),
	plan.Hang:          says("it hangs"),
	plan.Straggler:     says("it is slower than its peers"),
	plan.Diverged:      says("its results differ from its peers'"),
	plan.NaNLoss:       ofSlot(either("value", "its loss is ${value}", "its loss is not finite")),
	plan.Network:       says("a connection failed"),
	plan.DeviceOOM:     says("an accelerator's memory is full"),
	plan.Accelerator:   says("an accelerator failed"),
	plan.ScriptError:   says("the program has an error"),
	plan.PlaceLost:     says("it lost its place"),

	// Evidence.
	plan.SilentForLease:   fact("no heartbeat for the whole lease"),
	plan.NotRegistered:    fact("its agent is running but has not registered: can it reach the service?"),
	plan.KillOutlived:     fact("its processes were killed, and run: they wait in the kernel"),
	plan.NodeRemoved:      fact("node ${node} was removed"),
	plan.NodeCannotStart:  fact("node ${node} could not start it: ${message}"),
	plan.CannotStart:      fact("could not be started: ${message}"),
	plan.KilledForMemory:  fact("killed by the kernel for memory"),
	plan.ExitSignal:       fact("signal: ${signal}"),
	plan.ExitCode:         fact("exit code ${code}"),
	plan.ErrorFile:        fact("error file: ${message}"),
	plan.Signature:        ofSlot(hinted(says("${message} (signature ${signature})"))),
	plan.Output:           fact("output: ${message}"),
	plan.Reported:         fact("${message}"),
	plan.NodeTrouble:      fact("node ${node}: ${message}"),
	plan.NodeCheckFailed:  ofSlot(nodeCheckFailed),
	plan.NodeCheckLate:    ofSlot(nodeCheckLate),
	plan.NodeCheckSlow:    fact("the check of node ${node} took ${seconds} s, the median is ${median} s"),
	plan.NoWorldFormed:    says("no world formed for ${timeout}"),
	plan.AgentNotThere:    fact("its agent has not registered"),
	plan.NoPlace:          fact("it has no place"),
	plan.NotStarting:      fact("${message}"),
	plan.EndedWell:        says("it succeeded"),
	plan.Gone:             says("no trace of it was found"),
	plan.NotRecorded:      either("node", "incarnation ${incarnation} runs on ${node} but is not recorded", "incarnation ${incarnation} is not on a node yet and not recorded"),
	plan.NewerIncarnation: says("incarnation ${incarnation} was started, but ${recorded} is recorded"),

	// Of a world that may hang.
	suspectedHang: suspected,
	// What policies propose, and what bounds that.
	scaling.OnTarget:       says("${value} is near the target of ${target}"),
	scaling.OffTarget:      says("${value} with ${slots:slots}, and the target is ${target}"),
	scaling.Crossed:        threshold("crossed %s of %s times"),
	scaling.NotCrossed:     threshold("crossed %s of %s times"),
	scaling.Fixed:          says("it names that size"),
	scaling.Passed:         says("the value is ${value}"),
	scaling.NoValueYet:     says("its source was not asked yet"),
	scaling.NoValue:        says("no value: ${error}"),
	scaling.NothingTrains:  says("no value while nothing trains"),
	scaling.FellBack:       says("fallback, after ${failures} failures: ${error}"),
	scaling.EfficientUpTo:  efficientUpTo,
	scaling.NotMeasured:    says("nothing was measured with ${size:slots} yet"),
	scaling.DeadlineNeeds:  says("the smallest that meets the deadline: it takes ${takes}, and ${left} are left"),
	scaling.TimeUnknown:    says("how long the training still takes is not known at the moment"),
	scaling.DeadlineMissed: says("the deadline is missed: the fastest takes ${takes}, and ${left} are left"),
	scaling.Stabilizing:    says("${proposed} is proposed, and counts once that was so for ${window}"),
	scaling.CoolingDown:    says("${size} has to wait until ${until:clock} (cooldown)"),
	scaling.AwaitsSave:     says("${size} waits for the next checkpoint, which is near, until ${until:clock} at most"),
	scaling.NoProposal:     says("no policy proposes a size: as many as there is room for"),
	scaling.AtATime:        says("by at most ${slots:slots} at a time: ${size}"),
	scaling.ToLegal:        says("${size} is the next legal size"),
	scaling.Capped:         says("more than ${size} would not be efficient"),
	scaling.Frozen:         says("the training is over in ${left}, and the size is kept in the last ${freeze}"),
	scaling.SourceFails:    says("a source fails, and on_check_error is \"fail\""),
	scaling.Disabled:       says("scaling is disabled"),

	detect.NoStepSince:     either("step", "no step since ${since:clock}; the last was ${step}", "no step since ${since:clock}, when the world formed"),
	detect.NoActivitySince: says("no activity since ${since:clock}"),
	detect.RankStopped:     says("${ranks:ranks}: stopped by a signal"),
	detect.RankBlocked:     either("channel", "${ranks:ranks}: blocked in the kernel, in ${channel}", "${ranks:ranks}: blocked in the kernel"),
	detect.RankSilent:      says("${ranks:ranks}: no heartbeat of the agent"),
	detect.RankTraced:      says("${ranks:ranks}: stopped by a debugger"),
	detect.RankBehind:      says("${ranks:ranks}: step ${step}, the others ${others}"),
	detect.RankWorks:       says("${ranks:ranks}: working while the others wait"),
	detect.RankWaits:       says("${ranks:ranks}: waiting while the others work"),
	detect.RankElsewhere:   says("${ranks:ranks}: waiting in ${channel}, the others in ${others}"),
	detect.RankStacks:      says("${ranks:ranks}: in ${stack}, the others in ${others}"),
	detect.RankNotEntered:  says("${ranks:ranks}: not in ${call}, number ${number} of group ${group}, in which ${waiting} wait"),
	detect.RankNotInvolved: says("${ranks:ranks}: waiting for no peer, while ${waiting} others do"),
	detect.RankOtherCall:   says("${ranks:ranks}: in ${call}, the others in ${others}, as number ${number} of group ${group}"),
	detect.RankCollective:  either("number", "${ranks:ranks}: group ${group}: ${call}, number ${number}, sizes ${sizes}, ${state}", "${ranks:ranks}: group ${group}: ${call}, ${state}"),
	detect.RankGroup:       says("${ranks:ranks}: all in ${group} group ${index}, ${members:ranks}"),
	detect.RankSlow:        says("${ranks:ranks}: works ${share} % of the time, the others ${others} %, since ${since:clock}; it costs ${costs} % of each step"),
	detect.RankIn:          says("${ranks:ranks}: in ${waits} (${state})"),
	detect.RankStack:       says("${ranks:ranks}: stack (${source}): ${stack}"),
	detect.RankOutput:      says("${ranks:ranks}: output: ${message}"),
	detect.RankDiffers:     says("${ranks:ranks}: ${what} ${value} at step ${step}, the others ${others}"),
	detect.NobodyDiffers:   says("no rank differs from the others"),
	detect.LongestPause:    says("the longest of ${count} such pauses (${phase}) took ${longest}"),
	detect.PausesTooFew:    says("it is too early to say how long pauses of this kind (${phase}) take"),

	// What is not as configured.
	plan.NoRoom:           shortage,
	plan.NeverFits:        says("It cannot run on these nodes even when they are empty. ${of}"),
	plan.BudgetScarce:     says("At least 80 % of the directory's budget of ${budget} node hours is used: no role grows."),
	plan.GrowthAwaitsSave: says("The role grows after the job's next checkpoint, which is near, or at ${until:clock}."),
	plan.BudgetSpent:      says("The directory's budget of ${budget} node hours is used up."),
	plan.AboveDirectoryLimits: func(_ job.Reason, of []string) string {
		return "The directory's limits (of all jobs together) leave no room for " + strings.Join(of, ", ") + "."
	},
	plan.AboveLimits: func(_ job.Reason, of []string) string {
		return "Wanted: " + strings.Join(of, ", ") + ". The job's limits do not allow it."
	},
	plan.StillStopping:       says("Some of its slots are still stopping. Once they have ended, ${count:slots} start again if they fit; plans count them from then on."),
	plan.RollingUpdate:       says("Still to be replaced after that: ${count:slots}, at most ${most} at a time."),
	plan.ReplacementTooLarge: says("The replacements of its slots do not fit on the nodes; it keeps running unchanged."),
	plan.RetryWaits:          retryWaits,
	plan.Queued:              queued,
	plan.QueuedLong:          queued,
	plan.RestartCostsMore:    says("a restart costs ${cost}, and gains ${gain} until the training ends"),
	plan.FirstStepDue:        says("Waiting for the first step of generation ${generation}."),
	plan.RestartDelayed:      says("${slots}: ${of}, again without progress in between. The next restart comes after ${delay}."),
	plan.CheckingNodes:       says("${slots}: the node is checked before training."),
	plan.EndedUnheard:        says("${slots}: no process is running. The next apply reads from the agents how they ended, and continues from there."),
	plan.NoOtherNode:         says("No other node has room for the slots of job.${job} that are to be restarted elsewhere."),
	plan.WouldScale: either("paused", "scaling would change ${from} to ${to} slots, and is paused: ${of}",
		"scaling would change ${from} to ${to} slots, and only tells, because dry_run is set: ${of}"),
	plan.StuckOnDrained:        stuckOnDrained,
	plan.ProviderNotConfigured: says("Its provider ${provider:q} is not configured."),
	plan.ProviderRefuses:       says("${message}"),
	plan.NameInUse:             says("A job of this name already runs there, managed by the state ${state:q}. Rename this job, give its provider another namespace, or use that state to take the job over."),
	plan.ImageMissing:          says("Role ${role} has no image, and provider ${provider:q} needs one. Set image in the role, or in the provider for all roles."),
	plan.ImageUnsupported:      says("Role ${role} has an image, but provider ${provider:q} does not run images. Remove image or choose another provider."),
	plan.PodUnsupported:        says("Role ${role} has a pod overlay, but provider ${provider:q} has no pods. Remove pod or choose another provider."),
	plan.MoveBlocked:           says("It could not move to job.${to}: a job with that name exists. Both stay as they are. Remove one of them from the state with eltrain state rm, change the name in the moved block, or remove the block to have job.${job} destroyed."),
	plan.AtOtherSite:           atOtherSite,
	plan.NotPruned:             says("job.${job} is no longer in the files and is kept only because of -prune=false: an apply without that flag destroys it."),
	plan.EndsWhole:             says("A job can only be stopped as a whole, except for members of unranked roles: what is left of its gang could not train. Target job.${job}, or leave all of it out."),
	plan.StartsWhole:           says("A job can only be started as a whole: the min of all its roles together. Target job.${job}, or leave all of it out."),
	plan.RoleUpdatesWhole:      says("A role can only be updated as a whole. Target job.${job}.${role}, or leave all of it out."),
	plan.FailsWhole:            says("The job fails (${of}), and can only be stopped as a whole. Target job.${job}, or leave all of it out."),
	plan.NotRunningOutOfScope:  either("more", "${slots} and ${more} more"+outOfScope, "${slots}"+outOfScope),

	// The parts of a shortage.
	plan.Wanted:           either("extra", "${count} ${role} with ${each} each, and ${extra} for the rest of its pod", "${count} ${role} with ${each} each"),
	plan.NodeFree:         nodeWith("${free} free"),
	plan.NodeNothingFree:  nodeWith("nothing free"),
	plan.NodeFull:         nodeIs(" ", "full with ${most:slots}"),
	plan.NodeClosed:       nodeIs(" ", "${message}"),
	plan.NodeCordoned:     nodeIs(" ", "cordoned by ${by}"),
	plan.NodeBarred:       nodeIs(": ", "${message}"),
	plan.NotForRole:       says("not for ${role}: ${message}"),
	plan.NodeUnlisted:     says("node ${node} is not listed by its provider"),
	plan.NodeAvoided:      nodeAvoided,
	plan.NodeMarked:       nodeMarked,
	plan.NodeIncident:     nodeIncident,
	plan.NodeProblem:      says("${name} is reported: ${message}"),
	plan.TooManyToMark:    tooManyToMark,
	plan.MoreNodes:        says("and ${count} more nodes"),
	plan.MoreUselessNodes: says("and ${count} more unsuitable nodes"),

	// Why a change is refused. Their headlines are below.
	plan.PreventDestroy:           says("job.${job} has lifecycle.prevent_destroy set, but the plan calls for this job to be destroyed. To avoid this error and continue with the plan, " + narrowScope),
	plan.PreventDestroyUndeclared: says("job.${job} has lifecycle.prevent_destroy set, but the plan calls for this job to be destroyed. To avoid this error and continue with the plan, first declare it again with lifecycle.prevent_destroy disabled, and apply that: the setting that was last applied counts."),
	plan.PreventDestroyMove:       says("job.${job} has lifecycle.prevent_destroy set, but the plan calls for it to be destroyed under provider ${from:q} and created under ${to:q}. To avoid this error and continue with the plan, " + narrowScope),
	plan.ImportConflict:           says("${id:q} and ${other:q} belong to two running jobs. All slots of a job must be imported together."),
	plan.ImportOtherProvider:      says("${id:q} runs under provider ${runs_under:q}, but job.${job} is declared with provider ${provider:q}."),
	plan.ImportJobToSlot:          says("${id:q} is a whole job. Import it to job.${job}."),
	plan.ImportOtherSlot:          says("${id:q} was launched as ${slot} and cannot become ${to}: a slot keeps its role and index."),
	plan.ImportAmbiguous:          says("The id ${id:q} exists in two jobs. Import by the job's UID: ${uid} or ${other}."),
	plan.ImportNotFound:           says("While attempting to import an existing object to ${to:q}, the provider detected that nothing runs with the id ${id:q}. Only what eltrain has launched and is still running can be imported; check the id, and that the provider is configured for where it runs."),
	plan.ImportManaged:            says("eltrain already manages what runs with the id ${id:q}, as job.${as}. To rename it, add a moved block."),
	plan.ImportDuplicate:          says("The id ${id:q} is already imported to job.${as}."),

	// What notices tell, and why a job failed.
	plan.ScaleDecided: says("from ${from} to ${to} slots: ${of}"),
	plan.StopReached:  stopReached,
	plan.PhaseEntered: phaseEntered,
	plan.StartsAnew:   startsAnew,
	plan.JobFailed:    says("Failed: ${of}"),
	plan.CanceledBy:   either("why", "Canceled by ${by}: ${why}", "Canceled by ${by}"),
	plan.Incident: func(r job.Reason, of []string) string {
		if r.Args["slots"] == "" {
			return says("${cause}: ${action}")(r, nil)
		}
		return failureText(r, of) + " -> " + spaced(r.Args["action"])
	},
	plan.EventRejected:     says("${message}"),
	plan.SlotFailed:        says("a slot failed"),
	plan.WorldBrokeTooLate: says("${slot} cannot continue: its world broke after another slot of its role succeeded"),
	plan.FailedTooLate:     says("${slot} failed after another slot of its role succeeded"),
	plan.ExitCodeFails:     says("${slot} exited with code ${code}, which heal { exit_codes } says is not worth a restart"),
	plan.CauseFails:        hinted(causeFails),
	plan.LimitReached:      hinted(limitReached),
	plan.SameError:         hinted(says("${slot} ended with the same error again, which a restart does not change")),
	plan.NoProgress:        says("it ended at step ${step} again after each of ${restarts} restarts"),
	plan.PendingTooLong:    says("it has waited for places for ${after}"),
	plan.SlotCannotStart:   says("${slot} cannot be started"),
	plan.RestartsSpent:     says("restart budget exhausted: ${restarts} within ${window}"),

	// What the loop finds.
	apply.LaunchRefused:      refused("cannot be launched"),
	apply.StopRefused:        refused("cannot be stopped"),
	apply.RepairRefused:      refused("cannot be repaired"),
	apply.RemovalRefused:     refused("cannot be removed"),
	apply.PreparationRefused: refused("cannot be prepared"),
	apply.Delayed:            says("${message}"),
	apply.NotJournaled:       says("Events cannot be written to the journal; no changes are made until they can be: ${message}"),
	apply.NotStored:          says("The state cannot be stored; no changes are made until it can be: ${message}"),
	apply.ConfigDiffers: func(r job.Reason, _ []string) string {
		text, asked := "the watch applies other files, since ${since:date}", ", not those that were planned with"
		switch {
		case r.Args["commit"] == "":
		case r.Args["commit"] == r.Args["asked"]:
			return says("the watch applies other files of commit ${commit:short}, since ${since:date}: edits that are not committed differ, or values of variables")(r, nil)
		default:
			text = "the watch applies commit ${commit:short}, since ${since:date}"
		}
		if r.Args["asked"] != "" {
			asked = ", not ${asked:short}, which was planned with"
		}
		return says(text+asked)(r, nil)
	},
	apply.LeftFiles: says("It is no longer in the files. It is removed once the files have not changed for ${after}, unless it comes back."),
	apply.FilesUnusable: func(r job.Reason, of []string) string {
		return filesInForce(r) + " " + cmp.Or(r.Args["message"], strings.Join(of, " "))
	},
	apply.ReadMemory:         says("Reading the files takes more than ${limit} of memory. Make them smaller, or what their expressions produce."),
	apply.ReadTime:           says("Evaluating the files takes more than ${limit}. Look for large files, nested for expressions, and locals that multiply each other."),
	apply.ReadHangs:          says("Reading the files did not end within ${limit}: a file does not answer, perhaps on a network file system that is down. It is tried again every 30s."),
	apply.ReadSize:           says("The files declare more than ${limit}. Declare less."),
	apply.AboveMaxDestroy:    aboveMaxDestroy,
	apply.SlotsAdded:         whatBecame("added"),
	apply.SlotsRemoved:       whatBecame("removed"),
	apply.SlotsReplaced:      whatBecame("replaced"),
	apply.ProviderUnobserved: says("It cannot be observed: ${message}"),
	apply.NotPublished:       says("The service's address cannot be published to its agents: ${message}"),
	apply.CheckFailed:        says("${message}"),
	apply.Stalled:            stalled,
	apply.LossNotFinite:      says("The loss is ${loss}. eltrain reload -step=N resumes from a checkpoint before that."),
	apply.FilesUnsteady:      says("The files are not read while they are being written: ${of}"),
	apply.GitBusy: says("${path} has existed since ${since:clock}, and the files are not read until it is gone, or ${until:clock} at the latest. " +
		"The current configuration stays in effect. If git is not running, the lock is stale: remove it."),
	apply.JobsMissing: says("Jobs are no longer in the files. They are removed once the files have not changed for ${after}; until then the current configuration stays in effect."),
	apply.FilesDoubtful: says("The files may be only half written: ${path} has existed since ${since:date}: git was probably killed. " +
		"The files are read as they are and may not match a commit. Remove it if no git is running."),
	apply.RemovedMisnamed:      says(MisnamedTrouble + ": ${message}"),
	apply.WebhookRefused:       says("POST /v1/reconcile is disabled: ${message}"),
	apply.RequestsUnread:       says("Operators' requests cannot be read: ${message}"),
	apply.NotNotified:          says("Messages of a notify block cannot be delivered: ${message}"),
	apply.Notified:             says("notify ${notify:q} was told: ${event} (${code})"),
	apply.NotifyGivenUp:        says("notify ${notify:q} could not be told, and is not tried any more: ${event} (${code}): ${message}"),
	apply.NotReplied:           says("The reply to an operator's request cannot be stored: ${message}"),
	apply.NotChronicled:        says("A decision could not be written to the journal: ${message}"),
	apply.NotStopped:           notStopped,
	apply.OutputLeftOut:        leftOut,
	apply.ConfigurationApplied: either("held", "commit ${commit} is in effect, except for ${held}", "commit ${commit} is in effect"),
	apply.StraysStopped:        whatBecame("removed"),

	// Why a condition does not hold any more.
	apply.ConditionOver:    says("resolved: ${of}"),
	apply.BackInFiles:      says("resolved: it is in the files again"),
	apply.AsApplied:        says("resolved: it matches the files again"),
	apply.ChangeApplied:    says("resolved: configuration applied"),
	apply.RemovalConfirmed: says("resolved: the removal was confirmed"),

	// What notices tell of worlds, and of jobs that are gone.
	apply.WorldFormed:  world(""),
	apply.WorldAdopted: world(", found training"),
	apply.RoleResized: func(r job.Reason, _ []string) string {
		return fmt.Sprintf("%s %s -> %s within %s..%s", r.Args["role"], r.Args["from"], plural(number(r, "to"), "slot"), r.Args["min"], r.Args["max"])
	},
	apply.JobDestroyed: says("is destroyed: ${of}"),
	apply.JobForgotten: says("is forgotten, as a removed block says: what is running keeps running (uid ${uid})"),

	// Operators' requests, and the overrides that follow from them.
	plan.RequestAccepted: requestAccepted,
	plan.RequestDone: func(r job.Reason, of []string) string {
		if len(of) > 0 {
			return says("${verb}, as ${by} asked: done: ${of}")(r, of)
		}
		return says("${verb}, as ${by} asked: done")(r, nil)
	},
	plan.RequestUnknown:    says("${verb}, as ${by} asked: the outcome is unknown: ${of}"),
	plan.RequestFailed:     says("${verb}, as ${by} asked: failed: ${of}"),
	plan.RequestRefused:    says("${verb}, as ${by} asked: refused: ${of}"),
	plan.NothingThere:      nothingThere,
	plan.IsDestroyed:       says("job.${job} is destroyed"),
	plan.IsSuspended:       says("job.${job} is suspended"),
	plan.HasEnded:          says("job.${job} is ${phase}"),
	plan.RequestExpired:    says("it expired before a master accepted it"),
	plan.RequestSuperseded: says("a later request contradicts it: ${request}"),
	plan.VerbUnknown:       says("the master does not know this request"),
	plan.WholeRoleOnly:     says("${address} is not a whole role, and only whole roles can be asked to ${verb}: write job.NAME.ROLE"),
	plan.SizeFixed:         says("${address} has no scaling block, so the files decide its size: edit its replicas, which are ${replicas}, or give it a scaling block"),
	plan.SizeNotLegal:      sizeNotLegal,
	plan.WholeJobOnly:      says("${address} is a part of a job, and only whole jobs can be asked to ${verb}"),
	plan.Overridden:        overridden,
	plan.OverrideEdited: func(r job.Reason, _ []string) string {
		if r.Args["path"] == "destroyed" {
			return says("its block was edited since ${by} destroyed it")(r, nil)
		}
		if role, paused := pausedRole(r); paused {
			return says("scaling of "+role+", which ${by} paused, is no longer paused: its scaling block was edited in the files")(r, nil)
		}
		return says("${path} = ${value}, which ${by} asked for, is over: ${path} was edited in the files")(r, nil)
	},
	plan.Cordoned:      cordoned("Cordoned", ""),
	plan.Draining:      cordoned("Drained", " Slots leave it if there is room elsewhere."),
	plan.NoSuchNode:    noSuchNode,
	plan.NodeScheduled: nodeScheduled,
	plan.OverrideExpired: func(r job.Reason, _ []string) string {
		if role, paused := pausedRole(r); paused {
			return says("scaling of "+role+", which ${by} paused, is no longer paused: its time has come")(r, nil)
		}
		return says("${path} = ${value}, which ${by} asked for, is over: its time has come")(r, nil)
	},
	plan.OverrideIllegal: says("${path} = ${value}, which ${by} asked for, is over: the files no longer allow it"),
	plan.NotTraining:     says("no training process of ${address} runs"),
	plan.WorldForming:    says("${address} does not train at the moment, because its world is forming: ask again once status says Running"),
	plan.NoRankedRole:    says("${address} has no ranks: its processes form no world"),
	plan.ValueInvalid:    says("${value:q} is not valid for ${verb}"),
	plan.CheckpointUndeclared: says("job.${job} does not declare how to ask for a checkpoint: it needs checkpoint { signal }, and dir or pattern, which say " +
		"when one is written"),
	plan.CheckpointDirUndeclared: says("job.${job} does not declare where its checkpoints are: it needs checkpoint { dir }"),
	plan.CheckpointLate:          fact("no new checkpoint was complete within its role's stop_grace"),
	plan.CheckpointMissing:       ofSlot(noCheckpoint),
	plan.CheckpointTorn:          ofSlot(torn),
	plan.ProcessesEnded:          fact("no training process ran, or it ended before"),
	plan.AgentCannot:             fact("its agent is of a version that cannot do this (${verb}); a restart of the slot starts a newer one"),
	plan.OutcomeUnknown:          fact("its agent has ended without reporting whether it was done"),
	plan.CheckpointWritten:       checkpointed,
	plan.ResumedFrom:             checkpointed,

	// What the status and the plan's drift find.
	slotsGone:         either("several", "${slots} are gone; no master has checked since.", "${slots} is gone; no master has checked since."),
	slotsMissing:      says("${role}: ${running} of ${desired} slots are running."),
	notRestarted:      says("Not restarted: ${of}"),
	jobFailedBy:       func(r job.Reason, of []string) string { return "Failed: " + failureText(r, of) },
	startAgain:        says("To start it again with a new restart budget, run eltrain apply."),
	startAgainWatched: says("A watch does not start it again by itself: eltrain restart does, or a change of what its slots are started from, such as command or env."),
	changedBy:         says("${path} was changed by ${by}"),
}

// requestAccepted says who asked for what, and why.
func requestAccepted(r job.Reason, _ []string) string {
	text := "${by} asked to ${verb} it"
	if r.Args["value"] != "" {
		text += " (${value})"
	}
	if r.Args["mode"] != "" {
		text += " (${mode})"
	}
	if r.Args["why"] != "" {
		text += ": ${why}"
	}
	return says(text)(r, nil)
}

// checkpointed names a checkpoint, as far as it is known.
func checkpointed(r job.Reason, _ []string) string {
	step := either("step", "step ${step}", "step unknown")(r, nil)
	if r.Args["path"] == "" {
		return step
	}
	return step + ", " + r.Args["path"]
}

// pausedRole is the role whose scaling an override pauses.
func pausedRole(r job.Reason) (role string, paused bool) {
	role, isSize := strings.CutPrefix(r.Args["path"], "role.")
	return strings.TrimSuffix(role, ".replicas"), isSize && r.Args["value"] == job.PausedSize
}

// overridden says who asked for something else than the files say, and how it ends.
func overridden(r job.Reason, _ []string) string {
	text, end := "Suspended by ${by} since ${at:date}", " eltrain resume ends this."
	role, isSize := strings.CutPrefix(r.Args["path"], "role.")
	switch {
	case r.Args["path"] == "destroyed":
		text, end = "Destroyed by ${by} at ${at:date}", " eltrain restart, or an edit of its block, starts it again."
	case isSize:
		role = strings.TrimSuffix(role, ".replicas")
		text = role + ": ${value:slots}, as ${by} asked at ${at:date}, in place of ${min} to ${max}"
		if r.Args["value"] == job.PausedSize {
			text = role + ": scaling paused at ${size:slots} by ${by} at ${at:date}"
		}
		end = says(" eltrain scale job.${job}."+role+"=auto ends this.")(r, nil)
	case r.Args["value"] == "false":
		text, end = "Resumed by ${by} at ${at:date}, though the files suspend it", " eltrain suspend ends this."
	case r.Args["value"] == job.Keep:
		text = "Suspended by ${by} since ${at:date}, with its places kept"
	}
	if r.Args["why"] != "" {
		text += ": ${why}"
	}
	if r.Args["until"] != "" {
		text += ", until ${until:date}"
	}
	return says(text+".")(r, nil) + end
}

// sizeNotLegal says which sizes a role may have, and which are the nearest.
func sizeNotLegal(r job.Reason, _ []string) string {
	text := "${address} cannot have ${size} slots: it may have ${min} to ${max}"
	switch {
	case r.Args["sizes"] != "":
		text = "${address} cannot have ${size} slots: it may have ${sizes}"
	case r.Args["step"] != "":
		text += ", in steps of ${step}"
	}
	if r.Args["nearest"] != "" {
		text += ". ${nearest} would be legal"
	}
	return says(text)(r, nil)
}

// cordoned says who keeps new slots off a node, and how it ends.
func cordoned(what, more string) sentence {
	return func(r job.Reason, _ []string) string {
		text := what + " by ${by} since ${at:date}"
		if r.Args["why"] != "" {
			text += ": ${why}"
		}
		if r.Args["until"] != "" {
			text += ", until ${until:date}"
		}
		return says(text+"."+more+" eltrain uncordon ${node} ends this.")(r, nil)
	}
}

func nothingThere(r job.Reason, _ []string) string {
	return says("there is no ${address}")(r, nil) + onlyThere(r)
}

// onlyThere says what there is instead of what was named, if that is known.
func onlyThere(r job.Reason) string {
	switch {
	case r.Args["more"] != "":
		return says(", only ${there} and ${more} more")(r, nil)
	case r.Args["there"] != "":
		return says(", only ${there}")(r, nil)
	}
	return ""
}

func noSuchNode(r job.Reason, _ []string) string {
	return says("there is no node ${node}")(r, nil) + onlyThere(r)
}

// nodeScheduled says which command does what was asked for a node on which a scheduler places slots. Slots leave a node there that is
// cordoned.
func nodeScheduled(r job.Reason, _ []string) string {
	const here = "the scheduler of provider ${provider} chooses what runs on node ${node}: use kubectl "
	if job.Verb(r.Args["verb"]) == job.AskUncordon {
		return says(here+"uncordon ${node}")(r, nil)
	}
	return says(here+"cordon ${node}, and slots leave it if there is room elsewhere")(r, nil)
}

// nodeAvoided says which slots avoid a node.
func nodeAvoided(r job.Reason, _ []string) string {
	text := "avoided by ${slots}"
	if number(r, "count") > len(strings.Split(r.Args["slots"], ", ")) {
		text += " and others"
	}
	return says(text+": lost or moved from there")(r, nil)
}

// checkParts name the parts of a node check.
var checkParts = map[job.CheckPart]string{
	job.CheckMatmul: "products of matrices", job.CheckMemory: "memory", job.CheckGPU: "GPUs", job.CheckCommand: "its program",
	job.CheckExchange: "the exchange with other nodes",
}

// stalled says since when a job makes no progress, and who stands out.
func stalled(r job.Reason, _ []string) string {
	text := "No progress since ${since:date}"
	if r.Args["ranks"] != "" {
		text += ": ranks ${ranks} stand out, in ${slots}"
	}
	if r.Args["due"] != "" {
		text += ". It counts as a hang from ${due:date} on"
	}
	return says(text+".")(r, nil)
}

// nodeCheckFailed says which part of a node check failed, and why.
func nodeCheckFailed(r job.Reason, _ []string) string {
	part := checkParts[job.CheckPart(r.Args["part"])]
	if part == "" { // of a later version
		part = "${part}"
	}
	return nodeCheck(r, "failed: "+part)
}

func nodeCheckLate(r job.Reason, _ []string) string {
	return nodeCheck(r, "did not end in ${seconds} s")
}

// nodeCheck says how the check of a node ended, and what it printed.
func nodeCheck(r job.Reason, ended string) string {
	text := "the node check " + ended
	if r.Args["node"] != "" {
		text = "the check of node ${node} " + ended
	}
	if r.Args["message"] != "" {
		text += ": ${message}"
	}
	return says(text)(r, nil)
}

// nodeIncident says when a node had an incident, and what a check has found.
func nodeIncident(r job.Reason, of []string) string {
	text := says("${cause} of ${job} at ${at:date}")(r, nil)
	if len(of) > 0 {
		text += " (" + strings.Join(of, "; ") + ")"
	}
	return text
}

// nodeMarked says why a node is used last.
func nodeMarked(r job.Reason, of []string) string {
	return says("Used last since ${at:date}, until ${until:date}: "+strings.Join(of, "; ")+". eltrain uncordon ${node} ends this.")(r, nil)
}

// tooManyToMark says why nodes with incidents are used like others.
func tooManyToMark(r job.Reason, _ []string) string {
	text := "${nodes}"
	if more := number(r, "count") - len(strings.Split(r.Args["nodes"], ", ")); more > 0 {
		text += " and " + strconv.Itoa(more) + " more"
	}
	return says(text+" had repeated incidents as well, and are used like other nodes: so many nodes rarely fail by themselves. Check what they have in common, such as their network or image.")(r, nil)
}

// headlines are the summaries of refusals by code.
var headlines = map[job.Code]string{
	plan.PreventDestroy:           cannotBeDestroyed,
	plan.PreventDestroyUndeclared: cannotBeDestroyed,
	plan.PreventDestroyMove:       cannotBeDestroyed,
	plan.ImportConflict:           "Conflicting imports",
	plan.ImportOtherProvider:      "Import from another provider",
	plan.ImportJobToSlot:          "Import of a job to a slot",
	plan.ImportOtherSlot:          "Import to another slot",
	plan.ImportAmbiguous:          "Ambiguous import",
	plan.ImportNotFound:           "Cannot import non-existent remote object",
	plan.ImportManaged:            "Resource already managed by eltrain",
	plan.ImportDuplicate:          "Duplicate import",
}

const (
	cannotBeDestroyed = "Instance cannot be destroyed"
	narrowScope       = "either disable lifecycle.prevent_destroy or reduce the scope of the plan using the -target option."
	outOfScope        = ": not running and not in scope. The world may not form without it. Target job.${job} to heal all of it."
)

// Words writes reasons as sentences for the loop. See apply.Words.
type Words struct{}

var _ apply.Words = Words{}

// Sentence returns a reason as text. It is not redacted.
func (Words) Sentence(r job.Reason) string { return Sentence(r) }

// Headline returns the summary of a refusal.
func (Words) Headline(code job.Code) string { return headlines[code] }

func editedFields(r job.Reason, _ []string) string {
	const changed = "its declaration changed"
	switch fields, more := r.Args["fields"], r.Args["more"]; {
	case fields == "":
		return changed
	case more == "":
		return changed + ": " + fields
	default:
		return changed + ": " + fields + ", " + more + " more"
	}
}

func startsAnew(r job.Reason, _ []string) string {
	how := ended(r)
	if !strings.HasPrefix(how, "was ") {
		return "starts again: it had " + how
	}
	return "starts again: it " + how
}

// ended says how a job ended, by its phase.
func ended(r job.Reason) string {
	switch phase := job.JobPhase(r.Args["phase"]); phase {
	case job.JobSucceeded, job.JobFailed:
		return strings.ToLower(string(phase))
	}
	return "was canceled"
}

func shortage(r job.Reason, of []string) string {
	var wanted, available []string
	for i, part := range r.Of {
		if part.Code == plan.Wanted {
			wanted = append(wanted, of[i])
		} else {
			available = append(available, of[i])
		}
	}
	if available == nil {
		available = []string{"no node"}
	}
	text := "Wanted: " + strings.Join(wanted, ", ") + ". Available: " + strings.Join(available, "; ") + "."
	if lower := r.Args["lower"]; lower != "" {
		text += " Running at a lower priority: " + lower + ". None gives up its min without preemptible = true there and preempt = true here."
	}
	return text
}

// nodeWith makes a sentence about what a node has, or several have each.
func nodeWith(text string) sentence {
	has := says(text)
	return func(r job.Reason, of []string) string {
		if node := r.Args["node"]; node != "" {
			return node + " " + has(r, nil) + exceptions(of)
		}
		return r.Args["count"] + " nodes with " + has(r, nil) + " each" + exceptions(of)
	}
}

// nodeIs makes a sentence about why a node, or several, cannot be used.
func nodeIs(separator, text string) sentence {
	is := says(text)
	return func(r job.Reason, of []string) string {
		if node := r.Args["node"]; node != "" {
			return node + separator + is(r, nil) + exceptions(of)
		}
		return r.Args["count"] + " nodes: " + is(r, nil)
	}
}

// exceptions lists the roles that cannot use a node.
func exceptions(of []string) string {
	if len(of) == 0 {
		return ""
	}
	return " (" + strings.Join(of, "; ") + ")"
}

func retryWaits(r job.Reason, of []string) string {
	return fmt.Sprintf("It %s, and starts again once there is room: unlike a new job it takes no places from jobs of its priority. %s To start it as a new job, run eltrain apply -replace=job.%s.",
		ended(r), strings.Join(of, " "), r.Args["job"])
}

func queued(r job.Reason, _ []string) string {
	slots := r.Args["slots"]
	if n := number(r, "count"); n > 1 {
		slots += " (" + plural(n, "slot") + ")"
	}
	return slots + ": " + r.Args["message"]
}

// scaledByPolicy says which policy decided, from what, and what bounded it.
func scaledByPolicy(r job.Reason, of []string) string {
	text := "scaling"
	if p := r.Args["policy"]; p != "" {
		text = "policy " + strconv.Quote(p)
	}
	if len(of) > 0 {
		text += " (" + strings.Join(of, "; ") + ")"
	}
	return text
}

// threshold says how often a threshold was crossed.
func threshold(text string) sentence {
	return func(r job.Reason, _ []string) string {
		var bounds []string
		for _, name := range []string{"above", "below"} {
			if v := r.Args[name]; v != "" {
				bounds = append(bounds, name+" "+v)
			}
		}
		return r.Args["value"] + "; " + strings.Join(bounds, " and ") + " was " + fmt.Sprintf(text, r.Args["crossed"], r.Args["within"])
	}
}

// efficientUpTo says why no larger size is used.
func efficientUpTo(r job.Reason, _ []string) string {
	switch next, efficiency := r.Args["next"], r.Args["efficiency"]; {
	case next == "":
		return "all sizes are efficient enough"
	case efficiency == "":
		return next + " slots were not tried, and no exploration is left or it would not pay"
	default:
		gain, _ := strconv.ParseFloat(r.Args["gain"], 64)
		share, _ := strconv.ParseFloat(efficiency, 64)
		least, _ := strconv.ParseFloat(r.Args["min_efficiency"], 64)
		return fmt.Sprintf("%s slots would change the throughput by %+.0f %% at an efficiency of %.0f %% (at least %.0f %%), for a restart of %s", next, 100*gain, 100*share, 100*least, r.Args["restart"])
	}
}

func phaseEntered(r job.Reason, of []string) string {
	if len(of) == 0 {
		return r.Args["phase"]
	}
	return r.Args["phase"] + ": " + strings.Join(of, "; ")
}

func stopReached(r job.Reason, _ []string) string {
	text := r.Args["metric"] + " is " + r.Args["value"]
	if lasts := r.Args["for"]; lasts != "" {
		text += ", as stop_when asks for " + lasts
	}
	return text
}

func stuckOnDrained(r job.Reason, _ []string) string {
	nodes, more := r.Args["nodes"], r.Args["more"]
	what := "Node " + nodes + " is"
	if more != "" {
		what = "Nodes " + nodes + " and " + more + " more are"
	} else if strings.Contains(nodes, ", ") {
		what = "Nodes " + nodes + " are"
	}
	if slot := r.Args["slot"]; slot != "" {
		return what + " drained, and no other node has room for " + slot + ": it stays."
	}
	return what + " drained, and no other node has room for the " + r.Args["count"] + " slots there: they stay."
}

// onThisMachine is the provider whose sites are directories of run-time files.
const onThisMachine = "local"

func atOtherSite(r job.Reason, _ []string) string {
	if r.Args["provider"] == onThisMachine {
		return says("It runs with its run-time files in ${site}, and those of this command are in ${provider_site}: it is left unchanged. Set "+
			"ELTRAIN_DATA_DIR, or change to the job directory, so that they are the same, and destroy the job there if it is to run here; "+
			"or, if that place no longer exists, remove it from the state with eltrain state rm.")(r, nil)
	}
	what := " to have the job destroyed"
	if r.Args["declared"] == "true" {
		what = ", or destroy the job there first"
	}
	return fmt.Sprintf("It was launched at %s, but its provider %q is now at %s: it is left unchanged. Point the provider back there%s; "+
		"or, if that place no longer exists (a deleted namespace, for example), remove it from the state with eltrain state rm.",
		r.Args["site"], r.Args["provider"], r.Args["provider_site"], what)
}

// refused makes a sentence about a failing action: on slots, a job, or the subject of a notice.
func refused(what string) sentence {
	slots, others := says("${slots} "+what+": ${message}"), either("job", "It "+what+": ${message}", what+": ${message}")
	return func(r job.Reason, of []string) string {
		if r.Args["slots"] != "" {
			return slots(r, of)
		}
		return others(r, of)
	}
}

// filesInForce says that the files, at a commit or edited since, have errors, and which configuration is in force instead.
func filesInForce(r job.Reason) string {
	of := func(commit string) string {
		if commit == "" {
			return ""
		}
		return " (commit " + commit + ")"
	}
	commit, inForce := r.Args["commit"], r.Args["in_force"]
	if commit != "" && commit == inForce {
		return "The configuration has errors (edited since commit " + commit + "); the last valid one stays in effect."
	}
	return "The configuration has errors" + of(commit) + "; the last valid one stays in effect" + of(inForce) + "."
}

func aboveMaxDestroy(r job.Reason, _ []string) string {
	all := r.Args["all"] + " in all"
	if r.Args["unseen"] != "" {
		all = "up to " + all + " including what cannot be observed now"
	}
	commit := ""
	if r.Args["commit"] != "" {
		commit = " (commit " + r.Args["commit"] + ")"
	}
	return fmt.Sprintf("The files%s would remove or replace %s of it, %s, which is more than -max-destroy=%s allows: it keeps running as last applied. "+
		"If this is intended, apply by hand without -max-destroy, raise it, or confirm it once with max_destroy in POST /v1/reconcile.",
		commit, plural(number(r, "count"), "slot"), all, r.Args["max_destroy"])
}

// world makes a sentence about a world's size, and where its rank 0 is.
func world(how string) sentence {
	return func(r job.Reason, resized []string) string {
		processes := r.Args["processes"] + " processes"
		if number(r, "processes") == 1 {
			processes = "1 process"
		}
		text := "generation " + r.Args["generation"] + ": " + plural(number(r, "slots"), "slot") + ", " + processes + how
		if master := r.Args["master"]; master != "" {
			text += ", rank 0 at " + master
		}
		return strings.Join(append([]string{text}, resized...), ", ")
	}
}

// whatBecame makes a sentence about what was done to slots, and why.
func whatBecame(of string) sentence {
	return func(r job.Reason, why []string) string {
		text := "is " + of
		if number(r, "count") > 1 {
			text = "are " + of
		}
		if len(why) > 0 {
			text += ": " + strings.TrimSuffix(why[0], ".")
		}
		return text
	}
}

// noCheckpoint says which steps there are instead of the one that was asked for.
func noCheckpoint(r job.Reason, of []string) string {
	text := either("step", "there is no checkpoint of step ${step} in the checkpoint directory", "there is no checkpoint in the checkpoint directory")(r, of)
	if there := r.Args["there"]; there != "" {
		text += "; there are steps " + there
	}
	return text
}
