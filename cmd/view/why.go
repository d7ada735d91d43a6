package view

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// ScalingStatus is what scaling policies decided about a role.
type ScalingStatus struct {
	Size   int  `json:"size"`             // what the role is to have, as far as there is room
	From   int  `json:"from"`             // what it was to have before
	To     int  `json:"to,omitempty"`     // what was decided; 0 if no policy proposes a size
	Most   int  `json:"most,omitempty"`   // what efficiency allows at most; 0 if that does not matter
	Asked  int  `json:"asked,omitempty"`  // what an operator asked for, which takes precedence
	Paused bool `json:"paused,omitempty"` // Asked is the size at which an operator has paused scaling
	DryRun bool `json:"dry_run,omitempty"`
	// Policies are what each proposes. Bounds are what made the decision differ from that, in order.
	Policies   []PolicyStatus `json:"policies"`
	Bounds     []string       `json:"bounds,omitempty"`
	BoundCodes []job.Reason   `json:"bound_codes,omitempty"` // the same in codes; see docs/reasons.md
	Next       *time.Time     `json:"next,omitempty"`        // when it changes even if no source says anything new
}

// PolicyStatus is what one policy proposes.
type PolicyStatus struct {
	Name        string       `json:"name"`
	Size        int          `json:"size,omitempty"`     // 0 if it proposes none
	Inactive    bool         `json:"inactive,omitempty"` // by its schedule
	At          *time.Time   `json:"at,omitempty"`       // of when its value is
	Reasons     []string     `json:"reasons"`            // what it follows from
	ReasonCodes []job.Reason `json:"reason_codes"`
}

func scalingStatus(s *plan.RoleScaling, r *Redactor) *ScalingStatus {
	out := &ScalingStatus{Size: s.Size, From: s.From, To: s.To, Most: s.Most, Asked: s.Asked, Paused: s.Paused, DryRun: s.DryRun, Policies: []PolicyStatus{},
		Bounds: r.Sentences(s.Bounds), BoundCodes: r.Reasons(s.Bounds)}
	if !s.Next.IsZero() {
		out.Next = &s.Next
	}
	for i := range s.Proposals {
		p := &s.Proposals[i]
		reasons := slices.DeleteFunc([]job.Reason{p.Reason, p.Held}, job.Reason.IsZero)
		one := PolicyStatus{Name: p.Policy, Size: p.Size, Inactive: p.Inactive, Reasons: r.Sentences(reasons), ReasonCodes: r.Reasons(reasons)}
		if !p.At.IsZero() {
			one.At = &p.At
		}
		out.Policies = append(out.Policies, one)
	}
	return out
}

// WhyModel says why jobs, roles and slots are as they are.
type WhyModel struct {
	FormatVersion string   `json:"format_version"`
	Roles         []WhyOne `json:"roles"`
}

// WhyFormat is the version of the JSON of WhyModel.
const WhyFormat = "1.0"

// WhyOne is why a role has the slots that it has.
type WhyOne struct {
	Address     string         `json:"address"`
	Phase       job.JobPhase   `json:"phase"` // of its job
	Desired     int            `json:"desired"`
	Running     int            `json:"running"`
	Min         int            `json:"min"`
	Max         int            `json:"max"`
	Scaling     *ScalingStatus `json:"scaling,omitempty"` // nil without policies
	Follows     string         `json:"follows,omitempty"` // the role that its count follows, as "role.worker"
	Reasons     []string       `json:"reasons"`           // why the job or the role is not as configured
	ReasonCodes []job.Reason   `json:"reason_codes"`
	Slots       []WhySlot      `json:"slots,omitempty"` // those that do not run, or had a fault
}

// WhySlot is why a slot is as it is.
type WhySlot struct {
	Address  string    `json:"address"`
	Phase    job.Phase `json:"phase"`
	Node     string    `json:"node,omitempty"`
	Restarts int       `json:"restarts,omitempty"`
	Cause    job.Cause `json:"cause,omitempty"` // of its last fault
}

// Why says why what a status shows is as it is.
func Why(m StatusModel) WhyModel {
	out := WhyModel{FormatVersion: WhyFormat, Roles: []WhyOne{}}
	for i := range m.Jobs {
		j := &m.Jobs[i]
		for _, r := range j.Roles {
			one := WhyOne{Address: j.Address + "." + r.Name, Phase: j.Phase, Desired: r.Desired, Running: r.Running, Min: r.Min, Max: r.Max, Scaling: r.Scaling, Follows: r.Follows, Reasons: []string{}, ReasonCodes: []job.Reason{}}
			for k, why := range j.ReasonCodes {
				if role := why.Args["role"]; role == "" || role == r.Name {
					one.Reasons, one.ReasonCodes = append(one.Reasons, j.Reasons[k]), append(one.ReasonCodes, why)
				}
			}
			for k := range j.Slots {
				s := &j.Slots[k]
				if s.slot.Role == r.Name && (s.Phase != job.Running || s.Cause != "") {
					one.Slots = append(one.Slots, WhySlot{s.Address, s.Phase, s.Node, s.Restarts, s.Cause})
				}
			}
			out.Roles = append(out.Roles, one)
		}
	}
	return out
}

// WriteWhy shows to a person why roles are as they are.
func WriteWhy(s Screen, m WhyModel) {
	var b bytes.Buffer
	for i := range m.Roles {
		if i > 0 {
			b.WriteString("\n")
		}
		s.why(&b, &m.Roles[i])
	}
	if len(m.Roles) == 0 {
		b.WriteString("No jobs.\n")
	}
	s.Write(b.Bytes())
}

func (s Screen) why(b *bytes.Buffer, r *WhyOne) {
	bounds := fmt.Sprintf("%d..%d", r.Min, r.Max)
	if r.Min == r.Max {
		bounds = "fixed"
	}
	fmt.Fprintf(b, "%s  %s, %s, %d running (%s)\n", s.paint(r.Address, bold), r.Phase, plural(r.Desired, "slot"), r.Running, bounds)
	switch {
	case r.Scaling != nil:
		s.scaling(b, r.Scaling)
	case r.Follows != "":
		b.WriteString("\n  Its replicas follow " + r.Follows + ".\n")
	case r.Phase.Idle() || r.Min == r.Max:
	case r.Desired < r.Max:
		b.WriteString("\n  It has no scaling policies: it grows as soon as there is room.\n")
	default:
		b.WriteString("\n  It has no scaling policies, and all slots that it may have.\n")
	}
	for i, text := range r.Reasons {
		if i == 0 {
			b.WriteString("\n")
		}
		s.because(b, r.Phase, text)
	}
	if len(r.Slots) == 0 {
		return
	}
	rows := [][]string{{"SLOT", "PHASE", "NODE", "RESTARTS", "LAST FAULT"}}
	for _, slot := range r.Slots {
		if len(rows) > maxSlotLines {
			rows = append(rows, []string{"…", fmt.Sprintf("and %d more", len(r.Slots)-maxSlotLines)})
			break
		}
		rows = append(rows, []string{slot.Address, string(slot.Phase), dash(slot.Node), orDash(slot.Restarts, 0), dash(string(slot.Cause))})
	}
	b.WriteString("\n")
	for _, line := range aligned(rows) {
		b.WriteString("  " + line + "\n")
	}
}

// scaling shows what each policy proposes, and what became of it.
func (s Screen) scaling(b *bytes.Buffer, d *ScalingStatus) {
	rows := [][]string{{"POLICY", "PROPOSES", "AT", "BECAUSE"}}
	for _, p := range d.Policies {
		size, at := orDash(p.Size, 0), "-"
		if p.Inactive {
			size = "inactive"
		}
		if p.At != nil {
			at = clock(*p.At)
		}
		rows = append(rows, []string{p.Name, size, at, dash(strings.Join(p.Reasons, "; "))})
	}
	b.WriteString("\n")
	if len(d.Policies) > 0 {
		for _, line := range aligned(rows) {
			b.WriteString("  " + line + "\n")
		}
		b.WriteString("\n")
	}
	b.WriteString("  " + d.decided())
	for _, text := range d.Bounds {
		b.WriteString("\n    - " + text)
	}
	b.WriteString("\n")
	if d.Next != nil {
		b.WriteString("  Without new values it is decided again at " + clock(*d.Next) + ".\n")
	}
}

// decided is what was decided, as a sentence.
func (d *ScalingStatus) decided() string {
	text := ""
	switch {
	case d.Paused:
		return fmt.Sprintf("An operator paused scaling at %s: policies only tell what they propose.", plural(d.Asked, "slot"))
	case d.Asked > 0:
		return fmt.Sprintf("An operator asked for %s: policies only tell what they propose.", plural(d.Asked, "slot"))
	case d.To == 0 && d.Most > 0:
		text = fmt.Sprintf("As many slots as there is room for, and at most %d.", d.Most)
	case d.To == 0:
		text = "As many slots as there is room for."
	case d.To == d.From:
		text = "The size stays " + strconv.Itoa(d.To) + "."
	default:
		text = fmt.Sprintf("From %d to %s.", d.From, plural(d.To, "slot"))
	}
	switch {
	case d.DryRun:
		text = "It only tells (dry_run): " + text
	case d.To > d.Size:
		text += fmt.Sprintf(" There is room for %d.", d.Size)
	}
	return text
}
