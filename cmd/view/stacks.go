package view

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/eltrain/eltrain/job"
)

// StacksFormat is the version of the JSON of stacks. A new minor version only adds fields.
const StacksFormat = "1.0"

// StacksModel is what the threads of training processes do.
type StacksModel struct {
	FormatVersion string        `json:"format_version"`
	Slots         []SlotStacks  `json:"slots"`
	Unreachable   []Unreachable `json:"unreachable"`
}

// SlotStacks are the processes of one slot.
type SlotStacks struct {
	Slot      job.Address         `json:"slot"`
	Processes []job.ProcessStacks `json:"processes"`
}

// Unreachable is a slot without stacks.
type Unreachable struct {
	Slot job.Address `json:"slot"`
	Why  string      `json:"why"`
}

// NewStacks returns stacks in the order of slots and ranks, without sensitive values.
func NewStacks(slots []SlotStacks, unreachable []Unreachable, r *Redactor) StacksModel {
	m := StacksModel{FormatVersion: StacksFormat, Slots: []SlotStacks{}, Unreachable: []Unreachable{}}
	for _, s := range slots {
		one := SlotStacks{Slot: s.Slot, Processes: []job.ProcessStacks{}}
		for _, p := range s.Processes {
			p.Name, p.Failed = r.Text(p.Name), r.Texts(p.Failed)
			threads := []job.ThreadStack{}
			for _, t := range p.Threads {
				t.Name, t.Frames = r.Text(t.Name), r.Texts(t.Frames)
				threads = append(threads, t)
			}
			p.Threads = threads
			one.Processes = append(one.Processes, p)
		}
		slices.SortStableFunc(one.Processes, func(a, b job.ProcessStacks) int { return cmp.Compare(a.LocalRank, b.LocalRank) })
		m.Slots = append(m.Slots, one)
	}
	for _, u := range unreachable {
		u.Why = r.Text(u.Why)
		m.Unreachable = append(m.Unreachable, u)
	}
	slices.SortFunc(m.Slots, func(a, b SlotStacks) int { return a.Slot.Compare(b.Slot) })
	slices.SortFunc(m.Unreachable, func(a, b Unreachable) int { return a.Slot.Compare(b.Slot) })
	return m
}

// WriteStacks prints stacks. Processes of a job with equal ones are folded, and so are equal threads of a process.
func WriteStacks(s Screen, m StacksModel) error {
	var b bytes.Buffer
	groups := foldStacks(m.Slots)
	for i, g := range groups {
		if i == 0 || groups[i-1].job != g.job {
			fmt.Fprintf(&b, "%s\n", printable("job."+g.job))
		}
		fmt.Fprintf(&b, "\n  %s: %s\n%s", g.who(), g.what, g.text)
	}
	for _, line := range foldUnreachable(m.Unreachable) {
		fmt.Fprintf(&b, "\n%s\n", line)
	}
	_, err := s.Write(b.Bytes())
	return err
}

// stackGroup are processes of one job with equal stacks.
type stackGroup struct {
	job, what, text string
	ranks           []int            // training processes with ranks, or what they started
	slots           map[string][]int // by role, of those without
}

// who names the processes.
func (g *stackGroup) who() string {
	var who []string
	if len(g.ranks) > 0 {
		list := strings.Trim(job.Fold("", g.ranks), "[]")
		noun := "rank "
		if strings.ContainsAny(list, "-,") {
			noun = "ranks "
		}
		who = append(who, noun+list)
	}
	var roles []string
	for role := range g.slots {
		roles = append(roles, role)
	}
	slices.Sort(roles)
	for _, role := range roles {
		who = append(who, job.Fold(role, g.slots[role]))
	}
	return strings.Join(who, ", ")
}

func foldStacks(slots []SlotStacks) []*stackGroup {
	var groups []*stackGroup
	for _, s := range slots {
		for _, p := range s.Processes {
			what, text := whatRuns(p), stackText(p)
			at := slices.IndexFunc(groups, func(g *stackGroup) bool { return g.job == s.Slot.Job && g.what == what && g.text == text })
			if at < 0 {
				at = len(groups)
				groups = append(groups, &stackGroup{job: s.Slot.Job, what: what, text: text, slots: map[string][]int{}})
			}
			if g := groups[at]; p.Rank >= 0 {
				g.ranks = append(g.ranks, p.Rank)
			} else {
				g.slots[s.Slot.Role] = append(g.slots[s.Slot.Role], s.Slot.Index)
			}
		}
	}
	slices.SortStableFunc(groups, func(a, b *stackGroup) int { return cmp.Compare(a.job, b.job) })
	return groups
}

// whatRuns names the program of a process, and how its stacks were read.
func whatRuns(p job.ProcessStacks) string {
	what := printable(p.Name)
	if p.Child {
		what += ", a child"
	}
	switch p.Source {
	case job.StacksPySpy, job.StacksFaulthandler:
		what += ", by " + string(p.Source)
	case job.StacksKernel:
		what += ", as the kernel sees it"
	}
	for _, why := range p.Failed {
		what += "; " + printable(why)
	}
	return what
}

// threadNumber is what tells the threads of a pool apart, and differs between ranks: Thread-3 (loader), worker-12.
var threadNumber = regexp.MustCompile(`-\d+\b`)

// stackText is the threads of a process, the main one first and equal ones folded.
func stackText(p job.ProcessStacks) string {
	var texts []string
	count := map[string]int{}
	threads := slices.Clone(p.Threads)
	slices.SortStableFunc(threads, func(a, b job.ThreadStack) int {
		first := func(t job.ThreadStack) bool { return t.Name == "MainThread" } // as Python calls it
		switch {
		case first(a) == first(b):
			return 0
		case first(a):
			return -1
		}
		return 1
	})
	for _, t := range threads {
		head := []string{cmp.Or(printable(threadNumber.ReplaceAllString(t.Name, "")), "a thread")}
		for _, part := range []string{t.State, t.Waits} {
			if part != "" {
				head = append(head, printable(part))
			}
		}
		text := strings.Join(head, ", ") + "\n"
		for _, f := range t.Frames {
			text += "      " + printable(f) + "\n"
		}
		if count[text]++; count[text] == 1 {
			texts = append(texts, text)
		}
	}
	var b strings.Builder
	for _, text := range texts {
		b.WriteString("    ")
		if n := count[text]; n > 1 {
			fmt.Fprintf(&b, "%d x ", n)
		}
		b.WriteString(text)
	}
	return b.String()
}

// foldUnreachable are sentences on slots without stacks, one for each reason.
func foldUnreachable(all []Unreachable) []string {
	type group struct {
		job, role, why string
	}
	var order []group
	slots := map[group][]int{}
	for _, u := range all {
		g := group{u.Slot.Job, u.Slot.Role, u.Why}
		if slots[g] == nil {
			order = append(order, g)
		}
		slots[g] = append(slots[g], u.Slot.Index)
	}
	var lines []string
	for _, g := range order {
		lines = append(lines, fmt.Sprintf("job.%s.%s: %s", g.job, job.Fold(g.role, slots[g]), printable(g.why)))
	}
	return lines
}
