package job

// Misfit is the error of a role's argument that a provider does not support.
type Misfit struct {
	Argument string // "image"
	Err      error
}

func (m *Misfit) Error() string { return m.Err.Error() }

func (m *Misfit) Unwrap() error { return m.Err }
