package job

// Launch is all that a provider needs to start one incarnation of a slot.
type Launch struct {
	UID         string      `json:"uid"`
	Slot        Address     `json:"slot"`
	Incarnation int         `json:"incarnation"`
	Node        string      `json:"node"`
	Program     Program     `json:"program"`
	Processes   int         `json:"processes"`
	Ranked      bool        `json:"ranked"`
	Reserved    Resources   `json:"reserved"`
	StopGrace   Duration    `json:"stop_grace"`
	MaxRestarts int         `json:"max_restarts"` // TORCHELASTIC_MAX_RESTARTS
	Checkpoint  *Checkpoint `json:"checkpoint,omitempty"`
	Progress    *Progress   `json:"progress,omitempty"`
	Fingerprint string      `json:"fingerprint"`
}

// Capabilities is what a provider can and cannot do. The planner knows providers by nothing else.
type Capabilities struct {
	// Places: the planner chooses the node. Otherwise a scheduler does and Node in a Launch is a hint.
	Places bool `json:"places"`
	// Images: the provider runs container images; without it a role's image is refused.
	Images bool `json:"images"`
	// Pods: the provider takes the pod overlay.
	Pods bool `json:"pods"`
	// Caveats are what the provider cannot enforce here and now, in full sentences; plan shows them.
	Caveats []string `json:"caveats,omitempty"`
}
