package view

import (
	"fmt"
	"strings"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// RoleSize is the number of slots of an elastic role that differs from the declared one, or changes. See plan.Size.
type RoleSize struct {
	Address  string   `json:"address"`
	Replicas int      `json:"replicas"` // as declared: the initial number
	Before   int      `json:"before"`
	Now      int      `json:"now"`
	Min      int      `json:"min"`
	Max      int      `json:"max"`
	Reasons  []string `json:"reasons,omitempty"` // why it is made smaller

	ReasonCodes []job.Reason `json:"reason_codes,omitempty"` // the same in codes; see docs/reasons.md
}

func roleSize(s *plan.Size, r *Redactor) RoleSize {
	return RoleSize{"job." + s.Job + "." + s.Role, s.Replicas, s.Before, s.Now, s.Min, s.Max, r.Sentences(s.Reasons), r.Reasons(s.Reasons)}
}

func (b *planBuilder) sizes() []RoleSize {
	var out []RoleSize
	for i := range b.facts.Plan.Sizes {
		out = append(out, roleSize(&b.facts.Plan.Sizes[i], b.redactor))
	}
	return out
}

// decides reports whether the role is made larger or smaller.
func (s *RoleSize) decides() bool { return s.Before != s.Now }

// sentence returns the size as text: that an edit of the replicas changes nothing, and what does, or what the plan decided.
func (s *RoleSize) sentence() string {
	if !s.decides() {
		other := "For fewer, lower scaling.max."
		if s.Now < s.Replicas {
			other = "It grows when there is room; for more in any case, raise scaling.min."
		}
		return fmt.Sprintf("%s: %s, scaled within %d..%d. replicas = %d is only where it starts, and does not change it now. %s",
			s.Address, plural(s.Now, "slot"), s.Min, s.Max, s.Replicas, other)
	}
	text := fmt.Sprintf("%s: scaled within %d..%d: %d -> %s", s.Address, s.Min, s.Max, s.Before, plural(s.Now, "slot"))
	if len(s.Reasons) > 0 {
		text += ": " + strings.Join(s.Reasons, "; ")
	}
	return text
}

// kept returns the sizes that stay as scaling set them, as text.
func (m *PlanModel) kept() []string {
	var out []string
	for i := range m.Eltrain.Sizes {
		if s := &m.Eltrain.Sizes[i]; !s.decides() {
			out = append(out, s.sentence())
		}
	}
	return out
}

// FailedJob is a declared job that has failed.
type FailedJob struct {
	Address string `json:"address"`
	Reason  string `json:"reason,omitempty"` // its last incident

	ReasonCode *job.Reason `json:"reason_code,omitempty"` // the same in a code; see docs/reasons.md
	// Verdict is why it was not healed, VerdictCode the same in a code.
	Verdict     string      `json:"verdict,omitempty"`
	VerdictCode *job.Reason `json:"verdict_code,omitempty"`
	// Anew: the plan starts it again, as a new job. A watch does not do that by itself.
	Anew bool `json:"starts_anew"`
}

// failed returns the declared jobs that have failed, in the order of the files.
func (b *planBuilder) failed() []FailedJob {
	var out []FailedJob
	for i := range b.facts.Input.Jobs {
		name := b.facts.Input.Jobs[i].Name
		before, next := b.facts.Input.Records[name], b.facts.Plan.Records[name]
		var failed *job.Record
		for _, rec := range []*job.Record{before, next} { // the failure may be found only by this plan
			if rec != nil && rec.Phase == job.JobFailed {
				failed = rec
			}
		}
		if failed != nil {
			f := FailedJob{Address: "job." + name, Anew: next != nil && next.UID != failed.UID}
			if why := failure(failed); !why.IsZero() {
				why = why.Map(b.redactor.Text)
				f.Reason, f.ReasonCode = failureText(why, each(why.Of)), &why
			}
			f.Verdict, f.VerdictCode = b.verdict(failed)
			out = append(out, f)
		}
	}
	return out
}

// ended lists the jobs in scope that have ended otherwise, and are not started again.
func (b *planBuilder) ended() (out []EndedJob) {
	in := &b.facts.Input
	for i := range in.Jobs {
		name := in.Jobs[i].Name
		if rec := b.facts.Plan.Records[name]; rec != nil && endedAs[rec.Phase] != "" && in.Scope.Touches(name) && !in.Refresh {
			e := EndedJob{Address: "job." + name, Phase: rec.Phase, At: rec.Ended}
			e.Verdict, e.VerdictCode = b.verdict(rec)
			out = append(out, e)
		}
	}
	return out
}

// verdict returns a job's verdict as text and in a code.
func (b *planBuilder) verdict(rec *job.Record) (string, *job.Reason) {
	why := verdict(rec)
	if why.IsZero() {
		return "", nil
	}
	why = why.Map(b.redactor.Text)
	return Sentence(why), &why
}

// leftFailed returns the jobs that have failed and are not started again.
func (m *PlanModel) leftFailed() []string {
	var out []string
	for _, f := range m.Eltrain.Failed {
		if !f.Anew {
			out = append(out, f.Address)
		}
	}
	return out
}

// sentences say that a job has failed, and what happens to it.
func (f *FailedJob) sentences() []string {
	first := "It failed."
	if f.Reason != "" {
		first = "It failed: " + strings.TrimSuffix(f.Reason, ".") + "."
	}
	if f.Verdict != "" {
		first += " " + strings.TrimSuffix(f.Verdict, ".") + "."
	}
	if f.Anew {
		return []string{first, "This plan starts it again, as a new job with a new restart budget."}
	}
	return []string{first, "It stays failed: eltrain restart " + f.Address + " starts it again, and so does the next eltrain apply if there is room."}
}
