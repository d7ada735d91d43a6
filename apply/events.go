package apply

import (
	"errors"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// Event is an input to the Loop: one of the types below.
type Event interface{ event() }

// Woken: a provider or the service has news. It does not say which, since every turn looks at everything.
type Woken struct{}

// Tick: time passes. Ready says when it is due.
type Tick struct{}

// FilesChanged: the configuration may have changed.
type FilesChanged struct{}

// Served has the service's address. It is sent again when the address changes.
type Served struct{ Service providers.Service }

// Triggered is a request to read the files and plan at once. Its Answer has the same number.
type Triggered struct {
	Request    int
	MaxDestroy *int // allows, once, that this many slots are removed or replaced; nil allows nothing extra
}

// Requested has all operators' requests without a final reply, in order. It is sent when they have changed.
type Requested struct{ Requests []job.Request }

// Forming is a world to record before any member learns of it, answered by Recorded. Job is the
// name that its agents know.
type Forming struct {
	Number   int
	Job, UID string
	World    job.World
}

// Reported raises a condition about something outside the Loop, or clears it if Err is nil.
type Reported struct {
	About string
	Code  job.Code
	Err   error
}

// Interrupted: start no more changes.
type Interrupted struct{}

// LockLost: end the run at once.
type LockLost struct{ Err error }

// Worked says how long the Loop took to process its events, and whether changes are queued. Without it the
// Loop assumes that it takes no time.
type Worked struct {
	For    time.Duration
	Queued bool
}

// Outcome is the result of an effect.
type Outcome struct {
	Of     ID
	Result any // of the type documented at the effect; nil if none
	Err    error
}

func (Woken) event()        {}
func (Tick) event()         {}
func (FilesChanged) event() {}
func (Served) event()       {}
func (Triggered) event()    {}
func (Requested) event()    {}
func (Forming) event()      {}
func (Reported) event()     {}
func (Interrupted) event()  {}
func (LockLost) event()     {}
func (Worked) event()       {}
func (Outcome) event()      {}

// ErrDropped is the outcome of an effect that was dropped before it started.
var ErrDropped = errors.New("dropped: no longer needed")
