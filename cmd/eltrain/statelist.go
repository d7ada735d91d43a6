package main

import (
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

type stateList struct {
	id        string
	selectors []job.Selector
}

func stateListCommand() *command {
	return lookCommand(command{
		name: "state list", usage: "[options] [ADDRESS...]",
		synopsis: "List what is in the state",
		about: `Lists the addresses of the jobs and slots in the state, one per line: all, or those that the ADDRESSes name.
ADDRESS is job.NAME, job.NAME.ROLE, job.NAME.ROLE[3], or a set: [0-3,7], [*].`,
	}, manyArguments, func() *stateList { return new(stateList) })
}

func (l *stateList) declare(fs *flags) {
	fs.StringVar(&l.id, "id", "", "Only jobs whose UID is `UID`, and their slots.")
}

func (l *stateList) take(_ *session, others []string) (err error) {
	l.selectors, err = selectors(others)
	return err
}

func (l *stateList) look(s *session, _ *workspace.Workspace, stored state.State) error {
	if err := checkKnown(stored, l.selectors); err != nil {
		return err
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(stored.Jobs)) {
		rec := stored.Jobs[name]
		if l.id != "" && rec.UID != l.id {
			continue
		}
		for _, address := range listed(name, rec, l.selectors) {
			b.WriteString(address + "\n")
		}
	}
	_, err := io.WriteString(s.streams.Out, b.String())
	return err
}

// listed returns the addresses in one job that the selectors match; all of them without a selector.
func listed(name string, rec *job.Record, sels []job.Selector) []string {
	if len(sels) == 0 {
		sels = []job.Selector{{Job: name}}
	}
	var out []string
	if slices.ContainsFunc(sels, func(sel job.Selector) bool { return sel.Job == name && sel.Role == "" }) {
		out = append(out, "job."+name)
	}
	for i := range rec.Slots {
		a := rec.Slots[i].Address
		if slices.ContainsFunc(sels, func(sel job.Selector) bool { return sel.Matches(a) }) {
			out = append(out, a.String())
		}
	}
	return out
}
