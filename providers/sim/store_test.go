package sim_test

import (
	"context"
	"errors"
	"time"

	"github.com/eltrain/eltrain/providers/sim"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/memory"
)

// The lease of the state's lock, and the parts of it after which its holder renews it and others check it, as in the real
// stores.
const (
	leaseTime = 15 * time.Second
	renewals  = 3
	looks     = 20
)

// store is the state's store, which masters reach over the net. Writes follow the memory store, which passes the suite of all
// stores. The lock is a lease on the virtual clock, by the rule of the file and Kubernetes stores: a waiting process takes
// over once it has seen the same lease for the lease's duration, by its own clock.
type store struct {
	*memory.Store
	remote  bool       // a holder's death is not noticed, as on another machine
	lock    state.Lock // the newest; nil if it is free
	holder  *master    // of lock
	version int        // of the lease: changes with each renewal and each holder
	epoch   uint64     // of the newest holder
}

var (
	errFaster   = errors.New("somebody was faster, or the holder has woken up")
	errConflict = errors.New("the object has been modified")
)

// look returns what a waiting process sees: whether the lock is free, or else the lease's version.
func (s *store) look() (version int, free bool) {
	return s.version, s.lock == nil || s.holder.dead && !s.remote
}

// claim gives the lock to a master, if the lease has not changed since look.
func (s *store) claim(m *master, judged int) (state.Lock, error) {
	if s.version != judged {
		return nil, errFaster
	}
	s.Silence()
	lock, err := s.Lock(context.Background(), state.LockInfo{Operation: "apply -watch", Who: m.name, Created: m.now()}, 0)
	if err != nil {
		return nil, err
	}
	s.lock, s.holder, s.epoch = lock, m, lock.Info().Epoch
	s.version++
	return lock, nil
}

// renew renews a lock's lease.
func (s *store) renew(lock state.Lock) error {
	if s.lock == nil || s.lock.Info().ID != lock.Info().ID {
		return state.ErrFenced
	}
	s.version++
	return nil
}

// unlock releases a lock, if it is still held.
func (s *store) unlock(lock state.Lock) {
	if s.renew(lock) == nil {
		lock.Unlock(context.Background())
		s.lock, s.holder = nil, nil
	}
}

// breakLock takes the lock from its holder, as force-unlock does.
func (s *store) breakLock() {
	if s.lock != nil {
		s.Break(context.Background(), s.lock.Info().ID)
		s.lock, s.holder = nil, nil
		s.version++
		s.epoch++ // the fence that force-unlock raises
	}
}

// standBy makes a master wait for the lock, and lead once it has it.
func (m *master) standBy() {
	type seen struct {
		version int
		free    bool
	}
	sim.Call(m.w.cluster.Net, m.name, "store", leaseTime/renewals, func(answer func(seen, error)) {
		version, free := m.w.store.look()
		answer(seen{version, free}, m.w.trouble("lock"))
	}, heard(m, func(s seen, err error) {
		switch {
		case err != nil:
			m.after(leaseTime/looks, m.standBy)
		case s.free || m.silence.Observe(s.version, m.w.cluster.Now(), leaseTime/renewals) >= leaseTime:
			m.claim(s.version)
		default:
			m.after(leaseTime/looks, m.standBy)
		}
	}))
}

// claim makes a master take the lock, read the state and lead. An error ends the master, and another is started.
func (m *master) claim(judged int) {
	began := m.w.cluster.Now()
	sim.Call(m.w.cluster.Net, m.name, "store", leaseTime, func(answer func(state.Lock, error)) {
		if err := m.w.trouble("lock"); err != nil {
			answer(nil, err)
			return
		}
		answer(m.w.store.claim(m, judged))
	}, heard(m, func(lock state.Lock, err error) {
		m.silence = state.Silence[int]{}
		if err != nil {
			m.after(leaseTime/looks, m.standBy)
			return
		}
		m.lock = lock
		m.keep(began)
		m.read(func(stored state.State, err error) {
			if err != nil {
				m.end(err)
				return
			}
			m.lead(stored)
		})
	}))
}

// read asks the store for the state.
func (m *master) read(done func(state.State, error)) {
	sim.Call(m.w.cluster.Net, m.name, "store", storeBound, func(answer func(state.State, error)) {
		if err := m.w.trouble("read"); err != nil {
			answer(state.State{}, err)
			return
		}
		answer(m.w.store.Read(context.Background()))
	}, heard(m, done))
}

// keep renews the lock, and considers it lost once it could not be renewed for the duration of a lease.
func (m *master) keep(began time.Time) {
	m.expires = began.Add(leaseTime)
	m.expire()
	m.after(began.Add(leaseTime/renewals).Sub(m.w.cluster.Now()), m.renew)
}

func (m *master) renew() {
	began, lock := m.w.cluster.Now(), m.lock
	sim.Call(m.w.cluster.Net, m.name, "store", leaseTime/renewals, func(answer func(struct{}, error)) {
		err := m.w.trouble("lock")
		if err == nil {
			err = m.w.store.renew(lock)
		}
		answer(struct{}{}, err)
	}, heard(m, func(_ struct{}, err error) {
		if errors.Is(err, state.ErrFenced) {
			m.lost(err)
			return
		}
		if err == nil && m.w.cluster.Now().Before(m.expires) { // an expired lease stays expired
			m.expires = began.Add(leaseTime)
		}
		m.after(began.Add(leaseTime/renewals).Sub(m.w.cluster.Now()), m.renew)
	}))
}

// expire checks whether the lease has expired. A process that was suspended notices it only after it has done what it was
// about to do.
func (m *master) expire() {
	m.after(m.expires.Sub(m.w.cluster.Now()), func() {
		if m.w.cluster.Now().Before(m.expires) {
			m.expire()
			return
		}
		m.after(0, func() { m.lost(errors.New("it could not be renewed")) })
	})
}
