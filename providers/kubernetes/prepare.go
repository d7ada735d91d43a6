package kubernetes

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// preparations are the jobs that this process has prepared, and how the service is reached. Jobs of other masters in the same
// namespace are not in it: their anchors are not updated, and their gates stay.
type preparations struct {
	moved atomic.Bool // a job's pods may still use a former service or trust a former certificate

	mu   sync.Mutex
	data map[string]string // of every anchor: how the service is reached; nil until published
	jobs map[string]prepared
}

// prepared is a job whose objects all existed when it was entered.
type prepared struct {
	group     job.Group
	site      string // the namespace's UID at its first Prepare, as far as known
	anchor    anchor
	token     string
	awake     *atomic.Bool                             // its Service and budgets select its pods
	writeLock chan struct{}                            // holds a value while the Service or a budget is written
	newest    *atomic.Pointer[prepared]                // the latest that Prepare was called with; its objects may be incomplete
	readiness *readiness                               // of its pods; used by activateLoop alone
	volumes   map[string]*corev1.ConfigMapVolumeSource // of the roles' source files
	check     chan anchorCheck                         // the last check of its anchor; empty while launches must wait for one
}

// holds reports whether the last Prepare of the job was for this group and completed. One that failed may have written some
// of its objects.
func (j prepared) holds(g job.Group) bool {
	return reflect.DeepEqual(j.group, g) && reflect.DeepEqual(j.newest.Load().group, g)
}

// digestOf returns the digest of a role's source files; "" if it has none.
func (j prepared) digestOf(role string) string {
	for _, r := range j.group.Roles {
		if r.Role == role && r.Source != nil {
			return r.Source.Digest
		}
	}
	return ""
}

func newPreparations() *preparations {
	return &preparations{jobs: map[string]prepared{}}
}

func (r *preparations) get(uid string) (prepared, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	j, known := r.jobs[uid]
	return j, known
}

func (r *preparations) all() []prepared {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.jobs))
}

func (r *preparations) put(j prepared) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.jobs[j.group.UID] = j
}

func (r *preparations) remove(uid string) {
	r.mu.Lock()
	delete(r.jobs, uid)
	r.mu.Unlock()
}

// publish sets how the service is reached and returns the jobs to notify.
func (r *preparations) publish(s providers.Service) []prepared {
	r.mu.Lock()
	r.data = map[string]string{serviceKey: s.URL, certificatesKey: string(s.Certificates)}
	r.mu.Unlock()
	return r.all()
}

func (r *preparations) serviceData() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.data
}

// noteMove records a move of the service if the anchor has another URL or certificate than now, or says that the service moved
// less than configMapDelay ago, as another master may have recorded. It returns the value of the anchor's annotationMoved; "" for
// none.
func (r *preparations) noteMove(anchor *corev1.ConfigMap, now map[string]string) (since string) {
	if said := anchor.Data; now != nil && said[serviceKey] != "" && !sameService(said, now) {
		r.moved.Store(true)
		return time.Now().UTC().Format(time.RFC3339)
	}
	since = anchor.Annotations[annotationMoved]
	if at, err := time.Parse(time.RFC3339, since); err != nil || time.Since(at) >= configMapDelay {
		return ""
	}
	r.moved.Store(true)
	return since
}

func sameService(one, other map[string]string) bool {
	return one[serviceKey] == other[serviceKey] && one[certificatesKey] == other[certificatesKey]
}

// Prepare creates or updates the job's anchor and then what it owns. It is idempotent: one that was cut short is completed by
// the next, and what somebody deleted is recreated. If nothing changed it costs a read of each object, and no write.
func (p *Provider) Prepare(ctx context.Context, g job.Group) (string, error) {
	token, err := p.prepare(ctx, g)
	if err != nil {
		return "", fmt.Errorf("prepare job.%s: %w", g.Name, err)
	}
	return token, nil
}

func (p *Provider) prepare(ctx context.Context, g job.Group) (string, error) {
	if err := errors.Join(checkUID(g.UID), checkJobName(g.Name)); err != nil {
		return "", err
	}
	there, err := p.findAnchor(ctx, g)
	if err != nil {
		return "", err
	}
	before, known := p.jobs.get(g.UID)
	site := before.site
	if !known {
		site = p.where.known()
	}
	if there == nil {
		if err := p.checkSite(ctx, site); err != nil {
			return "", err
		}
	}
	listed := listedSources(there)
	unused := p.unusedSources(g, listed)
	complete := known && there != nil && there.UID == before.anchor.uid && before.holds(g) && len(unused) == 0
	if complete {
		if complete, err = p.complete(ctx, before); err != nil {
			return "", err
		}
	}
	if complete {
		if err := p.gang.Prepare(ctx, jobOf(g, before.anchor.reference())); err != nil {
			return "", err
		}
		return before.token, p.publishTo(ctx, before, there)
	}
	if err := p.removeSources(ctx, g.UID, g.Name, unused); err != nil {
		return "", err
	}
	sources := slices.Collect(maps.Keys(sourcesOf(g)))
	for _, short := range listed {
		if !slices.Contains(unused, short) && !slices.Contains(sources, short) {
			sources = append(sources, short)
		}
	}
	slices.Sort(sources)
	former, service, moved := there, p.jobs.serviceData(), ""
	if former != nil {
		moved = p.jobs.noteMove(former, service) // before the anchor is overwritten: the answer may be lost
	}
	err = p.write(ctx, g, "the anchor", func(ctx context.Context) (err error) {
		there, err = p.client.CoreV1().ConfigMaps(p.namespace).Apply(ctx, anchorOf(g, p.owner, service, moved, sources), applyOptions)
		return err
	})
	if err != nil {
		return "", err
	}
	made := prepared{
		group: g, site: site, anchor: anchor{there.Name, there.UID},
		awake: new(atomic.Bool), writeLock: make(chan struct{}, 1), newest: new(atomic.Pointer[prepared]), readiness: new(readiness), check: make(chan anchorCheck, 1),
		volumes: map[string]*corev1.ConfigMapVolumeSource{},
	}
	if known {
		made.awake, made.writeLock, made.newest, made.readiness = before.awake, before.writeLock, before.newest, before.readiness
	} else {
		made.awake.Store(anyUp(p.index.ofJob(g.UID)))
	}
	made.check <- checkedNow(time.Now())
	for _, r := range g.Roles {
		if r.Source != nil {
			made.volumes[r.Role] = volumeOf(g.UID, g.Name, r.Source)
		}
	}
	asked := made
	made.newest.Store(&asked) // which the others read from now on
	// All need the anchor and none another, so they run in parallel: a hundred new gangs reach their scheduler sooner.
	making, ctxAll := errgroup.WithContext(ctx)
	var token string
	making.Go(func() (err error) {
		token, err = p.token(ctxAll, g, made.anchor, before.token)
		return err
	})
	making.Go(func() error { return p.writeSources(ctxAll, g, made.anchor) })
	making.Go(func() error {
		if err := p.writeObjects(ctxAll, made); err != nil || former == nil { // a new job has no former roles
			return err
		}
		return p.prune(ctxAll, g)
	})
	making.Go(func() error { return p.gang.Prepare(ctxAll, jobOf(g, made.anchor.reference())) })
	if err := making.Wait(); err != nil {
		return "", err
	}
	made.token = token
	p.jobs.put(made)
	p.index.announce() // its pods may exist already: only prepared jobs get their gates removed and their names published
	return token, p.publishTo(ctx, made, there)
}

// prune removes the PodDisruptionBudgets of roles that the job no longer has: their pods are gone or about to go, and
// must not block a drain.
func (p *Provider) prune(ctx context.Context, g job.Group) error {
	var roles []string
	for _, r := range g.Roles {
		roles = append(roles, r.Role)
	}
	return p.removeBudgets(ctx, g.UID, roles)
}

// complete reports whether a prepared job still has all that its anchor owns.
func (p *Provider) complete(ctx context.Context, j prepared) (bool, error) {
	objects := append(p.children(j.anchor.name), p.budgets(j.group)...)
	for short := range sourcesOf(j.group) {
		objects = append(objects, p.source(j.group.UID, j.group.Name, short))
	}
	for _, o := range objects {
		there, err := o.get(ctx)
		if apierrors.IsNotFound(err) || err == nil && !owns(j.anchor, there) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("look up its %s: %w", o.kind, explain(readError(err)))
		}
	}
	return true, nil
}

const (
	// anchorStands is how long a check of an anchor is valid: while thousands of pods are launched, one check in this time has
	// to do. Pods launched meanwhile under a deleted anchor are collected with it, and launched again.
	anchorStands = time.Second
	// anchorTrusted is how long other launches continue while one checks again: an API server that creates pods at full
	// speed takes half a second to answer, and all would wait meanwhile.
	anchorTrusted = 5 * time.Second
)

// anchorCheck is a check of an anchor: when it was last seen, and when to check next.
type anchorCheck struct{ seen, next time.Time }

func checkedNow(now time.Time) anchorCheck {
	return anchorCheck{seen: now, next: now.Add(anchorStands)}
}

// ensureAnchor checks that a job's anchor still exists: a pod whose owner does not would be collected at once.
func (p *Provider) ensureAnchor(ctx context.Context, j prepared) error {
	var last anchorCheck
	select {
	case last = <-j.check:
	case <-ctx.Done():
		return ctx.Err()
	}
	now := time.Now()
	if now.Before(last.next) {
		j.check <- last
		return nil
	}
	trusted := now.Sub(last.seen) < anchorTrusted
	if trusted {
		j.check <- anchorCheck{last.seen, now.Add(anchorStands)}
	}
	seen, err := p.checkAnchor(ctx, j)
	if err != nil {
		seen = anchorCheck{} // the next launch checks, and the others wait for it
	}
	if trusted {
		select {
		case other := <-j.check:
			seen = later(now, seen, other)
		case <-ctx.Done():
			return err // whoever took it puts it back
		}
	}
	j.check <- seen
	return err
}

// later returns the newer of two checks: one that began at the given time, and another.
func later(began time.Time, one, other anchorCheck) anchorCheck {
	if other.seen.After(began) {
		return other
	}
	return one
}

// checkAnchor asks the API server whether a job's anchor still exists.
func (p *Provider) checkAnchor(ctx context.Context, j prepared) (anchorCheck, error) {
	now := time.Now()
	var there *corev1.ConfigMap
	err := p.pacer.do(ctx, class{j.group.UID, "look up the anchor"}, func(ctx context.Context) (err error) {
		there, err = p.client.CoreV1().ConfigMaps(p.namespace).Get(ctx, j.anchor.name, metav1.GetOptions{})
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return anchorCheck{}, fmt.Errorf("%w: its anchor was deleted: %w", providers.ErrNotPrepared, err)
	case err != nil:
		return anchorCheck{}, fmt.Errorf("look up its anchor: %w", explain(err))
	case there.UID != j.anchor.uid, there.DeletionTimestamp != nil:
		return anchorCheck{}, fmt.Errorf("%w: its anchor, ConfigMap %s/%s, was deleted", providers.ErrNotPrepared, p.namespace, j.anchor.name)
	}
	return checkedNow(now), nil
}

// findAnchor reads the job's anchor; nil if there is none.
func (p *Provider) findAnchor(ctx context.Context, g job.Group) (*corev1.ConfigMap, error) {
	there, err := p.client.CoreV1().ConfigMaps(p.namespace).Get(ctx, groupName(g.UID, g.Name), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look up its anchor: %w", explain(readError(err)))
	case there.Labels[labelUID] != g.UID:
		return nil, fmt.Errorf("ConfigMap %s/%s is %s, not this job's anchor: rename the job", p.namespace, there.Name, whose(there))
	case there.DeletionTimestamp != nil:
		return nil, fmt.Errorf("its anchor, ConfigMap %s/%s, is being deleted with everything it owns", p.namespace, there.Name)
	}
	return there, nil
}

// whose says whose an object is that has the name of this job's but is not.
func whose(o metav1.Object) string {
	uid, state := o.GetLabels()[labelUID], o.GetAnnotations()[annotationState]
	switch {
	case uid == "":
		return "not eltrain's"
	case state == "":
		return "of another job of this name, of UID " + uid
	}
	return fmt.Sprintf("of another job of this name, of UID %s in the state %q", uid, state)
}

// token reads the token in the job's Secret. If there is no Secret, it creates one, with the known token if there is one:
// running agents have it. A Secret that a former anchor has left gets the new owner before it is collected.
func (p *Provider) token(ctx context.Context, g job.Group, owner anchor, known string) (string, error) {
	secrets := p.client.CoreV1().Secrets(p.namespace)
	var there *corev1.Secret
	err := p.write(ctx, g, "the Secret", func(ctx context.Context) (err error) {
		there, err = secrets.Get(ctx, owner.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			there, err = secrets.Create(ctx, secretOf(g, owner, cmp.Or(known, rand.Text())), metav1.CreateOptions{FieldManager: FieldManager})
			if apierrors.IsAlreadyExists(err) { // another master was faster
				there, err = secrets.Get(ctx, owner.name, metav1.GetOptions{})
			}
		}
		if err != nil || there.Labels[labelUID] != g.UID || owns(owner, there) {
			return err
		}
		there.OwnerReferences = []metav1.OwnerReference{owner.reference()}
		there, err = secrets.Update(ctx, there, metav1.UpdateOptions{FieldManager: FieldManager})
		return err
	})
	switch {
	case err != nil:
		return "", err
	case there.Labels[labelUID] != g.UID:
		return "", fmt.Errorf("create the Secret: %s/%s is %s, not this job's: rename the job", p.namespace, there.Name, whose(there))
	case len(there.Data[tokenKey]) == 0:
		return "", fmt.Errorf("create the Secret: %s/%s has no %s: delete it", p.namespace, there.Name, tokenKey)
	}
	return string(there.Data[tokenKey]), nil
}

func owns(a anchor, o metav1.Object) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == a.uid })
}

// write writes one of a job's objects, paced.
func (p *Provider) write(ctx context.Context, g job.Group, what string, write func(context.Context) error) error {
	if err := p.pacer.do(ctx, class{g.UID, "write " + what}, write); err != nil {
		return fmt.Errorf("write %s: %w", what, explain(err))
	}
	return nil
}

// nameless is an error of the API server without the name of its object: it is returned to a whole class, each of whose
// callers adds its own name.
type nameless struct {
	error
	text string
}

func (e *nameless) Error() string { return e.text }
func (e *nameless) Unwrap() error { return e.error }

func withoutName(err error) error {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) || status.Status().Details == nil || status.Status().Details.Name == "" {
		return err
	}
	return &nameless{err, strings.ReplaceAll(err.Error(), " "+strconv.Quote(status.Status().Details.Name), "")}
}

// explain adds to an error of the API server what a person can do about it. The error itself names verb, resource and
// namespace.
func explain(err error) error {
	err = withoutName(err)
	switch {
	case err == nil:
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return fmt.Errorf("%w: nothing can be created in a namespace that is being deleted", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: the API server rejects the credentials; they may have expired", err)
	case isPermissionError(err):
		return fmt.Errorf("%w: deploy/ has the Role that eltrain needs", err)
	}
	return err
}

// permissionDenied matches a denial by the API server's authorizer: User "x" cannot create resource "pods" ...
var permissionDenied = regexp.MustCompile(`cannot \w+ resource "`)

// isPermissionError distinguishes a missing permission from other reasons for 403 (a quota, a webhook), which only the text of the
// answer does.
func isPermissionError(err error) bool {
	return apierrors.IsForbidden(err) && permissionDenied.MatchString(err.Error())
}
