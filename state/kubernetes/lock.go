package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/state"
)

// The lock is the Lease of the state's name: it is held while that has a holderIdentity. leaseTransitions is the
// epoch. The holder renews it by setting renewTime, a third of leaseDurationSeconds after the other, and gives it
// back by removing holderIdentity, which keeps the epoch. Every step is an update on condition of the
// resourceVersion that was seen before.
//
// Another takes over when the Lease has stayed the same for leaseDurationSeconds, as seen by its own clock
// since its own first look. What time renewTime shows means nothing, so no clocks are compared: the rule of
// Kubernetes' own leader election. Having taken it, and before it does anything else, a holder raises the fence
// in the head Secret, which is what makes writes of its predecessor fail.

// annotationHolder is the holder's state.LockInfo, as JSON.
const annotationHolder = "eltrain.dev/holder"

// holder is who holds a Lease; nil if nobody. One that was taken by other means, kubectl for instance, has a
// holder too, of whom little is known: it is waited for like any other.
func holder(lease *coordinationv1.Lease) *state.LockInfo {
	if lease == nil || identity(lease) == "" {
		return nil
	}
	var info state.LockInfo
	if err := json.Unmarshal([]byte(lease.Annotations[annotationHolder]), &info); err == nil && identityOf(info) == identity(lease) {
		return &info
	}
	info = state.LockInfo{ID: identity(lease), Epoch: transitions(lease), Operation: "(unknown)", Who: identity(lease)}
	if at := lease.Spec.AcquireTime; at != nil {
		info.Created = at.Time
	}
	return &info
}

// identityOf is the holderIdentity under which somebody takes the lock: for people and for comparison.
func identityOf(info state.LockInfo) string { return info.Who + "/" + info.ID }

func identity(lease *coordinationv1.Lease) string {
	if lease == nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

func transitions(lease *coordinationv1.Lease) uint64 {
	if lease == nil || lease.Spec.LeaseTransitions == nil {
		return 0
	}
	return uint64(max(*lease.Spec.LeaseTransitions, 0))
}

// duration is how long a Lease outlives its last renewal by its holder's own word.
func (s *Store) duration(lease *coordinationv1.Lease) time.Duration {
	if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil && *seconds > 0 {
		return time.Duration(*seconds) * time.Second
	}
	return s.lease
}

// silence measures for how long one holder has not renewed, as seen by this process alone.
type silence struct {
	uid, version string
	at           time.Time
	sum          time.Duration
}

// observe takes one look at a Lease and returns how long it has been seen to stay the same. A gap between two
// looks counts for most at most: when this process was stopped together with the holder, or the API server
// was away, in which case nobody can renew, nobody has watched meanwhile. It counts for that much because an API
// server that is slow to answer whoever looks is no reason to leave the jobs without a master.
func (w *silence) observe(lease *coordinationv1.Lease, now time.Time, most time.Duration) time.Duration {
	uid, version := string(lease.UID), lease.ResourceVersion
	if w.at.IsZero() || uid != w.uid || version != w.version {
		*w = silence{uid: uid, version: version, at: now}
		return 0
	}
	w.sum += min(now.Sub(w.at), most)
	w.at = now
	return w.sum
}

// looks is how many looks per lease whoever waits takes, while the API server answers at once.
const looks = 20

// Lock implements state.Store. It looks at the Lease twenty times per lease of the holder, and a gap between two looks
// counts for as much as the holder has between two renewals. To take over from a
// holder that is silent it has to watch for a whole lease of that holder; a shorter timeout ends before.
func (s *Store) Lock(ctx context.Context, info state.LockInfo, timeout time.Duration) (state.Lock, error) {
	l, err := s.lock(ctx, info, timeout)
	if err != nil {
		return nil, fmt.Errorf("lock state %s: %w", s, err)
	}
	return l, nil
}

func (s *Store) lock(ctx context.Context, info state.LockInfo, timeout time.Duration) (*lock, error) {
	deadline := time.Now().Add(timeout)
	var silent silence
	for {
		lease, err := s.look(ctx, max(time.Until(deadline), patience))
		if err != nil {
			return nil, err
		}
		now := holder(lease)
		if now == nil || silent.observe(lease, time.Now(), s.duration(lease)/renewals) >= s.duration(lease) {
			l, err := s.claim(ctx, info, lease)
			if l != nil || err != nil {
				return l, err
			}
			continue // somebody was faster, or the holder woke up
		}
		left := time.Until(deadline)
		if left <= 0 {
			return nil, &state.LockedError{Holder: *now}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(min(left, s.duration(lease)/looks)):
		}
	}
}

// look reads the Lease; nil if there is none. Whoever waits for the lock waits for the API server as long.
func (s *Store) look(ctx context.Context, most time.Duration) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return s.getLease(ctx)
}

func (s *Store) getLease(ctx context.Context) (lease *coordinationv1.Lease, err error) {
	err = s.call(ctx, "get", "leases", s.object(), func(ctx context.Context) error {
		lease, err = s.typed.CoordinationV1().Leases(s.namespace).Get(ctx, s.object(), metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return lease, err
}

// putLease creates the Lease if it has no resourceVersion, and updates it otherwise. changed: it is not any
// more what it was, or not there.
func (s *Store) putLease(ctx context.Context, lease *coordinationv1.Lease) (put *coordinationv1.Lease, changed bool, err error) {
	leases := s.typed.CoordinationV1().Leases(s.namespace)
	if lease.ResourceVersion == "" {
		err = s.call(ctx, "create", "leases", lease.Name, func(ctx context.Context) error {
			put, err = leases.Create(ctx, lease, metav1.CreateOptions{FieldManager: manager})
			return err
		})
		return put, apierrors.IsAlreadyExists(err), err
	}
	err = s.call(ctx, "update", "leases", lease.Name, func(ctx context.Context) error {
		put, err = leases.Update(ctx, lease, metav1.UpdateOptions{FieldManager: manager})
		return err
	})
	return put, apierrors.IsConflict(err) || apierrors.IsNotFound(err), err
}

// claim takes the Lease if it is still as it was judged; nil without an error if not.
func (s *Store) claim(ctx context.Context, info state.LockInfo, judged *coordinationv1.Lease) (*lock, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	head, err := s.getHead(ctx)
	if err != nil {
		return nil, err
	}
	info.ID, info.PID = uuid.NewString(), os.Getpid()
	info.Epoch = max(transitions(judged), fenced(head).epoch) + 1 // the fence counts too: somebody may have removed the Lease
	if info.Created.IsZero() {
		info.Created = time.Now().UTC()
	}
	text, err := json.Marshal(info)
	if err != nil {
		return nil, err
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: s.object(), Namespace: s.namespace, Labels: s.labels(kindLock)}}
	if judged != nil {
		lease = judged.DeepCopy()
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[annotationHolder] = string(text)
	began := time.Now()
	lease.Spec.HolderIdentity = new(identityOf(info))
	lease.Spec.LeaseDurationSeconds = new(int32(s.lease / time.Second))
	lease.Spec.LeaseTransitions = new(int32(info.Epoch))
	lease.Spec.AcquireTime = &metav1.MicroTime{Time: began}
	lease.Spec.RenewTime = &metav1.MicroTime{Time: began}
	put, changed, err := s.putLease(ctx, lease)
	if changed {
		// Perhaps by this very claim: its answer was lost, and it was sent again.
		if put, err = s.getLease(ctx); err == nil && identity(put) != identityOf(info) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, err
	}
	l := &lock{Hold: state.NewHold(info), store: s, lease: put, unswept: true, writing: make(chan struct{}, 1)}
	if time.Since(began) > s.lease/renewals {
		// The answer came late, as from an API server that was away: what is left of the lease may be nothing. If it is
		// this holder's still, it counts again.
		began = time.Now()
		if err := l.touch(ctx); errors.Is(err, state.ErrFenced) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
	}
	l.keep(began)
	if err := s.raiseFence(ctx, fenceOf(info)); err != nil {
		err = errors.Join(err, l.Unlock(context.WithoutCancel(ctx)))
		if errors.Is(err, state.ErrFenced) {
			return nil, nil // two claims after somebody removed the Lease: the other one was faster
		}
		return nil, fmt.Errorf("fence the former holder: %w", err)
	}
	return l, nil
}

// Holder implements state.Store. One that died is told until somebody takes over: that it is dead can only be
// seen by watching for a lease.
func (s *Store) Holder(ctx context.Context) (*state.LockInfo, error) {
	lease, err := s.look(ctx, patience)
	if err != nil {
		return nil, fmt.Errorf("read lock of state %s: %w", s, err)
	}
	return holder(lease), nil
}

// Break implements state.Store.
func (s *Store) Break(ctx context.Context, id string) (state.LockInfo, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	info, err := s.breakLock(ctx, id)
	if err != nil {
		return state.LockInfo{}, fmt.Errorf("break lock of state %s: %w", s, err)
	}
	return info, nil
}

func (s *Store) breakLock(ctx context.Context, id string) (state.LockInfo, error) {
	for {
		lease, err := s.getLease(ctx)
		if err != nil {
			return state.LockInfo{}, err
		}
		now := holder(lease)
		if now == nil || now.ID != id {
			return state.LockInfo{}, &state.NotHeldError{ID: id, Holder: now}
		}
		if _, changed, err := s.putLease(ctx, freed(lease)); changed {
			continue // it was renewed, or another holds it
		} else if err != nil {
			return state.LockInfo{}, err
		}
		// A holder that is alive learns of it with its next renewal, and its writes fail from now on.
		if err := s.raiseFence(ctx, fence{epoch: now.Epoch + 1}); err != nil && !errors.Is(err, state.ErrFenced) {
			return state.LockInfo{}, fmt.Errorf("fence the former holder: %w", err)
		}
		return *now, nil
	}
}

// freed is a Lease that nobody holds. It keeps the epoch.
func freed(lease *coordinationv1.Lease) *coordinationv1.Lease {
	lease = lease.DeepCopy()
	delete(lease.Annotations, annotationHolder)
	lease.Spec.HolderIdentity, lease.Spec.AcquireTime = nil, nil
	return lease
}

// lock is a held lock.
type lock struct {
	*state.Hold
	store *Store

	// writing holds a value while a write is under way, and guards unswept.
	writing chan struct{}
	// unswept: there may be parts that no head names.
	unswept bool

	mu       sync.Mutex // of what follows
	released bool       // Unlock was called
	given    bool       // and has done its work

	// lease is the Lease as this holder put it last. It belongs to the renewing goroutine while that runs.
	lease *coordinationv1.Lease
}

// renewals per lease: two may fail before it is in danger.
const renewals = 3

// keep begins to renew. The lease counts from began.
func (l *lock) keep(began time.Time) {
	l.Keep(state.Renewal{Lease: l.store.lease, Every: l.store.lease / renewals, Renew: l.touch, Place: "the API server"}, began)
}

// over reports whether the lock is known to be no longer held.
func (l *lock) over() bool {
	if l.Why() != nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.released
}

// confirm returns state.ErrFenced if the Lease is another's.
func (l *lock) confirm(ctx context.Context) error {
	lease, err := l.store.getLease(ctx)
	if err == nil && identity(lease) != identityOf(l.Info()) {
		return state.ErrFenced
	}
	return err
}

// touch renews once, or returns state.ErrFenced if the Lease is another's or gone. It ends before the next is due.
func (l *lock) touch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.store.lease/renewals)
	defer cancel()
	return l.change(ctx, func(lease *coordinationv1.Lease) *coordinationv1.Lease {
		lease = lease.DeepCopy()
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		return lease
	})
}

// change updates the Lease, for as long as it is this holder's.
func (l *lock) change(ctx context.Context, edited func(*coordinationv1.Lease) *coordinationv1.Lease) error {
	for {
		put, changed, err := l.store.putLease(ctx, edited(l.lease))
		if err == nil {
			l.lease = put
			return nil
		}
		if !changed {
			return err
		}
		if put, err = l.store.getLease(ctx); err != nil {
			return err
		}
		if identity(put) != identityOf(l.Info()) {
			return state.ErrFenced
		}
		l.lease = put // edited by hand, or by a request of ours of which the answer was lost
	}
}

// Unlock releases the lock. Where another holds it by now, or nobody, there is nothing to give back.
func (l *lock) Unlock(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.released = true
	if l.given {
		return nil
	}
	if err := l.giveBack(ctx); err != nil {
		return fmt.Errorf("unlock state %s: %w", l.store, err)
	}
	l.given = true
	return nil
}

func (l *lock) giveBack(ctx context.Context) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := l.Halt(ctx); err != nil {
		return err
	}
	err := l.change(ctx, freed)
	if errors.Is(err, state.ErrFenced) {
		return nil
	}
	return err
}
