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

// patience bounds the attempts of one read or write if its context does not: an API server that restarts is back by
// then. A master whose state cannot be written for longer reports it, and keeps trying.
const patience = 20 * time.Second

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, patience, fmt.Errorf("the API server did not answer within %v", patience))
}

// requestTimeout bounds one request: if a connection hangs, there is time for another attempt.
const requestTimeout = patience / 2

// retryBackoff is the backoff between attempts: at first short, then up to a second.
func retryBackoff() wait.Backoff {
	return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6, Cap: time.Second}
}

// ForbiddenError says which permission is missing.
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

// onlyForbidden keeps the errors that are not transient.
func onlyForbidden(err error) error {
	if errors.As(err, new(*ForbiddenError)) {
		return err
	}
	return nil
}

// refusalStands is how long a refusal is not believed: an API server that has just started knows no roles yet and refuses
// everybody, measured at less than a second, and a new RoleBinding takes as long to take effect.
const refusalStands = 3 * time.Second

// call retries a request until it succeeds, is refused permanently, or ctx ends. A retried request may have been carried
// out the first time, which callers notice by the result. Only consecutive refusals count as permanent: after an outage
// the API server may have just started.
func (s *Store) call(ctx context.Context, verb, resource, name string, request func(context.Context) error) error {
	backoff := retryBackoff()
	var since time.Time // when the consecutive refusals began
	var said error      // the API server's last answer
	for {
		err := attempt(ctx, request)
		if err == nil {
			return nil
		}
		refused := apierrors.IsUnauthorized(err) || forbidden(verb, err)
		switch answered := errors.As(err, new(apierrors.APIStatus)); {
		case refused: // text only: if another answer follows, the refusal was not permanent, and nothing may match it
			said = errors.New(err.Error())
		case answered:
			said = err
		case ctx.Err() != nil && said != nil:
			err = said // more informative than the timeout, which is added to it
		}
		if !refused {
			since = time.Time{}
		} else if since.IsZero() {
			since = time.Now()
		}
		if ctx.Err() == nil && (retryable(verb, err) || refused && time.Since(since) < refusalStands) {
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

// failed says what a request was for, and what to do if something can be done.
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

// forbidden reports whether a permission is missing. Exceeded quotas, webhooks and terminating namespaces also cause a 403;
// only the text is specific to the API server's authorization.
func forbidden(verb string, err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot "+verb+" resource ")
}

// retryable reports whether a retry may succeed. Without a status nothing was answered: the API server was unreachable, or the
// connection broke. Conflicts are for the caller, except at a creation: those are about something else, such as a shared
// quota.
func retryable(verb string, err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	return apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) || status.Status().Code >= 500 ||
		verb == "create" && apierrors.IsConflict(err)
}
