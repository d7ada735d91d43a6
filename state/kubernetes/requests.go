package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/kube"
	"github.com/eltrain/eltrain/state"
)

// Requests are objects in the state's namespace. To ask, and to read what became of it, takes rights on these objects only. Whoever
// leads follows them by a watch, which the first call of Pending begins and Close ends.
type Requests struct {
	store   *Store
	objects kube.Resource[*request, *requestList]

	following sync.Mutex // guards follower
	follower  *follower

	mu      sync.Mutex
	authors map[string]string      // by object name: who asked, as found when the request was first seen
	parsed  map[string]job.Request // by object name, while pending
	pruned  time.Time
}

var _ state.Requests = (*Requests)(nil)

// UndefinedError says that the API server does not know requests.
type UndefinedError struct{ cause error }

func (e *UndefinedError) Error() string {
	return fmt.Sprintf("this cluster does not define requests (%s.%s)", requestResource, requestVersion.Group)
}

func (e *UndefinedError) Unwrap() error { return e.cause }

// undefined reports whether the API server does not know the kind, in contrast to an object or a namespace. One that has just started
// answers otherwise until it knows all kinds.
func undefined(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

func explained(err error) error {
	if undefined(err) {
		return &UndefinedError{err}
	}
	return err
}

// Requests returns the requests to whoever leads the state's jobs.
func (s *Store) Requests() *Requests {
	return &Requests{
		store: s, objects: kube.Of[request, requestList](s.requests, requestResource, s.namespace),
		authors: map[string]string{}, parsed: map[string]job.Request{},
	}
}

// Close ends the watch.
func (q *Requests) Close() {
	q.following.Lock()
	defer q.following.Unlock()
	if q.follower != nil {
		q.follower.close()
		q.follower = nil
	}
}

func (q *Requests) call(ctx context.Context, verb, resource, name string, request func(context.Context) error) error {
	return explained(q.store.call(ctx, verb, resource, name, request))
}

// Ask implements state.Requests. Who asks is the API server's user.
func (q *Requests) Ask(ctx context.Context, r job.Request) (job.Request, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	made, err := q.ask(ctx, r)
	if err != nil {
		return r, fmt.Errorf("store a request: %w", err)
	}
	return made.read(made.claimed())
}

func (q *Requests) ask(ctx context.Context, r job.Request) (*request, error) {
	last, err := q.newest(ctx)
	if err != nil {
		return nil, err
	}
	r.ID = state.NextRequestID(r.At, last)
	o := q.store.requestObject(r)
	if o.Spec.By, err = q.user(ctx); err != nil {
		return nil, err
	}
	var made *request
	err = q.call(ctx, "create", requestResource, o.Name, func(ctx context.Context) error {
		made, err = q.objects.Create(ctx, o, metav1.CreateOptions{FieldManager: manager})
		return err
	})
	if apierrors.IsAlreadyExists(err) { // by this very call: its answer was lost. The name has a random part
		made, err = q.get(ctx, o.Name)
	}
	return made, err
}

// user returns the API server's name for who uses it.
func (q *Requests) user(ctx context.Context) (string, error) {
	const resource = "selfsubjectreviews"
	var review authenticationv1.SelfSubjectReview
	err := q.store.call(ctx, "create", resource, "", func(ctx context.Context) error {
		return q.store.reviews.Post().Resource(resource).Body(&authenticationv1.SelfSubjectReview{}).Do(ctx).Into(&review)
	})
	return review.Status.UserInfo.Username, err
}

// newest returns the greatest ID so far; "" if there is none.
func (q *Requests) newest(ctx context.Context) (id string, err error) {
	all, err := q.list(ctx)
	for _, o := range all {
		id = max(id, o.id())
	}
	return id, err
}

// selection selects the requests about the state's jobs.
func (q *Requests) selection() string { return labels.Set{labelState: q.store.name}.String() }

func (q *Requests) list(ctx context.Context) (all []*request, err error) {
	var list *requestList
	err = q.call(ctx, "list", requestResource, "", func(ctx context.Context) error {
		list, err = q.objects.List(ctx, metav1.ListOptions{LabelSelector: q.selection()})
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if o := &list.Items[i]; o.Spec.State == q.store.name { // whoever may edit labels changes nothing
			all = append(all, o)
		}
	}
	return all, nil
}

func (q *Requests) get(ctx context.Context, name string) (o *request, err error) {
	err = q.call(ctx, "get", requestResource, name, func(ctx context.Context) error {
		o, err = q.objects.Get(ctx, name, metav1.GetOptions{})
		return err
	})
	return o, err
}

// All implements state.Requests. A request that cannot be read is left out: whoever leads refuses it.
func (q *Requests) All(ctx context.Context) ([]state.Asked, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	objects, err := q.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the requests: %w", err)
	}
	var all []state.Asked
	for _, o := range objects {
		if asked, err := o.asked(); err == nil {
			all = append(all, asked)
		}
	}
	state.SortAsked(all)
	return all, nil
}

// Get implements state.Requests.
func (q *Requests) Get(ctx context.Context, id string) (state.Asked, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	o, err := q.get(ctx, objectName(id))
	if apierrors.IsNotFound(err) && !undefined(err) || err == nil && o.Spec.State != q.store.name {
		err = state.ErrNoRequest
	}
	if err != nil {
		return state.Asked{}, fmt.Errorf("request %s: %w", id, err)
	}
	return o.asked()
}

// follow returns the follower, which it starts.
func (q *Requests) follow() *follower {
	q.following.Lock()
	defer q.following.Unlock()
	if q.follower == nil {
		q.follower = startFollower(q.objects, q.selection())
	}
	return q.follower
}

// Pending implements state.Requests. The first call waits until the requests are known; later ones return what the watch has shown.
// There are none if the cluster does not define them.
func (q *Requests) Pending(ctx context.Context) ([]job.Request, error) {
	pending, err := q.readPending(ctx)
	var refused *refusedError
	if errors.As(err, &refused) {
		err = q.store.failed(ctx, refused.verb, requestResource, "", refused.cause)
	}
	if err != nil {
		return nil, fmt.Errorf("read the requests: %w", err)
	}
	return pending, nil
}

func (q *Requests) readPending(ctx context.Context) ([]job.Request, error) {
	all, err := q.follow().all(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b *request) int { return strings.Compare(a.Name, b.Name) })
	var open, finished []*request
	for _, o := range all {
		switch {
		case o.Spec.State != q.store.name:
		case o.finished():
			finished = append(finished, o)
		default:
			open = append(open, o)
		}
	}
	if err := q.findAuthors(ctx, open); err != nil {
		return nil, err
	}
	return q.parse(open), q.prune(ctx, finished)
}

// findAuthors finds who asked the requests that are new. They exist, so a policy that is in force since before them has checked them.
func (q *Requests) findAuthors(ctx context.Context, open []*request) error {
	q.mu.Lock()
	found := q.authors
	q.mu.Unlock()
	known, inForce := map[string]string{}, (func(time.Time) bool)(nil)
	for _, o := range open {
		by := found[o.Name]
		if by == "" && o.Status != nil {
			by = o.Status.By
		}
		if by == "" {
			if inForce == nil {
				var err error
				if inForce, err = q.store.author.inForce(ctx); err != nil {
					return err
				}
			}
			by = o.claimed()
			if inForce(o.CreationTimestamp.Time) {
				by = o.Spec.By
			}
		}
		known[o.Name] = by
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.authors = known
	return nil
}

// parse returns what the open requests ask for.
func (q *Requests) parse(open []*request) []job.Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	parsed, pending := map[string]job.Request{}, []job.Request{}
	for _, o := range open {
		r, known := q.parsed[o.Name]
		if !known {
			r, _ = o.read(q.authors[o.Name]) // one that cannot be read asks for nothing that there is: it is refused
		}
		parsed[o.Name] = r
		pending = append(pending, r)
	}
	q.parsed = parsed
	return pending
}

const (
	// pruneEvery is how often old requests are removed.
	pruneEvery = time.Minute
	// maxPruned bounds how many are removed at once: reading the requests waits for it.
	maxPruned = 50
)

// prune removes the requests that were answered long ago, or are more than are kept.
func (q *Requests) prune(ctx context.Context, finished []*request) error {
	now := time.Now()
	q.mu.Lock()
	due := now.Sub(q.pruned) >= pruneEvery
	q.mu.Unlock()
	if !due {
		return nil
	}
	names, repliedAt := make([]string, len(finished)), map[string]time.Time{}
	for i, o := range finished {
		names[i] = o.Name
		repliedAt[o.Name] = o.repliedAt()
	}
	outdated := state.Outdated(names, func(name string) time.Time { return repliedAt[name] }, now)
	more := len(outdated) > maxPruned
	for _, name := range outdated[:min(len(outdated), maxPruned)] {
		err := q.call(ctx, "delete", requestResource, name, func(ctx context.Context) error {
			return q.objects.Delete(ctx, name, metav1.DeleteOptions{})
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove an old request: %w", err)
		}
	}
	if !more {
		q.mu.Lock()
		q.pruned = now
		q.mu.Unlock()
	}
	return nil
}

// Reply implements state.Requests. A request that was removed needs no reply.
func (q *Requests) Reply(ctx context.Context, r job.Reply) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := q.reply(ctx, r); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reply to request %s: %w", r.ID, err)
	}
	return nil
}

func (q *Requests) reply(ctx context.Context, r job.Reply) error {
	name := objectName(r.ID)
	o := q.follow().get(name)
	for {
		if o == nil {
			var err error
			if o, err = q.get(ctx, name); err != nil {
				return err
			}
		}
		if was := o.reply(); was.State.Final() || was.State == r.State && was.Reason.Equal(r.Reason) {
			return nil
		}
		replied := o.copy()
		replied.Status = &requestStatus{State: r.State, Results: r.Results, By: o.author(), Time: metav1.Now()}
		if !r.Reason.IsZero() {
			replied.Status.Reason = &r.Reason
		}
		q.mu.Lock()
		if by := q.authors[name]; by != "" {
			replied.Status.By = by
		}
		q.mu.Unlock()
		err := q.call(ctx, "update", requestResource+"/status", name, func(ctx context.Context) error {
			_, err := q.objects.UpdateStatus(ctx, replied, metav1.UpdateOptions{FieldManager: manager})
			return err
		})
		if !apierrors.IsConflict(err) {
			return err
		}
		o = nil // changed meanwhile, possibly by this very call
	}
}
