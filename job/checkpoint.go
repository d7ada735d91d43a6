package job

import "time"

// FoundCheckpoint is a checkpoint in a job's checkpoint directory, as an agent finds it.
type FoundCheckpoint struct {
	Path   string `json:"path"`
	Layout string `json:"layout"`         // which framework's it looks like: the name of a checkpoint.Layout
	Step   int64  `json:"step,omitempty"` // 0 if that is unknown
	Size   int64  `json:"size_bytes,omitempty"`
	// Written is when the newest of its files was written, by the clock of the file system.
	Written time.Time `json:"written,omitzero"`
	// Flaw is why it is not whole.
	Flaw Flaw `json:"flaw,omitzero"`
}

// Whole reports whether training can resume from it.
func (c *FoundCheckpoint) Whole() bool { return c.Flaw == Flaw{} }

// Flaw is why a checkpoint is not whole. The zero value says that it is.
type Flaw struct {
	Code FlawCode `json:"code"`
	File string   `json:"file,omitempty"` // the file that tells
}

// FlawCode is a kind of flaw.
type FlawCode string

// The kinds of flaws.
const (
	Empty      FlawCode = "empty"      // it has no data
	Cut        FlawCode = "cut"        // File ends before its data does
	Unmarked   FlawCode = "unmarked"   // File, which is written last, is missing
	Marked     FlawCode = "marked"     // File says that it is not complete
	NotNamed   FlawCode = "not_named"  // File names an earlier one as the newest
	Unfinished FlawCode = "unfinished" // its name says that it is temporary
	Changing   FlawCode = "changing"   // it has just changed, and has no other mark of being complete
	Unreadable FlawCode = "unreadable" // the system refuses to read it
)

// CheckpointSight is what an agent sees in its checkpoint directory.
type CheckpointSight struct {
	Newest *FoundCheckpoint `json:"newest,omitempty"` // of those that are whole
	// Torn are the incomplete ones that are not being written, the newest first, at most MaxTorn.
	Torn []FoundCheckpoint `json:"torn,omitempty"`
}

// MaxTorn bounds how many torn checkpoints are reported.
const MaxTorn = 4

// Same reports whether two sights are equal.
func (s *CheckpointSight) Same(other *CheckpointSight) bool {
	if s == nil || other == nil {
		return s == other
	}
	if (s.Newest == nil) != (other.Newest == nil) || s.Newest != nil && !s.Newest.same(other.Newest) || len(s.Torn) != len(other.Torn) {
		return false
	}
	for i := range s.Torn {
		if !s.Torn[i].same(&other.Torn[i]) {
			return false
		}
	}
	return true
}

func (c *FoundCheckpoint) same(other *FoundCheckpoint) bool {
	a, b := *c, *other
	a.Written, b.Written = time.Time{}, time.Time{}
	return a == b && c.Written.Equal(other.Written)
}
