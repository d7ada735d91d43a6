package apply

import "github.com/eltrain/eltrain/job"

// The codes of the loop's reasons and conditions, beside those of the planner. docs/reasons.md says what each means, and with
// which arguments.
const (
	LaunchRefused        job.Code = "launch_refused"        // slots cannot be launched
	StopRefused          job.Code = "stop_refused"          // slots cannot be stopped
	RepairRefused        job.Code = "repair_refused"        // slots that were edited from outside cannot be repaired
	RemovalRefused       job.Code = "removal_refused"       // the job's remaining objects cannot be removed
	PreparationRefused   job.Code = "preparation_refused"   // objects that the job needs before its slots cannot be created
	Delayed              job.Code = "delayed"               // an object takes long to create
	NotStored            job.Code = "not_stored"            // the state cannot be stored
	NotJournaled         job.Code = "not_journaled"         // events cannot be written to the journal
	ConfigDiffers        job.Code = "config_differs"        // the request is about other files than those in effect
	LeftFiles            job.Code = "left_files"            // the job is no longer in the files, and will be removed soon
	FilesUnusable        job.Code = "files_unusable"        // the files cannot be used
	ReadMemory           job.Code = "read_memory"           // part of the above: reading the files takes too much memory
	ReadTime             job.Code = "read_time"             // the same, too long
	ReadHangs            job.Code = "read_hangs"            // a file that the configuration is read from does not answer
	ReadSize             job.Code = "read_size"             // the configuration that the files declare is too large
	AboveMaxDestroy      job.Code = "above_max_destroy"     // the files would remove or replace more slots than allowed
	SlotsAdded           job.Code = "slots_added"           // slots are added to a running job
	SlotsRemoved         job.Code = "slots_removed"         // slots are removed
	SlotsReplaced        job.Code = "slots_replaced"        // slots are replaced
	ProviderUnobserved   job.Code = "provider_unobserved"   // the provider cannot be observed
	NotPublished         job.Code = "not_published"         // the service's address cannot be published to the agents of a provider
	CheckFailed          job.Code = "check_failed"          // a condition in the files does not hold
	LossNotFinite        job.Code = "loss_not_finite"       // the job's loss is NaN or infinite
	Stalled              job.Code = "stalled"               // the job makes no progress for unusually long
	FilesUnsteady        job.Code = "files_unsteady"        // the files are being written
	FilesDoubtful        job.Code = "files_doubtful"        // the files may be only half written
	RemovedMisnamed      job.Code = "removed_misnamed"      // a removed block matches nothing
	NotChronicled        job.Code = "not_chronicled"        // a decision cannot be written to the journal
	NotStopped           job.Code = "not_stopped"           // the run has ended before it could stop slots
	OutputLeftOut        job.Code = "output_left_out"       // the output was blocked for a while, and lines were dropped
	ConfigurationApplied job.Code = "configuration_applied" // the commit of the configuration in effect
	WebhookRefused       job.Code = "webhook_refused"       // requests to reconcile are refused: their token cannot be read
	StraysStopped        job.Code = "strays_stopped"        // running slots of no recorded job are stopped

	RequestsUnread job.Code = "requests_unread" // operators' requests cannot be read
	NotReplied     job.Code = "not_replied"     // a reply to an operator's request cannot be stored

	NotNotified   job.Code = "not_notified"    // a notify block's messages cannot be delivered
	Notified      job.Code = "notified"        // a message of a notify block was delivered
	NotifyGivenUp job.Code = "notify_given_up" // a message of a notify block is not delivered any more

	// Parts of FilesUnsteady.
	GitBusy     job.Code = "git_busy"     // git is writing the files
	JobsMissing job.Code = "jobs_missing" // jobs are no longer in the files, which may be half written

	// Why a condition no longer holds.
	ConditionOver    job.Code = "over"              // no more is known
	BackInFiles      job.Code = "back_in_files"     // the job is in the files again
	AsApplied        job.Code = "as_applied"        // the files match again what was last applied
	ChangeApplied    job.Code = "change_applied"    // the files' version of the job is applied
	RemovalConfirmed job.Code = "removal_confirmed" // the same, after the removal was confirmed

	// Codes of notices.
	WorldFormed  job.Code = "world_formed"  // a world has formed
	WorldAdopted job.Code = "world_adopted" // a world was found training
	RoleResized  job.Code = "role_resized"  // part of the above: an elastic role changed its number of slots
	JobDestroyed job.Code = "job_destroyed" // a job is gone
	JobForgotten job.Code = "job_forgotten" // a job was removed from the state; its processes keep running
)

// What conditions are about, besides jobs and providers.
const (
	aboutStore   = "store"
	aboutJournal = "journal"
	aboutFilesOf = "files"
	aboutOutput  = "output"
	aboutWebhook = "webhook"

	aboutRequests = "requests"
	aboutNotify   = "notify." // and the name of the block
)
