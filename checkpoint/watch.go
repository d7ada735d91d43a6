package checkpoint

import (
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
)

// quiet is how long an unfinished checkpoint stays unchanged before it counts as abandoned: network file systems show a change up to a
// minute late (acregmax of nfs(5)), and a writer may gather data between files.
const quiet = time.Minute

// longest bounds how long something is being written: what changes all the time is no checkpoint.
const longest = 30 * time.Minute

// Watch compares looks at a directory, and so knows what is being written. The zero value has seen nothing. Times are those of the
// caller's clock: the one of the file system may be another.
type Watch struct {
	looks  int
	newest *Checkpoint
	open   []open
}

// open is a checkpoint that is not whole.
type open struct {
	Checkpoint
	began   time.Time // when it was first seen to change; zero if it has not been
	changed time.Time // when it was last
}

// See takes the result of a look.
func (w *Watch) See(found []Checkpoint, now time.Time) {
	var next []open
	for _, c := range found {
		if c.Whole() {
			continue
		}
		o := open{Checkpoint: c}
		switch i := slices.IndexFunc(w.open, func(b open) bool { return b.Path == c.Path }); {
		case i < 0:
			if w.looks > 0 {
				o.began, o.changed = now, now
			}
		case w.open[i].Size != c.Size || !w.open[i].Written.Equal(c.Written) || w.open[i].Flaw != c.Flaw:
			o.began, o.changed = w.open[i].began, now
			if o.began.IsZero() {
				o.began = now
			}
		default:
			o.began, o.changed = w.open[i].began, w.open[i].changed
		}
		next = append(next, o)
	}
	w.open = next
	w.looks++
	w.newest = nil
	if c := Newest(found); c != nil {
		at := *c
		w.newest = &at
	}
}

// Saving reports whether a checkpoint is being written.
func (w *Watch) Saving(now time.Time) bool {
	return slices.ContainsFunc(w.open, func(o open) bool { return o.written(now) })
}

func (o *open) written(now time.Time) bool {
	return !o.changed.IsZero() && now.Sub(o.changed) < quiet && now.Sub(o.began) < longest
}

// Newest returns the newest whole checkpoint; nil if there is none.
func (w *Watch) Newest() *Checkpoint { return w.newest }

// Torn returns the incomplete ones that are not being written, the newest first, at most job.MaxTorn. One look cannot tell.
func (w *Watch) Torn(now time.Time) (torn []job.FoundCheckpoint) {
	if w.looks < 2 {
		return nil
	}
	for _, o := range w.open {
		if o.Layout != Temporary && o.Flaw.Code != job.Changing && !o.written(now) && len(torn) < job.MaxTorn {
			torn = append(torn, o.FoundCheckpoint)
		}
	}
	return torn
}
