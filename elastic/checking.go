package elastic

import (
	"slices"

	"github.com/eltrain/eltrain/job"
)

// Checking is a member's side of the checks that its orders ask for: what was begun, and what was found. The work is its owner's.
type Checking struct {
	begun int   // the number of the newest that was begun
	open  bool  // it is still wanted
	runs  bool  // the node's own work has not ended
	set   int64 // of the newest exchange that was begun
	round int
	done  *job.Checked // the newest whose work has ended
}

// Done is what the newest check has found whose work has ended; nil if there is none. It is not changed.
func (k *Checking) Done() *job.Checked { return k.done }

// End reports whether the work in progress is to end, since something else is wanted; nil for nothing. It is begun anew if it is wanted again.
func (k *Checking) End(want *Check) bool {
	if !k.open || want != nil && want.Number == k.begun {
		return false
	}
	if k.runs {
		k.begun--
	}
	k.open, k.runs = false, false
	if k.done != nil { // its work still tells about the node, but nothing listens for partners
		done := *k.done
		done.Port, done.Exchanges = 0, nil
		k.done = &done
	}
	return true
}

// Begin reports whether the node's own work of a check that is wanted is to begin, or its exchange.
func (k *Checking) Begin(want *Check) (work, exchange bool) {
	switch {
	case want == nil:
	case want.Number > k.begun:
		*k = Checking{begun: want.Number, open: true, runs: true, done: k.done}
		return true, false
	case k.open && !k.runs && want.Pair != nil && (want.Pair.Set != k.set || want.Pair.Round > k.round):
		k.set, k.round = want.Pair.Set, want.Pair.Round
		return false, true
	}
	return false, false
}

// Worked takes the outcome of the node's own work, and reports whether it was awaited.
func (k *Checking) Worked(found job.Checked) bool {
	if !k.awaits(found.Number) {
		return false
	}
	k.runs, k.done = false, &found
	return true
}

// NotStarted says that the work could not begin, which says nothing about the node.
func (k *Checking) NotStarted(number int) bool {
	if !k.awaits(number) {
		return false
	}
	k.open, k.runs = false, false
	k.begun--
	return true
}

func (k *Checking) awaits(number int) bool { return k.runs && number == k.begun }

// Exchanged takes the outcome of an exchange, and reports whether it was awaited.
func (k *Checking) Exchanged(number int, x job.Exchanged) bool {
	if !k.open || k.done == nil || number != k.done.Number || x.Set != k.set {
		return false
	}
	done := *k.done
	others := func(o job.Exchanged) bool { return o.Set != x.Set }
	done.Exchanges = append(slices.DeleteFunc(slices.Clone(done.Exchanges), others), x)
	k.done = &done
	return true
}
