package job

// RankReport is what an agent reports of one training process: the one that the role's command starts for that local rank.
type RankReport struct {
	Progress *RankProgress `json:"progress,omitempty"` // nil if nothing was read of it
}

// RankProgress is how far one training process is in the world that it runs or last ran in.
type RankProgress struct {
	By string `json:"by"` // what was recognized: a recognizer's name
	Reading
	FirstStep *int64  `json:"first_step,omitempty"` // the first that it showed
	StepRate  float64 `json:"step_rate,omitempty"`  // recent steps per second
	// StepAge is how long ago its step changed, in seconds, by the agent's clock when it reported.
	StepAge *float64 `json:"step_age_seconds,omitempty"`
}

// OwnPattern is the name in RankProgress.By of the pattern that a job declares.
const OwnPattern = "pattern"
