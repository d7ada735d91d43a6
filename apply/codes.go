package apply

import "github.com/eltrain/eltrain/job"

// The codes of the loop's reasons, beside those of the planner. docs/reasons.md says what each means, and with which
// arguments.
const (
	LaunchRefused      job.Code = "launch_refused"      // slots cannot be launched
	StopRefused        job.Code = "stop_refused"        // slots cannot be stopped
	MendingRefused     job.Code = "mending_refused"     // slots that were edited cannot be mended
	RemovalRefused     job.Code = "removal_refused"     // what is left of the job cannot be removed
	PreparationRefused job.Code = "preparation_refused" // what the job needs before its slots cannot be made
	Delayed            job.Code = "delayed"             // what is being made does not come about
	NotStored          job.Code = "not_stored"          // the state cannot be stored
	LeftFiles          job.Code = "left_files"          // the job is in the files no more, which is not believed yet
	FilesUnusable      job.Code = "files_unusable"      // the files cannot be used
	AboveMaxDestroy    job.Code = "above_max_destroy"   // the files would have more slots removed than is allowed
	SlotsRemoved       job.Code = "slots_removed"       // slots are removed
	SlotsReplaced      job.Code = "slots_replaced"      // slots are replaced
)
