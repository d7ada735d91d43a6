package apply

import (
	"errors"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// Event is an input of the Loop: one of the types below.
type Event interface{ event() }

// Woken: a provider or the service has news. Every turn looks at everything anyway.
type Woken struct{}

// Tick: time passes. Ready says when it is due.
type Tick struct{}

// FilesChanged: the configuration may have changed.
type FilesChanged struct{}

// Served has the service's address, and comes again when it changes.
type Served struct{ Service providers.Service }

// Asked is a request to read the files and plan at once. Its Answer has the same number.
type Asked struct {
	Request    int
	MaxDestroy *int // confirms once that this many slots are removed or replaced
}

// Forming is a world to record before any member learns of it. Recorded answers it. The job has the
// name that its agents know.
type Forming struct {
	Number   int
	Job, UID string
	World    job.World
}

// Reported says whether something outside the loop is well: a condition holds for as long as there is an error.
type Reported struct {
	About string
	Code  job.Code
	Err   error
}

// Interrupted: no change is to be begun any more.
type Interrupted struct{}

// LockLost: do nothing anymore.
type LockLost struct{ Err error }

// Worked says how long the Loop itself worked, and whether changes are queued. Without it the
// Loop assumes that it is infinitely fast.
type Worked struct {
	For    time.Duration
	Queued bool
}

// Outcome is how an effect ended.
type Outcome struct {
	Of     ID
	Result any // of the type that the effect documents; nil if none
	Err    error
}

func (Woken) event()        {}
func (Tick) event()         {}
func (FilesChanged) event() {}
func (Served) event()       {}
func (Asked) event()        {}
func (Forming) event()      {}
func (Reported) event()     {}
func (Interrupted) event()  {}
func (LockLost) event()     {}
func (Worked) event()       {}
func (Outcome) event()      {}

// ErrDropped is the outcome of an effect that was dropped before it started.
var ErrDropped = errors.New("dropped: no longer needed")
