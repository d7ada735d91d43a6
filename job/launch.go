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
	// Pod is the role's overlay on its pod, for providers that take one.
	Pod map[string]any `json:"pod,omitempty"`
	// Held: it is to wait until its whole gang is there. Once a world has formed what is launched starts at once.
	Held bool `json:"held,omitempty"`
	// Avoid are nodes that it should not come to if another has room: where it was lost before.
	Avoid []string `json:"avoid,omitempty"`
}

// Group is what a provider is told of a job as a whole: whatever it keeps for one beside its slots follows it.
type Group struct {
	UID      string      `json:"uid"`
	Name     string      `json:"name"`
	Priority int         `json:"priority,omitempty"`
	Roles    []GroupRole `json:"roles"` // in declaration order
}

// GroupRole is one role's part of a gang.
type GroupRole struct {
	Role string `json:"role"`
	// Min is how many slots are started together or not at all; 0 while the role waits for another to run.
	Min  int       `json:"min"`
	Each Resources `json:"each"` // what one slot reserves
}

// Fit is where slots of a role can be, and what they take there.
type Fit struct {
	// Bars are the nodes that they can never be on, by name, each with the reason in a few words
	// ("taint gpu=yes:NoSchedule"); nil where every node takes the role.
	Bars map[string]string
	// Extra is what each takes of its node beside what it reserves: a pod's sidecars and overhead.
	Extra Resources
	// Caveats are what of this could not be seen, for a person, as sentences; nil where all is known.
	Caveats []string
}

// Capabilities is what a provider can and cannot do. The planner knows providers by nothing else.
type Capabilities struct {
	// Places: the planner chooses the node. Otherwise a scheduler does and Node in a Launch is a hint.
	Places bool `json:"places"`
	// Images: the provider runs container images; without it a role's image is refused.
	Images bool `json:"images"`
	// NeedsImage: a role without an image cannot run.
	NeedsImage bool `json:"needs_image,omitempty"`
	// Pods: the provider takes the pod overlay.
	Pods bool `json:"pods"`
	// Shared: others run things there too. What is of no job known here is theirs and is left alone.
	Shared bool `json:"shared,omitempty"`
	// Owner is the state under which this master launches there ("kubernetes ml/team-a"), where others may do so
	// under theirs. An incarnation of another Owner and of no recorded job is somebody else's, whatever its name.
	Owner string `json:"owner,omitempty"`
	// Site is where it launches, in a word that no other cluster or namespace has. A job whose record has another
	// Site runs elsewhere: it is left as it is, not begun a second time.
	Site string `json:"site,omitempty"`
	// News is how long what runs may take to learn where a new master is; 0 is within a lease.
	News Duration `json:"news,omitempty"`
	// Attributes: the infrastructure tells by itself why it told an agent to stop, with its end at the latest.
	Attributes bool `json:"attributes,omitempty"`
	// NodesUnknown: nodes may not be listed. One that is not shown may be there anyway.
	NodesUnknown bool `json:"nodes_unknown,omitempty"`
	// Parallelism is how many changes it takes at once, where the user asked for no number; 0 is the default.
	Parallelism int `json:"parallelism,omitempty"`
	// Refused is why no job can be started here as things are, in full sentences that say what to do; "" if jobs can.
	Refused string `json:"refused,omitempty"`
	// Caveats are what the provider cannot enforce here and now, in full sentences; plan shows them.
	Caveats []string `json:"caveats,omitempty"`
}
