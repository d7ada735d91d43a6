package workspace

import (
	"context"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/lang"
)

// Lookout tells the facts of a directory, once or again and again. It ignores errors in the files, and reads them by a child
// process. It keeps the state and the providers open, and opens them anew after the files have changed.
type Lookout struct {
	directory *Directory
	child     *Child
	open      *Workspace // nil while it cannot be opened
	of        *Reading   // what it was opened with
	failed    error      // why it is not open
	again     time.Time  // when that is tried again
}

const (
	// readWithin bounds how long a lookout waits for the files.
	readWithin = 5 * time.Second
	// openAgain is how long a lookout waits before it reads and opens again what it could not.
	openAgain = 10 * time.Second
)

// OpenError is the error of a directory that cannot be opened.
type OpenError struct{ Why []view.Diagnostic }

func (e *OpenError) Error() string { return e.Why[0].Summary + ": " + e.Why[0].Detail }

// Lookout returns what looks at the directory with these variables. Close it at the end.
func (d *Directory) Lookout(vars []lang.Assignment) *Lookout {
	return &Lookout{directory: d, child: d.Child(vars)}
}

// Facts asks as Workspace.Facts does. If the files cannot be read within the limits, only a running master can tell: where the
// state is stored is unknown.
func (l *Lookout) Facts(ctx context.Context) (view.Facts, error) {
	l.update(ctx)
	if l.open != nil {
		return l.open.Facts(ctx)
	}
	if _, unopened := l.failed.(*OpenError); !unopened {
		if live, err := apply.Fetch(ctx, RunDirectory); err == nil {
			return FactsOf(live), nil
		}
	}
	return view.Facts{}, l.failed
}

// Nodes says what is known of nodes, as Facts does of jobs.
func (l *Lookout) Nodes(ctx context.Context) (apply.Nodes, error) {
	l.update(ctx)
	if l.open != nil {
		return l.open.Nodes(ctx)
	}
	if _, unopened := l.failed.(*OpenError); !unopened {
		if all, err := apply.FetchNodes(ctx, RunDirectory); err == nil {
			return all, nil
		}
	}
	return apply.Nodes{}, l.failed
}

// update opens the directory if it is not open, or if its files have changed since.
func (l *Lookout) update(ctx context.Context) {
	switch {
	case l.open != nil && apply.Fingerprint(l.of.Paths...) == l.of.Print:
		return
	case l.open == nil && time.Now().Before(l.again):
		return
	}
	l.Close()
	if l.failed = l.reopen(ctx); l.failed != nil {
		l.again = time.Now().Add(openAgain)
	}
}

func (l *Lookout) reopen(ctx context.Context) error {
	reading, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	r, err := l.child.Read(reading)
	if err != nil {
		return err
	}
	w, why := l.directory.Open(r.Config)
	if len(why) > 0 {
		return &OpenError{why}
	}
	if err := w.Connect(); err != nil {
		return &OpenError{problem("Cannot use a provider", err)}
	}
	l.open, l.of = w, r
	return nil
}

// Close closes what is open.
func (l *Lookout) Close() {
	if l.open != nil {
		l.open.Close()
		l.open = nil
	}
}
