package job

// LastWord is what an agent says when it ends, as JSON: in its directory, or in LastWordFile. A provider learns
// from it what an exit code alone does not tell.
type LastWord struct {
	Exit   *Exit       `json:"exit,omitempty"`
	State  MemberState `json:"state"`
	Reason EndReason   `json:"reason"`
}

// LastWordSize is the most that a LastWordFile takes, in bytes: what Kubernetes keeps of a termination message.
const LastWordSize = 4096
