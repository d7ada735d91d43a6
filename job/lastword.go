package job

// LastWord is the JSON that an agent writes when it exits, to its directory or to LastWordFile. It tells a provider
// more than an exit code.
type LastWord struct {
	Exit   *Exit       `json:"exit,omitempty"`
	State  MemberState `json:"state"`
	Reason EndReason   `json:"reason"`
}

// LastWordSize is the maximum size of a LastWordFile in bytes: Kubernetes' limit for a termination message.
const LastWordSize = 4096
