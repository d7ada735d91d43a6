package scaling

import "github.com/eltrain/eltrain/job"

// Codes of what policies propose, and of what bounds that. docs/reasons.md says what each means, and with which arguments.
const (
	OnTarget       job.Code = "scale_on_target"    // the value is within the tolerance of its target
	OffTarget      job.Code = "scale_off_target"   // the value is off its target
	Crossed        job.Code = "scale_crossed"      // enough values have crossed the threshold
	NotCrossed     job.Code = "scale_not_crossed"  // too few values have crossed the threshold
	Fixed          job.Code = "scale_fixed"        // the policy names the size
	Passed         job.Code = "scale_passed"       // the value is the size
	NoValueYet     job.Code = "scale_no_value_yet" // its source has not been asked yet
	NoValue        job.Code = "scale_no_value"     // its source has no value
	NothingTrains  job.Code = "scale_not_training" // there is no value because nothing trains
	FellBack       job.Code = "scale_fallback"     // its source keeps failing
	EfficientUpTo  job.Code = "scale_efficient"    // larger sizes are not efficient enough, or do not pay
	NotMeasured    job.Code = "scale_not_measured" // nothing was measured at this size yet
	DeadlineNeeds  job.Code = "scale_deadline"     // the smallest size that meets the deadline
	TimeUnknown    job.Code = "scale_time_unknown" // how long the training still takes is not known at the moment
	DeadlineMissed job.Code = "scale_deadline_missed"

	Stabilizing job.Code = "scale_stabilizing"  // the policy has not proposed it for long enough
	CoolingDown job.Code = "scale_cooling_down" // the size was changed not long ago
	AwaitsSave  job.Code = "scale_awaits_save"  // the job's next checkpoint is near
	NoProposal  job.Code = "scale_no_proposal"  // no policy proposes a size: as many slots as there is room for
	AtATime     job.Code = "scale_at_a_time"    // the size changes by no more at a time
	ToLegal     job.Code = "scale_legal"        // the next legal size
	Capped      job.Code = "scale_capped"       // by efficiency
	Frozen      job.Code = "scale_frozen"       // the training is nearly over
	SourceFails job.Code = "scale_source_fails" // a source fails, and on_check_error is fail
	Disabled    job.Code = "scale_disabled"     // enabled is false
)
