// Package providers declares what carries a plan out: starting, finding and ending incarnations on some
// infrastructure. Each provider is a package of its own. A provider reports facts and carries out; it
// never asks the planner for anything and knows no policy.
package providers

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/eltrain/eltrain/job"
)

// Observation is what one provider saw at one moment: its nodes, and every incarnation of ours that runs or whose remains
// are still there. It is a value that nobody changes once it was given out: the same pointer again says that nothing has
// changed.
type Observation struct {
	Nodes        []job.Node
	Incarnations []job.Incarnation // Member is nil: that part is the service's to say
	// Held are the jobs of which nothing may be launched yet, by UID, with the reason in the infrastructure's own
	// words: their queue has not admitted them.
	Held map[string]string
	// Delayed are the jobs of which something is being created and is delayed, by UID, with what it is and what the
	// infrastructure says of it, in words that stay the same as long as it is so. It is tried on.
	Delayed map[string]string
	Places  Places // never nil
}

// Places says where slots can be, as of one observation. It is safe for concurrent use, and for the same role it always
// says the same.
type Places interface {
	// Fit says where slots of a role can be, and what they take there. What Extra counts is no load of others in the
	// observation.
	Fit(r *job.Role) job.Fit
}

// Anywhere is where every node takes every role, which takes no more than it reserves.
var Anywhere Places = anywhere{}

type anywhere struct{}

func (anywhere) Fit(*job.Role) job.Fit { return job.Fit{} }

// ErrNotPrepared is why a Launch fails whose job has not been prepared, or of which something is missing since that
// Prepare makes: it is to be prepared, and launched then.
var ErrNotPrepared = errors.New("the job is not prepared")

// TransientError is a failure that says nothing of what was asked for, and may pass by itself: the infrastructure has too
// much to do, fails, or cannot be reached. Whoever asked asks again, and tells nobody until it persists. What was asked for
// may have been done.
type TransientError struct {
	Err  error
	Busy bool // it was turned away for now, and not done
}

func (e *TransientError) Error() string { return e.Err.Error() }
func (e *TransientError) Unwrap() error { return e.Err }

// MayPass reports whether an error may pass by itself.
func MayPass(err error) bool {
	_, is := errors.AsType[*TransientError](err)
	return is
}

// Persists is how many such failures in a row are told: what fails as often may not pass soon.
const Persists = 4

// Service is how agents reach the service.
type Service struct {
	URL string
	// Certificates, in PEM, vouch for it where its URL is https; empty leaves that to the agents' systems.
	Certificates []byte
}

// Provider is one infrastructure. Every method is safe for concurrent use. Methods that wait obey their
// context. Publish, Prepare, Launch, Stop and Forget are not retried in here: an error that may pass by itself is a
// TransientError, and after any error the whole call can be repeated. Errors of Launch and Stop leave it to their caller to
// name the slot: what many slots hear in common can then be reported once. Implementations pass providertest.Run.
type Provider interface {
	Capabilities() job.Capabilities

	// Observe lists everything. While nothing changes it returns the same observation. An error means that nothing is known:
	// it never stands for "nothing runs".
	Observe(ctx context.Context) (*Observation, error)

	// Changes gets a value whenever Observe may answer otherwise than before. Values coalesce.
	Changes() <-chan struct{}

	// Publish tells agents, those that run and those to come, where the service is now.
	Publish(ctx context.Context, s Service) error

	// Prepare makes what a job needs beside its slots, or brings it up to date with the group, and returns the
	// job's bearer token. It is idempotent: the same UID gives the same token.
	Prepare(ctx context.Context, g job.Group) (token string, err error)

	// Launch starts one incarnation. It is idempotent by (UID, slot, incarnation): once it was started, a
	// second call starts nothing, even when it has ended since; it repairs what Drift showed. It returns when the
	// start is under way; what happens to it is for Observe. Older incarnations of the slot are to be stopped before.
	Launch(ctx context.Context, l job.Launch) error

	// Stop ends one incarnation and everything that it started: politely first, by force after grace. It
	// returns nil once nothing of it runs, also when nothing did. Without a grace it is given up: where its end
	// cannot be known, as on a node that is silent, Stop returns once the end is ordered permanently, and what may
	// still run is fenced by its number.
	Stop(ctx context.Context, uid string, slot job.Address, incarnation int, grace time.Duration) error

	// Logs reads the output of a slot, all its incarnations: the last tail lines (all if negative), and on
	// and on as they come if follow is set, until the context ends.
	Logs(ctx context.Context, uid string, slot job.Address, tail int, follow bool) (io.ReadCloser, error)

	// Forget removes what is kept for a job of which nothing runs: token, records, directories.
	// Logs and checkpoints stay.
	Forget(ctx context.Context, uid, name string) error

	// Close releases what the provider holds in this process. What it launched keeps running.
	Close() error
}
