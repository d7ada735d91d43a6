package job

// Launch is everything that a provider needs to start one incarnation of a slot.
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
	// Accelerators is where figures of the slot's accelerators come from; nil if there are none.
	Accelerators *Accelerators `json:"accelerators,omitempty"`
	Fingerprint  string        `json:"fingerprint"`
	// Source is the digest of the role's source files, which the job's Group has, if the provider ships them.
	Source string `json:"source,omitempty"`
	// Pod is the role's overlay on its pod, for providers with Capabilities.Pods.
	Pod map[string]any `json:"pod,omitempty"`
	// Held: it must wait until its whole gang exists. Launches after the first world formed are not held.
	Held bool `json:"held,omitempty"`
	// Avoid lists nodes that should not be used if another has room; see Slot.Avoid. Marked nodes are among them.
	Avoid []string `json:"avoid,omitempty"`
}

// Group describes a job as a whole to a provider, for the objects that it keeps per job.
type Group struct {
	UID      string      `json:"uid"`
	Name     string      `json:"name"`
	Priority int         `json:"priority,omitempty"`
	Roles    []GroupRole `json:"roles"` // in declaration order
}

// GroupRole is one role's part of a gang.
type GroupRole struct {
	Role string `json:"role"`
	// Min is the number of slots that start together or not at all; 0 while the role waits for another to run.
	Min  int       `json:"min"`
	Each Resources `json:"each"` // what one slot reserves
	// Source is what the role's program consists of, if that is declared and the provider ships it.
	Source *SourceFiles `json:"source,omitempty"`
}

// SourceFiles are the source files of a role.
type SourceFiles struct {
	Digest string `json:"digest"` // of all
	Files  Files  `json:"files"`
	Root   string `json:"root"` // the directory that their paths are relative to
}

// Fit says where slots of a role can run, and what they use there.
type Fit struct {
	// Bars has the nodes that they can never use, by name, with a short reason ("taint gpu=yes:NoSchedule"); nil if
	// every node accepts the role.
	Bars map[string]string
	// Extra is what each uses of its node besides its reservation: a pod's sidecars and overhead.
	Extra Resources
	// Caveats are sentences for users about what could not be determined; nil if everything is known.
	Caveats []string
}

// Capabilities says what a provider can do. The planner knows nothing else about providers.
type Capabilities struct {
	// Places: the planner chooses the node. Otherwise a scheduler does, and Node in a Launch is a hint.
	Places bool `json:"places"`
	// Images: the provider runs container images; otherwise a role's image is an error.
	Images bool `json:"images"`
	// NeedsImage: a role without an image cannot run.
	NeedsImage bool `json:"needs_image,omitempty"`
	// Ships: the provider takes the files of a role's source to its processes. Otherwise they are read where they are.
	Ships bool `json:"ships,omitempty"`
	// Pods: the provider accepts the pod overlay.
	Pods bool `json:"pods"`
	// Shared: others use the infrastructure, too. Incarnations of unknown jobs belong to them and are left alone.
	Shared bool `json:"shared,omitempty"`
	// Owner is the state of this master ("kubernetes ml/team-a"), where masters of other states may launch, too. An
	// incarnation with another Owner and without a recorded job belongs to somebody else, whatever its name.
	Owner string `json:"owner,omitempty"`
	// Site identifies where it launches: a cluster and namespace, a directory of a machine. A job whose record has another Site runs
	// elsewhere: it is left alone, not started a second time.
	Site string `json:"site,omitempty"`
	// News is how long agents may take to learn the address of a new master; 0 means within a lease.
	News Duration `json:"news,omitempty"`
	// Attributes: the infrastructure reports why it asked an agent to stop, no later than the agent's exit.
	Attributes bool `json:"attributes,omitempty"`
	// NodesUnknown: nodes may not be listed, so nodes may exist that are not in the snapshot.
	NodesUnknown bool `json:"nodes_unknown,omitempty"`
	// Parallelism is the number of concurrent changes if the user did not set one; 0 means the general default.
	Parallelism int `json:"parallelism,omitempty"`
	// Refused says why no job can be started here now, in full sentences that say what to do; "" if jobs can.
	Refused string `json:"refused,omitempty"`
	// Caveats say what the provider cannot enforce here, in full sentences; plan shows them.
	Caveats []string `json:"caveats,omitempty"`
}
