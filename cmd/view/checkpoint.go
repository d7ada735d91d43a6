package view

import (
	"path"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// CheckpointStatus is the newest whole checkpoint in a job's checkpoint directory. What is not known is left out.
type CheckpointStatus struct {
	Path       string    `json:"path"` // beginning as checkpoint.dir does
	Layout     string    `json:"layout"`
	Step       int64     `json:"step,omitempty"`
	Size       int64     `json:"size_bytes,omitempty"`
	Written    time.Time `json:"written,omitzero"`
	AgeSeconds *float64  `json:"age_seconds,omitempty"`
}

// TornStatus is a checkpoint that is not whole.
type TornStatus struct {
	Path       string     `json:"path"`
	Step       int64      `json:"step,omitempty"`
	Reason     string     `json:"reason"`
	ReasonCode job.Reason `json:"reason_code"` // the same in a code; see docs/reasons.md
}

// Directory is what a job's members see in its checkpoint directory. That of rank 0 counts, which writes checkpoints, or marks them as
// whole, and looks most often; else the one in which something was written last: members need not share a directory.
type Directory struct {
	Member *job.Member // nil if none has reported what it sees

	first bool
}

// Add takes what a member sees; first if it has rank 0.
func (d *Directory) Add(m *job.Member, first bool) {
	if m.Checkpoint == nil || d.first && !first {
		return
	}
	if d.Member == nil || first || written(m).After(written(d.Member)) {
		d.Member, d.first = m, first
	}
}

func written(m *job.Member) time.Time {
	if m.Checkpoint.Newest == nil {
		return time.Time{}
	}
	return m.Checkpoint.Newest.Written
}

// Newest returns the newest whole checkpoint; nil if there is none, or that is not known.
func (d *Directory) Newest() *job.FoundCheckpoint {
	if d.Member == nil {
		return nil
	}
	return d.Member.Checkpoint.Newest
}

// checkpoints enters what is in the checkpoint directory. saved is the newest that the output has told of; what is in the directory is
// newer than what was told earlier, if the output is not read.
func (j *JobStatus) checkpoints(spec *job.Job, d *Directory, saved job.Saved, now time.Time, r *Redactor) {
	j.CheckpointStep = saved.Step
	if d.Member == nil || spec.Checkpoint == nil {
		return
	}
	in := func(name string) string { return r.Text(path.Join(spec.Checkpoint.Dir, name)) }
	if spec.Checkpoint.Pattern == "" {
		j.CheckpointStep = 0
	}
	if c := d.Newest(); c != nil {
		if spec.Checkpoint.Pattern == "" {
			j.CheckpointStep = c.Step
		}
		j.Checkpoint = &CheckpointStatus{Path: in(c.Path), Layout: c.Layout, Step: c.Step, Size: c.Size, Written: c.Written}
		if !now.IsZero() && !c.Written.IsZero() {
			age := max(0, now.Sub(c.Written).Seconds()) // clocks differ
			j.Checkpoint.AgeSeconds = &age
		}
	}
	for _, c := range d.Member.Checkpoint.Torn {
		c.Path = path.Join(spec.Checkpoint.Dir, c.Path)
		why := plan.Torn(&c).Map(r.Text)
		j.TornCheckpoints = append(j.TornCheckpoints, TornStatus{Path: r.Text(c.Path), Step: c.Step, Reason: Sentence(why), ReasonCode: why})
	}
}

// savedText returns the newest whole checkpoint as text: its step is told with the training's.
func savedText(j *JobStatus) string {
	c := j.Checkpoint
	if c == nil {
		return ""
	}
	text := printable(c.Path)
	if c.Step > 0 && c.Step != j.CheckpointStep {
		text += ", step " + itoa(int(c.Step))
	}
	if c.AgeSeconds != nil {
		text += ", " + short(time.Duration(min(*c.AgeSeconds, mostLeft)*float64(time.Second))) + " ago"
	}
	if c.Size > 0 {
		text += ", " + job.Bytes(c.Size).Approx()
	}
	return text
}

// torn says why a checkpoint is not whole.
func torn(r job.Reason, _ []string) string {
	why := map[job.FlawCode]string{
		job.Empty:      "it is empty",
		job.Cut:        "${file} ends too early",
		job.Unmarked:   "${file}, which is written last, is missing",
		job.Marked:     "${file} is still there",
		job.NotNamed:   "${file} names an earlier one",
		job.Unfinished: "its name is temporary",
		job.Changing:   "it is still being written",
		job.Unreadable: "it cannot be read",
	}[job.FlawCode(r.Args["flaw"])]
	if why == "" {
		why = "${flaw}" // of a newer version
	}
	return either("step", "the checkpoint ${path} of step ${step} is incomplete: "+why, "the checkpoint ${path} is incomplete: "+why)(r, nil)
}
