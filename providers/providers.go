// Package providers declares the interface of what carries a plan out: it starts, finds and stops incarnations on some
// infrastructure. Each provider is a package of its own. A provider reports facts and carries out changes; it never calls the
// planner and knows no policy.
package providers

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/eltrain/eltrain/job"
)

// Observation is what one provider saw at one moment: its nodes, and all incarnations of ours that run or have remains. It is
// immutable once returned: the same pointer means that nothing has changed.
type Observation struct {
	Nodes        []job.Node
	Incarnations job.Incarnations // Member is nil: the service sets it
	// Held are the jobs of which nothing may be launched yet, by UID, with the reason in the infrastructure's own words: for
	// example, their queue has not admitted them.
	Held map[string]string
	// Delayed are the jobs of which the creation of something is delayed, by UID, with its description and the infrastructure's
	// message, in words that stay the same while the delay lasts. Creation is being retried.
	Delayed map[string]string
	Places  Places // never nil
}

// Places says where slots can be placed, as of one observation. It is safe for concurrent use, and always gives the same answer
// for the same role.
type Places interface {
	// Fit says where slots of a role can be placed, and what they take there. The observation does not count what is in Extra
	// as foreign load.
	Fit(r *job.Role) job.Fit
}

// Anywhere allows every role on every node, without extra resources.
var Anywhere Places = anywhere{}

type anywhere struct{}

func (anywhere) Fit(*job.Role) job.Fit { return job.Fit{} }

// ErrNotPrepared is returned by Launch if the job has not been prepared, or something that Prepare created is missing since:
// prepare it, and launch again.
var ErrNotPrepared = errors.New("the job is not prepared")

// TransientError is a failure that may pass by itself: the infrastructure is overloaded, fails, or cannot be reached. The
// caller retries, and reports it only if it persists. The request may have been carried out.
type TransientError struct {
	Err  error
	Busy bool // the request was rejected for now, and not carried out
}

func (e *TransientError) Error() string { return e.Err.Error() }
func (e *TransientError) Unwrap() error { return e.Err }

// MayPass reports whether an error may pass by itself.
func MayPass(err error) bool {
	_, is := errors.AsType[*TransientError](err)
	return is
}

// Persists is how many such failures in a row are reported: they may not pass soon.
const Persists = 4

// Service is how agents reach the service.
type Service struct {
	URL string
	// Certificates are its CA certificates, in PEM; if empty, the agents use their systems'.
	Certificates []byte
}

// LogOptions say which part of a slot's output is read.
type LogOptions struct {
	Tail  int       // only the last lines; all if negative
	Since time.Time // only what was written from then on, with some seconds before it; all if zero
	// Before selects the newest incarnation before this one, of which any output is left; 0 is all incarnations.
	Before int
	// Own leaves out what an earlier job of the same name printed.
	Own bool
	// Follow, if not nil, also reads new output, until it is closed: what was written by then is still read.
	Follow <-chan struct{}
}

// Keeper is a provider that keeps the output of jobs that are gone.
type Keeper interface {
	// Kept returns the slots of a job of which output is left, with the last incarnation that wrote it.
	Kept(name string) ([]job.Slot, error)
}

// Command is what is run in a slot, beside its training processes.
type Command struct {
	Args []string
	// Agent runs the slot's agent program instead, with these arguments.
	Agent bool
	Stdin *os.File // nil for no input
	// Stdout and Stderr get the output. With a terminal all of it goes to Stdout.
	Stdout, Stderr *os.File
	// Sizes, if not nil, gives the command a terminal of its own, with these sizes, one after the other.
	Sizes <-chan TerminalSize
	Term  string // the kind of terminal, as in TERM
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct{ Columns, Lines uint16 }

// ErrNotRunning is returned by Exec if the incarnation does not run.
var ErrNotRunning = errors.New("no agent runs in the slot")

// Executor is a provider that runs commands in slots.
type Executor interface {
	// Exec runs a command in the environment, the directory and the limits of an incarnation's training processes, and returns
	// its exit code, as shells report it, when it has ended. If it could not be started, or no training process runs, it says so
	// on Stderr, and returns a code other than 0. When ctx ends, the command is ended. It may leave a goroutine that reads Stdin
	// until its next byte.
	Exec(ctx context.Context, uid string, slot job.Address, incarnation int, c Command) (code int, err error)
}

// Provider is one infrastructure. Every method is safe for concurrent use, and methods that wait respect their context.
// Publish, Prepare, Launch, Stop and Forget do not retry: an error that may pass by itself is a TransientError, and after any
// error the whole call can be repeated. Errors of Launch and Stop do not name the slot; the caller does, so that an error
// common to many slots can be reported once. Implementations pass providertest.Run.
type Provider interface {
	Capabilities() job.Capabilities

	// Observe lists everything. While nothing changes it returns the same observation. An error means that nothing is known,
	// never that nothing runs.
	Observe(ctx context.Context) (*Observation, error)

	// Changes receives a value whenever the result of Observe may have changed. Values coalesce.
	Changes() <-chan struct{}

	// Publish tells agents, running and future ones, the service's current address.
	Publish(ctx context.Context, s Service) error

	// Prepare creates what a job needs in addition to its slots, or updates it to the group, and returns the job's bearer
	// token. It is idempotent: the same UID gives the same token.
	Prepare(ctx context.Context, g job.Group) (token string, err error)

	// Launch starts one incarnation. It is idempotent by (UID, slot, incarnation): for an incarnation that was started, a
	// second call starts nothing, even if it has ended since, but repairs what Drift showed. It returns once the start is under
	// way; Observe shows the result. Older incarnations of the slot must be stopped before.
	Launch(ctx context.Context, l job.Launch) error

	// Stop stops one incarnation and everything that it started: gracefully first, by force after grace. It returns nil once
	// nothing of it runs, or if nothing did. Without a grace the incarnation is given up: where its exit cannot be observed, as
	// on a silent node, Stop returns once the stop is ordered permanently, and the incarnation's number fences what may still
	// run.
	Stop(ctx context.Context, uid string, slot job.Address, incarnation int, grace time.Duration) error

	// Logs reads the output of a slot, of all its incarnations unless the options say otherwise, until the context ends. If none
	// is left of an incarnation before o.Before, the error is fs.ErrNotExist.
	Logs(ctx context.Context, uid string, slot job.Address, o LogOptions) (io.ReadCloser, error)

	// Forget removes what is kept for a job of which nothing runs: token, records, directories. Logs and checkpoints stay.
	Forget(ctx context.Context, uid, name string) error

	// Close releases what the provider holds in this process. What it launched keeps running.
	Close() error
}
