package job

// Directory is what holds for all jobs of a directory together.
type Directory struct {
	Limits *Limits `hcl:"limits,block" json:"limits,omitempty" doc:"The maximum that all slots of all jobs may hold together, as limits of a job do for its own. A job that does not fit waits, or others shrink for it."`
}
