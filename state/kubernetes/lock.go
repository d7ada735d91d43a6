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
// epoch. The holder renews it by setting renewTime, every third of leaseDurationSeconds, and releases it by
// removing holderIdentity, which keeps the epoch. Every step is an update conditional on the resourceVersion that
// was read before.
//
// Another process takes over when it has seen the Lease unchanged for leaseDurationSeconds by its own clock. The value
// of renewTime does not matter, so no clocks are compared: the rule of Kubernetes' own leader election. Before it does
// anything else, the new holder raises the fence in the head Secret, which makes its predecessor's writes fail.

// annotationHolder is the holder's state.LockInfo, as JSON.
const annotationHolder = "eltrain.dev/holder"

// holder returns the holder of a Lease; nil if there is none. A Lease acquired by other means, such as kubectl, has a
// holder too, of which little is known: it is waited for like any other.
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

// identityOf is the holderIdentity of a holder: for people and for comparison.
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

// duration is how long a Lease outlives its last renewal, as its holder set it.
func (s *Store) duration(lease *coordinationv1.Lease) time.Duration {
	if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil && *seconds > 0 {
		return time.Duration(*seconds) * time.Second
	}
	return s.lease
}

// renewal identifies one renewal of one holder.
type renewal struct{ uid, version string }

func renewalOf(lease *coordinationv1.Lease) renewal {
	return renewal{string(lease.UID), lease.ResourceVersion}
}

// readsPerLease is how often a contender reads the Lease per lease, while the API server answers at once.
const readsPerLease = 20

// Lock implements state.Store. It reads the Lease twenty times per lease of the holder, and a gap between two readings counts
// for at most the time between two renewals. To take over from a silent holder it has to watch for a whole lease of that
// holder; with a shorter timeout it fails.
func (s *Store) Lock(ctx context.Context, info state.LockInfo, timeout time.Duration) (state.Lock, error) {
	l, err := s.lock(ctx, info, timeout)
	if err != nil {
		return nil, fmt.Errorf("lock state %s: %w", s, err)
	}
	return l, nil
}

func (s *Store) lock(ctx context.Context, info state.LockInfo, timeout time.Duration) (*lock, error) {
	deadline := time.Now().Add(timeout)
	var silent state.Silence[renewal]
	for {
		lease, err := s.leaseWithin(ctx, max(time.Until(deadline), patience))
		if err != nil {
			return nil, err
		}
		now := holder(lease)
		if now == nil || silent.Observe(renewalOf(lease), time.Now(), s.duration(lease)/renewals) >= s.duration(lease) {
			l, err := s.claim(ctx, info, lease)
			if l != nil || err != nil {
				return l, err
			}
			continue // another process was faster, or the holder renewed
		}
		left := time.Until(deadline)
		if left <= 0 {
			return nil, &state.LockedError{Holder: *now}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(min(left, s.duration(lease)/readsPerLease)):
		}
	}
}

// leaseWithin reads the Lease, for at most the given time; nil if there is none.
func (s *Store) leaseWithin(ctx context.Context, most time.Duration) (*coordinationv1.Lease, error) {
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

// putLease creates the Lease if it has no resourceVersion, and updates it otherwise. changed: it was changed or removed
// meanwhile.
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

// claim acquires the Lease if it is unchanged since it was judged; otherwise it returns nil without an error.
func (s *Store) claim(ctx context.Context, info state.LockInfo, judged *coordinationv1.Lease) (*lock, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	head, err := s.getHead(ctx)
	if err != nil {
		return nil, err
	}
	info.ID, info.PID = uuid.NewString(), os.Getpid()
	info.Epoch = max(transitions(judged), fenced(head).epoch) + 1 // the fence counts too, as the Lease may have been removed
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
		// Possibly by this very claim: its answer was lost and it was sent again.
		if put, err = s.getLease(ctx); err == nil && identity(put) != identityOf(info) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, err
	}
	l := &lock{Hold: state.NewHold(info), store: s, lease: put, unswept: true, writing: make(chan struct{}, 1)}
	if time.Since(began) > s.lease/renewals {
		// The answer was late, as when the API server was away, so the lease may have expired. If it still has this holder,
		// renew it.
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
			return nil, nil // two claims after the Lease was removed: the other one was faster
		}
		return nil, fmt.Errorf("fence the former holder: %w", err)
	}
	return l, nil
}

// Holder implements state.Store. It also reports a dead holder, until another takes over: only watching for a whole
// lease would show that it is dead.
func (s *Store) Holder(ctx context.Context) (*state.LockInfo, error) {
	lease, err := s.leaseWithin(ctx, patience)
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
			continue // it was renewed, or has another holder
		} else if err != nil {
			return state.LockInfo{}, err
		}
		// A live holder notices with its next renewal; its writes fail from now on.
		if err := s.raiseFence(ctx, fence{epoch: now.Epoch + 1}); err != nil && !errors.Is(err, state.ErrFenced) {
			return state.LockInfo{}, fmt.Errorf("fence the former holder: %w", err)
		}
		return *now, nil
	}
}

// freed is the Lease without a holder. It keeps the epoch.
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

	// writing holds a value during a write, and guards unswept.
	writing chan struct{}
	// unswept: there may be parts that no head names.
	unswept bool

	mu       sync.Mutex // guards what follows
	released bool       // Unlock was called
	freed    bool       // and released the Lease

	// lease is the Lease as this holder last wrote it. It belongs to the renewing goroutine while that runs.
	lease *coordinationv1.Lease
}

// renewals per lease: two may fail before it is at risk.
const renewals = 3

// keep starts renewing. The lease counts from began.
func (l *lock) keep(began time.Time) {
	l.Keep(state.Renewal{Lease: l.store.lease, Every: l.store.lease / renewals, Renew: l.touch, Place: "the API server"}, began)
}

// over reports whether the lock is known to be lost or released.
func (l *lock) over() bool {
	if l.Why() != nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.released
}

// confirm returns state.ErrFenced if the Lease has another holder.
func (l *lock) confirm(ctx context.Context) error {
	lease, err := l.store.getLease(ctx)
	if err == nil && identity(lease) != identityOf(l.Info()) {
		return state.ErrFenced
	}
	return err
}

// touch renews once, or returns state.ErrFenced if the Lease has another holder or is gone. It ends before the next renewal.
func (l *lock) touch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.store.lease/renewals)
	defer cancel()
	return l.change(ctx, func(lease *coordinationv1.Lease) *coordinationv1.Lease {
		lease = lease.DeepCopy()
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		return lease
	})
}

// change updates the Lease while it belongs to this holder.
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
		l.lease = put // edited by hand, or by a request of ours whose answer was lost
	}
}

// Unlock releases the lock. If it was lost, there is nothing to release.
func (l *lock) Unlock(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.released = true
	if l.freed {
		return nil
	}
	if err := l.release(ctx); err != nil {
		return fmt.Errorf("unlock state %s: %w", l.store, err)
	}
	l.freed = true
	return nil
}

func (l *lock) release(ctx context.Context) error {
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
