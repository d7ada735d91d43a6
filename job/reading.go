package job

// Reading is what a training process said about its progress. What it did not say is nil, never 0.
type Reading struct {
	Step            *int64   `json:"step,omitempty"`
	Total           *int64   `json:"total,omitempty"` // steps in all
	Loss            *Loss    `json:"loss,omitempty"`
	Epoch           *float64 `json:"epoch,omitempty"` // as the program counts them, with a fraction if it says so
	LearningRate    *float64 `json:"learning_rate,omitempty"`
	TokensPerSecond *float64 `json:"tokens_per_second,omitempty"` // as the program says: often of one device
	// GradNorm is the norm of the gradients, after they were reduced, and StateHash names the state of the model: both are equal on
	// data-parallel peers at the same step.
	GradNorm  *float64 `json:"grad_norm,omitempty"`
	StateHash string   `json:"state_hash,omitempty"`
	// BatchSize is how many samples all ranks together have in a step. NoiseScale is the gradient noise scale, in samples: the batch
	// size from which on larger batches need hardly fewer steps (McCandlish et al. 2018).
	BatchSize  *float64 `json:"batch_size,omitempty"`
	NoiseScale *float64 `json:"gradient_noise_scale,omitempty"`
	// Counted: Step counts from the start of the process, because its output says no more. A process that resumed is further.
	Counted bool `json:"counted,omitempty"`
}

// MaxStateHash bounds Reading.StateHash: SHA-512 in hexadecimal.
const MaxStateHash = 128

// With returns the reading with what a newer one says in its place.
func (r Reading) With(newer Reading) Reading {
	if newer.Step != nil {
		r.Step, r.Counted = newer.Step, newer.Counted
	}
	if newer.Total != nil {
		r.Total = newer.Total
	}
	if newer.Loss != nil {
		r.Loss = newer.Loss
	}
	if newer.Epoch != nil {
		r.Epoch = newer.Epoch
	}
	if newer.LearningRate != nil {
		r.LearningRate = newer.LearningRate
	}
	if newer.TokensPerSecond != nil {
		r.TokensPerSecond = newer.TokensPerSecond
	}
	if newer.GradNorm != nil {
		r.GradNorm = newer.GradNorm
	}
	if newer.StateHash != "" {
		r.StateHash = newer.StateHash
	}
	if newer.BatchSize != nil {
		r.BatchSize = newer.BatchSize
	}
	if newer.NoiseScale != nil {
		r.NoiseScale = newer.NoiseScale
	}
	return r
}

// Recognizer says how a program prints its progress. Patterns are regular expressions (RE2) for one line each, whose named groups
// are the reading; see package progress for the names.
type Recognizer struct {
	Name string `json:"name"`
	// Patterns match lines that nothing but this program's training prints.
	Patterns []string `json:"patterns"`
	// Then match lines that others print as well. They count once one of Patterns has matched.
	Then []string `json:"then,omitempty"`
	// Unless are words of lines that are about something else, such as an evaluation, in lower case; eval* stands for all that begin
	// so.
	Unless []string `json:"unless,omitempty"`
	// Samples are lines with what is read from them.
	Samples []Sample `json:"samples"`
}

// Sample is some lines of output in order, and the reading after the last of them; nil if there is none.
type Sample struct {
	Source  string   `json:"source,omitempty"` // where they were printed
	Lines   []string `json:"lines"`
	Reading *Reading `json:"reading"`
}
