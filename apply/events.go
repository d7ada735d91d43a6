package apply

import (
	"errors"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// Event is what the Loop is told: one of the types below.
type Event interface{ event() }

// Woken: a provider or the service has news. It says only that: every turn looks at all there is.
type Woken struct{}

// Tick: the time passes. It is due when Ready says.
type Tick struct{}

// FilesChanged: the configuration may have changed.
type FilesChanged struct{}

// Served says where the service is reached, and again when that has changed.
type Served struct{ Service providers.Service }

// Asked is a request to read the files and to plan at once. Its Answer has the same number.
type Asked struct {
	Request    int
	MaxDestroy *int // confirms, once, that so many slots are removed or replaced
}

// Forming is a world to be recorded before any of its members hears of it. It is answered by Recorded. The job has the
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

// LockLost: nothing may be done any more.
type LockLost struct{ Err error }

// Worked says how long the Loop itself was at work, and whether changes wait for others to be carried out. Without it the
// Loop takes itself for infinitely fast.
type Worked struct {
	For    time.Duration
	Queued bool
}

// Outcome is how an effect ended.
type Outcome struct {
	Of     ID
	Result any // as the effect says; nil if it has none
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

// ErrDropped is the outcome of an effect that was taken back before it began.
var ErrDropped = errors.New("dropped: no longer needed")
