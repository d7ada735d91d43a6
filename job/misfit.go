package job

// Misfit is what a provider cannot do of a role: an argument that it has no use for.
type Misfit struct {
	Argument string // "image"
	Err      error
}

func (m *Misfit) Error() string { return m.Err.Error() }

func (m *Misfit) Unwrap() error { return m.Err }
