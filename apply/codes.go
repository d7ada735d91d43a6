package apply

import "github.com/eltrain/eltrain/job"

// The codes of the loop's reasons and conditions, beside those of the planner. docs/reasons.md says what each means, and with
// which arguments.
const (
	LaunchRefused      job.Code = "launch_refused"      // slots cannot be launched
	StopRefused        job.Code = "stop_refused"        // slots cannot be stopped
	MendingRefused     job.Code = "mending_refused"     // edited slots cannot be repaired
	RemovalRefused     job.Code = "removal_refused"     // what is left of the job cannot be removed
	PreparationRefused job.Code = "preparation_refused" // what the job needs before its slots cannot be made
	Delayed            job.Code = "delayed"             // an object takes long to create
	NotStored          job.Code = "not_stored"          // the state cannot be stored
	LeftFiles          job.Code = "left_files"          // the job is no longer in the files, and will be removed soon
	FilesUnusable      job.Code = "files_unusable"      // the files cannot be used
	AboveMaxDestroy    job.Code = "above_max_destroy"   // the files would remove or replace more slots than allowed
	SlotsRemoved       job.Code = "slots_removed"       // slots are removed
	SlotsReplaced      job.Code = "slots_replaced"      // slots are replaced
	ProviderUnobserved job.Code = "provider_unobserved" // the provider cannot be asked what it sees
	NotPublished       job.Code = "not_published"       // the service's address cannot be published to the agents of a provider
	CheckFailed        job.Code = "check_failed"        // a condition in the files does not hold
	FilesUnsteady      job.Code = "files_unsteady"      // the files are being written
	FilesDoubtful      job.Code = "files_doubtful"      // the files may be only half written
	RemovedMisnamed    job.Code = "removed_misnamed"    // a removed block matches nothing
	NotChronicled      job.Code = "not_chronicled"      // a decision cannot be written to the journal
	NotStopped         job.Code = "not_stopped"         // the run has ended before it could stop slots
	OutputLeftOut      job.Code = "output_left_out"     // the output was blocked for a while, and lines were dropped
)

// What conditions are about, beside jobs and providers.
const (
	aboutStore   = "store"
	aboutJournal = "journal"
	aboutFilesOf = "files"
	aboutOutput  = "output"
)

// What settles conditions: each knows all that holds of its own.
const (
	byDelays   = "delays"
	byRefusals = "refusals"
	byChecks   = "checks"
)
