package apply

import "github.com/eltrain/eltrain/job"

// The conditions that a run holds, by code. docs/reasons.md says what each means.
const (
	ProviderUnobserved job.Code = "provider_unobserved" // about a provider: it could not be asked what it sees
	NotPublished       job.Code = "not_published"       // about a provider: its agents could not be told where the service is
	NotPrepared        job.Code = "not_prepared"        // about a job: what it needs beside its slots could not be made
	HeldUp             job.Code = "held_up"             // about a job: something of it is being made and does not come about
	Refused            job.Code = "refused"             // about a job: what the files ask for must not be done
	CheckFailed        job.Code = "check_failed"        // about the files: a condition in them does not hold
	FilesInvalid       job.Code = "files_invalid"       // about the files: they have errors
	FilesUnsteady      job.Code = "files_unsteady"      // about the files: they are being written
	FilesDoubtful      job.Code = "files_doubtful"      // about the files: they may be half of what was to be written
	RemovedMisnamed    job.Code = "removed_misnamed"    // about the files: a removed block keeps nothing
	NotStored          job.Code = "not_stored"          // about the store: the state cannot be written
	NotChronicled      job.Code = "not_chronicled"      // about the journal: a decision could not be kept
	OutputLeftOut      job.Code = "output_left_out"     // about the output: it took nothing for a while, and lines were left out
	NotStopped         job.Code = "not_stopped"         // about a slot: a run has ended before it could stop it
)

// What conditions are about, beside jobs and providers.
const (
	aboutStore   = "store"
	aboutJournal = "journal"
	aboutFilesOf = "files"
	aboutOutput  = "output"
)
