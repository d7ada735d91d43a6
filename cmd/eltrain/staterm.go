package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

type stateRm struct {
	dryRun    bool
	selectors []job.Selector
	gone      job.Forgotten
	uids      map[string]string // UIDs of the removed jobs that had not ended, by name
}

func stateRmCommand() *command {
	return editCommand(command{
		name: "state rm", usage: "[options] ADDRESS...",
		synopsis: "Forget jobs or slots without stopping them",
		about: `Removes what the ADDRESSes name from the state. Its processes keep running, but nothing heals, scales or stops
a forgotten job. If it is still declared, the next plan creates it again beside the running one. A removed block with
destroy = false does the same with the next apply. A running slot whose job stays in the state is found again by the
next plan, without its history.

ADDRESS is job.NAME, job.NAME.ROLE, job.NAME.ROLE[3], or a set: [0-3,7], [*].`,
	}, manyArguments, func() *stateRm { return new(stateRm) })
}

func (r *stateRm) declare(fs *flags) {
	fs.BoolVar(&r.dryRun, "dry-run", false, "Only show what would change.")
}

func (r *stateRm) take(_ *session, others []string) (err error) {
	if len(others) == 0 {
		return errors.New("an address is missing: write job.NAME, job.NAME.ROLE or job.NAME.ROLE[3]")
	}
	r.selectors, err = selectors(others)
	return err
}

func (r *stateRm) edit(stored state.State) (state.State, error) {
	if err := checkKnown(stored, r.selectors); err != nil {
		return stored, err
	}
	var next state.State
	if next, r.gone = stored.Forget(r.selectors); r.dryRun {
		return stored, nil
	}
	r.uids = map[string]string{}
	for _, name := range r.gone.Jobs {
		if rec := stored.Jobs[name]; !rec.Phase.Ended() {
			r.uids[name] = rec.UID
		}
	}
	return next, nil
}

// recoveryHint says how to recover removed jobs that may still run, with their UIDs, which are recorded nowhere else.
func (r *stateRm) recoveryHint() string {
	if len(r.uids) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\nTo manage what keeps running again, declare its job and apply:\n\n")
	for _, name := range slices.Sorted(maps.Keys(r.uids)) {
		fmt.Fprintf(&b, "  import {\n    to = job.%s\n    id = %q\n  }\n\n", name, r.uids[name])
	}
	return b.String()
}

func (r *stateRm) tell(s *session) {
	verb := "Removed"
	if r.dryRun {
		verb = "Would remove"
	}
	var b strings.Builder
	for _, name := range r.gone.Jobs {
		fmt.Fprintf(&b, "%s job.%s\n", verb, name)
	}
	for _, a := range r.gone.Slots {
		fmt.Fprintf(&b, "%s %s\n", verb, a)
	}
	if !r.dryRun {
		b.WriteString(r.recoveryHint())
		fmt.Fprintf(&b, "Successfully removed %d object(s) from the state. What is running keeps running.\n", len(r.gone.Jobs)+len(r.gone.Slots))
	}
	io.WriteString(s.streams.Out, b.String())
}
