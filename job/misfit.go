package job

// Misfit is what is wrong with an argument of a role or with a block of a provider, according to the provider.
type Misfit struct {
	Argument string // "image", or the type of a block: "node"
	Label    string // of the block
	Err      error
}

func (m *Misfit) Error() string { return m.Err.Error() }

func (m *Misfit) Unwrap() error { return m.Err }
