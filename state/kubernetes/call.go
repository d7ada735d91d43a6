package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// patience bounds the tries of one read or write where its context does not: an API server that is restarted
// is back by then. A master whose state cannot be written for longer says so, and keeps trying.
const patience = 20 * time.Second

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, patience, fmt.Errorf("the API server did not answer within %v", patience))
}

// requestTimeout bounds one request: on a connection that hangs there is time for another try.
const requestTimeout = patience / 2

// again is how a request is repeated: at once, and ever slower up to once a second.
func again() wait.Backoff {
	return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6, Cap: time.Second}
}

// ForbiddenError says which right is missing.
type ForbiddenError struct {
	Verb, Resource, Namespace, Name string

	cause error
}

func (e *ForbiddenError) Error() string {
	what := e.Resource
	if e.Name != "" {
		what += " " + e.Name
	}
	return fmt.Sprintf("missing permission to %s %s in namespace %s: grant it to this user or ServiceAccount with a Role, as in deploy/base/rbac.yaml (%v)", e.Verb, what, e.Namespace, e.cause)
}

func (e *ForbiddenError) Unwrap() error { return e.cause }

// onlyForbidden keeps the errors that do not pass by themselves.
func onlyForbidden(err error) error {
	if errors.As(err, new(*ForbiddenError)) {
		return err
	}
	return nil
}

// settled is for how long a refusal is not believed: an API server that has just started knows no roles yet and
// refuses everybody, here for less than a second, and a new RoleBinding takes as long to be heard of.
const settled = 3 * time.Second

// call makes a request until it is done, refused permanently, or ctx ends. A request that is made again may have
// been carried out the first time: the callers know by what they find. A refusal stands from the first of a row: one
// after an API server that could not be reached is of one that has just started.
func (s *Store) call(ctx context.Context, verb, resource, name string, request func(context.Context) error) error {
	backoff := again()
	var since time.Time // of the first refusal in a row
	var said error      // the API server's last answer
	for {
		err := attempt(ctx, request)
		if err == nil {
			return nil
		}
		refused := apierrors.IsUnauthorized(err) || forbidden(verb, err)
		switch answered := errors.As(err, new(apierrors.APIStatus)); {
		case refused: // of what comes after it did not stand, and is told in words alone: nobody is to act on it
			said = errors.New(err.Error())
		case answered:
			said = err
		case ctx.Err() != nil && said != nil:
			err = said // that the time is up says less, and is said beside
		}
		if !refused {
			since = time.Time{}
		} else if since.IsZero() {
			since = time.Now()
		}
		if ctx.Err() == nil && (passing(verb, err) || refused && time.Since(since) < settled) {
			pause := backoff.Step()
			if seconds, asked := apierrors.SuggestsClientDelay(err); asked {
				pause = max(pause, time.Duration(seconds)*time.Second)
			}
			select {
			case <-time.After(pause):
				continue
			case <-ctx.Done():
			}
		}
		return s.failed(ctx, verb, resource, name, err)
	}
}

// failed says what a request was for, and what to do where somebody can.
func (s *Store) failed(ctx context.Context, verb, resource, name string, err error) error {
	switch {
	case forbidden(verb, err):
		return &ForbiddenError{Verb: verb, Resource: resource, Namespace: s.namespace, Name: name, cause: err}
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s %s %s: not authenticated: the token may have expired; log in to the cluster again: %w", verb, resource, name, err)
	case ctx.Err() != nil:
		return fmt.Errorf("%s %s %s: %w (%w)", verb, resource, name, context.Cause(ctx), err)
	}
	return fmt.Errorf("%s %s %s: %w", verb, resource, name, err)
}

func attempt(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return request(ctx)
}

// forbidden reports whether a right is missing. 403 is also the answer of a quota that is used up, of a webhook
// and of a namespace that is being deleted; the words are those of the API server's authorization.
func forbidden(verb string, err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot "+verb+" resource ")
}

// passing reports whether the same request may succeed later. Without a status nothing was answered: the API server was
// not reached, or the connection broke, be it in the middle of an answer. Conflicts are for the caller, but for those of
// a creation: they are about something else, a quota that others use too.
func passing(verb string, err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	return apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) || status.Status().Code >= 500 ||
		verb == "create" && apierrors.IsConflict(err)
}
