package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/internal/soak"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/statetest"
	"github.com/eltrain/eltrain/testbed"
)

// cluster is shared by the tests of this package: each has a namespace of its own. Those that stop servers start
// their own.
var cluster *testbed.Cluster

// rights is the RBAC of an installation.
var rights = []string{"../../deploy/base/rbac.yaml"}

// testLease is short for tests that wait for its expiry, and longer than the pauses of an API server on a busy machine.
const testLease = 15 * time.Second

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if child := os.Getenv(childEnv); child != "" {
		return runChild(child)
	}
	flag.Parse()
	if testing.Short() {
		return m.Run()
	}
	// These tests mostly wait for leases.
	if err := flag.Set("test.parallel", "16"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var err error
	if cluster, err = testbed.Shared(testbed.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		return 1
	}
	code := m.Run()
	if err := cluster.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		code = 1
	}
	// HTTP clients keep idle connections and have no Close.
	if err := goleak.Find(
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"),
	); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// real skips a test with -short.
func real(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a Kubernetes control plane: not with -short")
	}
}

// place is one state in a namespace of its own, for an account with the permissions of an installation.
type place struct {
	t         *testing.T
	namespace string
	options   Options
}

func newPlace(t *testing.T, lacking ...testbed.Permission) *place {
	t.Helper()
	real(t)
	namespace := cluster.Namespace(t)
	kubeconfig := cluster.Kubeconfig(t, testbed.User{Namespace: namespace, Roles: rights, Without: lacking})
	return &place{t, namespace, Options{Kubeconfig: kubeconfig, Name: "training", Lease: testLease}}
}

func (p *place) open() *Store {
	p.t.Helper()
	s, err := New(p.options)
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

func (p *place) Open() state.Store    { return p.open() }
func (p *place) Lease() time.Duration { return p.options.Lease }

func (p *place) Silence(l state.Lock) {
	if err := l.(*lock).Halt(context.Background()); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) Resume(l state.Lock) { l.(*lock).keep(time.Now()) }

func TestConformance(t *testing.T) {
	t.Parallel()
	statetest.Run(t, func(t *testing.T) statetest.Opener { return newPlace(t) })
}

// The same with a state that is split over many Secrets.
func TestConformanceInParts(t *testing.T) {
	t.Parallel()
	statetest.Run(t, func(t *testing.T) statetest.Opener {
		p := newPlace(t)
		p.options.Inline, p.options.Part = 100, 200
		return p
	})
}

var who = state.LockInfo{Operation: "apply -watch", Who: "ada@host"}

// enough bounds the wait for expected events.
const enough = hang.Bound

func (p *place) lock(s *Store) *lock {
	p.t.Helper()
	l, err := s.Lock(p.t.Context(), who, enough)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if err := l.Unlock(context.Background()); err != nil && !p.t.Failed() {
			p.t.Errorf("unlock at the end: %v", err)
		}
	})
	return l.(*lock)
}

func (p *place) write(s *Store, next state.State, l state.Lock) state.State {
	p.t.Helper()
	if err := s.Write(p.t.Context(), next, l); err != nil {
		p.t.Fatalf("write serial %d: %v", next.Serial, err)
	}
	return p.read()
}

func (p *place) read() state.State {
	p.t.Helper()
	st, err := p.open().Read(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return st
}

// secrets lists the names of the Secrets in the namespace.
func (p *place) secrets() (names []string) {
	p.t.Helper()
	list, err := cluster.Admin().CoreV1().Secrets(p.namespace).List(p.t.Context(), metav1.ListOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, s := range list.Items {
		names = append(names, s.Name)
	}
	return names
}

// nothingLeft checks that there are no Secrets except the head that s wrote last and the parts that it names.
func (p *place) nothingLeft(s *Store) {
	p.t.Helper()
	want := []string{headName}
	for _, which := range []string{currentState, backupState} {
		d, _, err := described(s.knownHead(), which)
		if err != nil {
			p.t.Fatal(err)
		}
		want = append(want, d.Parts...)
	}
	sorted := cmpopts.SortSlices(strings.Compare)
	if diff := cmp.Diff(want, p.secrets(), sorted); diff != "" {
		p.t.Fatalf("Secrets (-named +there):\n%s", diff)
	}
}

const headName = "eltrain-state-training"

func (p *place) edit(edit func(*corev1.Secret)) {
	p.t.Helper()
	secrets := cluster.Admin().CoreV1().Secrets(p.namespace)
	head, err := secrets.Get(p.t.Context(), headName, metav1.GetOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	edit(head)
	if _, err := secrets.Update(p.t.Context(), head, metav1.UpdateOptions{}); err != nil {
		p.t.Fatal(err)
	}
}

// Random text does not compress, so this state needs more than one Secret of the largest size.
func TestStateBeyondOneSecret(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.open()
	l := p.lock(s)
	big := statetest.Records(1)
	noise := make([]byte, 2<<20)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(noise)
	big["gpt"].Spec.Roles[0].Program.Env["NOISE"] = fmt.Sprintf("%x", noise) // half a byte of noise in each character
	first := p.write(s, state.State{}.Next(big), l)
	if diff := cmp.Diff(big, first.Jobs, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("(-written +read):\n%s", diff)
	}
	if n := len(p.secrets()); n != 4 { // 256 KiB in the head and the rest of some 2.1 MiB in parts of 768 KiB
		t.Fatalf("%d Secrets: %v", n, p.secrets())
	}
	// The parts are kept while their state is the backup, and no longer.
	second := p.write(s, first.Next(nil), l)
	if n := len(p.secrets()); n != 4 {
		t.Fatalf("the backup's parts are missing: %v", p.secrets())
	}
	p.write(s, second.Next(nil), l)
	if n := len(p.secrets()); n != 1 {
		t.Fatalf("left over: %v", p.secrets())
	}
}

func TestTenThousandSlotsFitTheHead(t *testing.T) {
	_, content, err := encode(state.State{}.Next(statetest.Records(10_000)))
	if err != nil {
		t.Fatal(err)
	}
	if len(content) > DefaultInline {
		t.Fatalf("%d bytes; the head takes %d", len(content), DefaultInline)
	}
}

// A crash between any two requests of a write leaves the old state or the new one, and the leftovers are removed by the
// next holder's first write.
func TestCrashBetweenAnyTwoRequests(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	for after := 0; ; after++ {
		p := newPlace(t)
		p.options.Inline, p.options.Part = 100, 400
		s := p.open()
		l := p.lock(s)
		old := p.write(s, state.State{}.Next(statetest.Records(1)), l)
		old = p.write(s, old.Next(statetest.Records(2)), l)
		next := old.Next(statetest.Records(3))

		ctx, die := context.WithCancel(t.Context())
		requests := &dying{left: after, die: die}
		err := p.through(requests.trip).Write(ctx, next, l)
		die()
		now := p.read()
		if now.Serial != old.Serial && now.Serial != next.Serial {
			t.Fatalf("after %d requests serial %d is read", after, now.Serial)
		}
		if err == nil && now.Serial != next.Serial {
			t.Fatalf("after %d requests: no error, but the new state is missing", after)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		successor := p.open()
		sl := p.lock(successor)
		now = p.write(successor, now.Next(nil), sl)
		p.write(successor, now.Next(nil), sl)
		p.nothingLeft(successor)
		if !requests.died {
			if after < 6 {
				t.Fatalf("a write in parts took only %d requests", after)
			}
			return
		}
	}
}

// A holder that was suspended in the middle of a write, with its last request ready to be sent, can do no harm however
// late that arrives.
func TestLateWriteOfALostHolderIsRefused(t *testing.T) {
	for name, written := range map[string]int{"first write": 0, "later write": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.options.Lease = 6 * time.Second // a write is not retried for much longer than usual
			a, b := p.open(), p.open()
			first := p.lock(a)
			var before state.State
			for range written {
				before = p.write(a, before.Next(statetest.Records(1)), first)
			}
			held := stall(changesSecret)
			stopped := p.through(held.trip)
			late := make(chan error, 1)
			go func() { late <- stopped.Write(context.Background(), before.Next(statetest.Records(2)), first) }()
			held.await(t, late)
			p.Silence(first)
			second := p.lock(b)
			close(held.release)
			if err := <-late; !errors.Is(err, state.ErrFenced) {
				t.Fatalf("%v; want ErrFenced", err)
			}
			if diff := cmp.Diff(before, p.read(), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("the late write changed the state:\n%s", diff)
			}
			p.write(b, before.Next(nil), second)
		})
	}
}

// A holder that was suspended while it removed leftovers of older writes removes nothing of its successor's, not even
// parts that no head names yet.
func TestLateSweepOfALostHolderIsHarmless(t *testing.T) {
	for name, stop := range map[string]func(*http.Request) bool{"before the list": listsParts, "before a removal": removes} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.options.Inline, p.options.Part = 100, 400
			first := p.lock(p.open())
			ctx, die := context.WithCancel(t.Context())
			cut := p.through((&dying{left: 2, die: die}).trip)
			if err := cut.Write(ctx, state.State{}.Next(statetest.Records(3)), first); err == nil {
				t.Fatal("the write that is to leave parts was not cut short")
			}
			sweeping := stall(stop)
			stopped := p.through(sweeping.trip)
			late := make(chan error, 1)
			go func() { late <- stopped.Write(context.Background(), state.State{}.Next(statetest.Records(1)), first) }()
			sweeping.await(t, late)

			b := p.open()
			if _, err := b.Break(t.Context(), first.Info().ID); err != nil {
				t.Fatal(err)
			}
			second := p.lock(b)
			next := p.read().Next(statetest.Records(2))
			naming := stall(putsHead)
			successor := p.through(naming.trip)
			written := make(chan error, 1)
			go func() { written <- successor.Write(context.Background(), next, second) }()
			naming.await(t, written)

			close(sweeping.release)
			if err := <-late; err != nil {
				t.Errorf("the write that was stored before the lock was lost: %v", err)
			}
			close(naming.release)
			if err := <-written; err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(next.Jobs, p.read().Jobs, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("the late sweep changed the state:\n%s", diff)
			}
			p.nothingLeft(successor)
		})
	}
}

// A Read whose answer is late makes the store take an older head for the newest.
func TestASweepDoesNotTrustTheKnownHead(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.options.Inline, p.options.Part = 100, 400
	s := p.open()
	l := p.lock(s)
	want := p.write(s, state.State{}.Next(statetest.Records(1)), l)
	s.remember(nil) // like that Read
	l.unswept = true
	if err := s.tidy(t.Context(), l, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, p.read(), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("(-written +read):\n%s", diff)
	}
}

// After a lost answer the request is sent again; it then finds its own result.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.options.Inline, p.options.Part = 100, 400
	network := &lossy{}
	s := p.through(network.trip)
	l := p.lock(s)
	st := p.write(s, state.State{}.Next(statetest.Records(1)), l)
	st = p.write(s, st.Next(statetest.Records(2)), l)
	p.write(s, st.Next(nil), l)
	if network.lost.Load() < 8 {
		t.Fatalf("only %d answers were lost", network.lost.Load())
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if holder, err := s.Holder(t.Context()); holder != nil || err != nil {
		t.Fatalf("after unlock: %v, %v", holder, err)
	}
	if isLost(l) {
		t.Fatal("the holder took its own renewal for another's")
	}
}

// Errors of an API server that is overloaded or shutting down are retried.
func TestABusyAPIServerIsAskedAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.options.Lease = DefaultLease
	busy := &busy{}
	s := p.through(busy.trip)
	if err := doAll(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if n := busy.refused.Load(); n < 10 {
		t.Fatalf("only %d requests were refused", n)
	}
}

func isLost(l *lock) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

// The content of the Secret is never guessed at.
func TestDamageIsAnError(t *testing.T) {
	const back = "Its backup is intact (serial 1)"
	for name, c := range map[string]struct {
		edit func(*corev1.Secret)
		want []string
	}{
		"content edited":      {func(h *corev1.Secret) { h.Data["state"][20] ^= 1 }, []string{"changed after eltrain wrote it", back}},
		"content removed":     {func(h *corev1.Secret) { delete(h.Data, "state") }, []string{"0 with crc32c", back}},
		"description removed": {func(h *corev1.Secret) { delete(h.Annotations, "eltrain.dev/state") }, []string{"annotation eltrain.dev/state was removed", back}},
		"description edited":  {func(h *corev1.Secret) { h.Annotations["eltrain.dev/state"] = "?" }, []string{"is invalid", back}},
		"description emptied": {func(h *corev1.Secret) { h.Annotations["eltrain.dev/state"] = "{}" }, []string{"version, serial or lineage is missing", back}},
		"state removed": {func(h *corev1.Secret) { delete(h.Data, "state"); delete(h.Annotations, "eltrain.dev/state") },
			[]string{"its newest state was removed", back}},
		"backup wanted where there is none": {func(h *corev1.Secret) {
			delete(h.Data, "backup")
			delete(h.Annotations, "eltrain.dev/backup")
			h.Annotations["eltrain.dev/use"] = "backup"
		}, []string{"there is no such state"}},
		"another's Secret": {func(h *corev1.Secret) { h.Annotations, h.Data = nil, nil },
			[]string{"did not write", "There is no backup"}},
		"both edited": {func(h *corev1.Secret) { h.Data["state"][20] ^= 1; h.Data["backup"][20] ^= 1 },
			[]string{"changed after eltrain wrote it", "cannot be used either"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			s := p.open()
			l := p.lock(s)
			st := p.write(s, state.State{}.Next(statetest.Records(1)), l)
			st = p.write(s, st.Next(statetest.Records(2)), l)
			p.edit(c.edit)
			var damage *DamagedError
			_, err := p.open().Read(t.Context())
			if !errors.As(err, &damage) {
				t.Fatalf("%v; want a DamagedError", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in:\n%v", want, err)
				}
			}
			// Damage that shows without reading the content is not overwritten either.
			if strings.HasPrefix(name, "description") {
				if err := p.open().Write(t.Context(), st.Next(nil), l); !errors.As(err, &damage) {
					t.Errorf("a write over it: %v; want a DamagedError", err)
				}
			}
		})
	}
}

func TestMissingPartIsDamage(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.options.Inline, p.options.Part = 100, 400
	s := p.open()
	l := p.lock(s)
	st := p.write(s, state.State{}.Next(statetest.Records(1)), l)
	p.write(s, st.Next(statetest.Records(2)), l)
	d, _, err := described(s.knownHead(), currentState)
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Admin().CoreV1().Secrets(p.namespace).Delete(t.Context(), d.Parts[1], metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var damage *DamagedError
	if _, err := p.open().Read(t.Context()); !errors.As(err, &damage) || damage.BackupSerial != 1 || !strings.Contains(err.Error(), d.Parts[1]) {
		t.Fatalf("%v; want a DamagedError that names %s", err, d.Parts[1])
	}
}

// The recovery that the error names works, and ends with the next write.
func TestBackToTheBackup(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.options.Inline, p.options.Part = 100, 400
	s := p.open()
	l := p.lock(s)
	first := p.write(s, state.State{}.Next(statetest.Records(1)), l)
	p.write(s, first.Next(statetest.Records(2)), l)
	p.edit(func(h *corev1.Secret) {
		h.Data["state"][20] ^= 1
		h.Annotations["eltrain.dev/use"] = "backup"
	})
	if diff := cmp.Diff(first, p.read(), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("(-backup +read):\n%s", diff)
	}
	again := p.write(p.open(), first.Next(statetest.Records(3)), l)
	if again.Serial != 2 || len(again.Jobs["gpt"].Slots) != 3 {
		t.Fatalf("serial %d with %d slots is read after the write that followed the backup", again.Serial, len(again.Jobs["gpt"].Slots))
	}
	again = p.write(s, again.Next(nil), l)
	p.write(s, again.Next(nil), l)
	p.nothingLeft(s)
}

func TestNewerVersionIsRefused(t *testing.T) {
	p := newPlace(t)
	s := p.open()
	l := p.lock(s)
	st := p.write(s, state.State{}.Next(nil), l)
	p.edit(func(h *corev1.Secret) {
		h.Annotations["eltrain.dev/state"] = strings.Replace(h.Annotations["eltrain.dev/state"], `"version":2`, `"version":3`, 1)
	})
	var newer *state.VersionError
	if _, err := p.open().Read(t.Context()); !errors.As(err, &newer) || strings.Contains(err.Error(), "kubectl") {
		t.Errorf("read: %v; want a VersionError, and no advice to go back", err)
	}
	if err := p.open().Write(t.Context(), st.Next(nil), l); !errors.As(err, &newer) {
		t.Errorf("write: %v; want a VersionError", err)
	}
}

// A state that was removed under a running master is rewritten, and still fenced.
func TestRemovedByHandUnderAHolder(t *testing.T) {
	p := newPlace(t)
	s := p.open()
	l := p.lock(s)
	st := p.write(s, state.State{}.Next(statetest.Records(1)), l)
	if err := cluster.Admin().CoreV1().Secrets(p.namespace).Delete(t.Context(), headName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var stale *state.SerialError
	if err := s.Write(t.Context(), st.Next(nil), l); !errors.As(err, &stale) || stale.Stored != 0 {
		t.Fatalf("%v; want a SerialError over serial 0", err)
	}
	st.Serial = 0
	if st = p.write(s, st.Next(nil), l); st.Serial != 1 {
		t.Fatalf("serial %d", st.Serial)
	}
	if got := fenced(s.knownHead()); got != fenceOf(l.Info()) {
		t.Fatalf("the new head is fenced for %v, the lock is of %v", got, fenceOf(l.Info()))
	}
}

// Epochs keep growing if the Lease is removed; otherwise an old holder's could come again.
func TestLeaseRemovedByHand(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.open()
	l := p.lock(s)
	st := p.write(s, state.State{}.Next(nil), l)
	if err := cluster.Admin().CoordinationV1().Leases(p.namespace).Delete(t.Context(), headName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	second := p.lock(p.open())
	if second.Info().Epoch <= l.Info().Epoch {
		t.Fatalf("epoch %d after %d", second.Info().Epoch, l.Info().Epoch)
	}
	if err := s.Write(t.Context(), st.Next(nil), l); !errors.Is(err, state.ErrFenced) {
		t.Fatalf("%v; want ErrFenced", err)
	}
	select {
	case <-l.Lost():
	case <-time.After(enough):
		t.Fatal("Lost was not closed")
	}
}

// Two claims compute the same epoch if the Lease is removed between them. One of them gets the lock, and the other
// never holds anything.
func TestTwoClaimsOfOneEpoch(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	fencing := stall(changesSecret)
	slow := p.through(fencing.trip)
	answer := make(chan error, 1)
	go func() {
		_, err := slow.Lock(context.Background(), who, 0)
		answer <- err
	}()
	fencing.await(t, answer)
	if err := cluster.Admin().CoordinationV1().Leases(p.namespace).Delete(t.Context(), headName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s := p.open()
	l := p.lock(s)
	if l.Info().Epoch != 1 {
		t.Fatalf("the second claim is of epoch %d: the two differ", l.Info().Epoch)
	}
	close(fencing.release)
	var locked *state.LockedError
	if err := <-answer; !errors.As(err, &locked) || locked.Holder.ID != l.Info().ID {
		t.Fatalf("the first claim: %v; want a LockedError with the holder %s", err, l.Info().ID)
	}
	p.write(s, state.State{}.Next(statetest.Records(1)), l)
	if isLost(l) {
		t.Fatal("the first claim took the lock away")
	}
}

// A lock whose claim was answered only when the lease would have expired, as after a restart of the API server, is held for
// a whole lease from then on.
func TestAClaimThatIsAnsweredLateCountsAnew(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.options.Lease = 9 * time.Second
	answer := late{by: p.options.Lease}
	s := p.through(answer.trip)
	l := p.lock(s)
	if isLost(l) {
		t.Fatalf("it is lost from the start: %v", l.Why())
	}
	p.write(s, state.State{}.Next(statetest.Records(1)), l)
}

// The Lease shows who the master is: kubectl get leases.
func TestLeaseTellsPeople(t *testing.T) {
	p := newPlace(t)
	s := p.open()
	l := p.lock(s)
	lease, err := cluster.Admin().CoordinationV1().Leases(p.namespace).Get(t.Context(), headName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := identity(lease); got != "ada@host/"+l.Info().ID {
		t.Errorf("holderIdentity %q", got)
	}
	if *lease.Spec.LeaseTransitions != int32(l.Info().Epoch) || *lease.Spec.LeaseDurationSeconds != int32(testLease/time.Second) || lease.Spec.RenewTime == nil {
		t.Errorf("spec %+v of a lock of epoch %d", lease.Spec, l.Info().Epoch)
	}
	for _, want := range []string{"apply -watch", "ada@host", `"pid":`, `"created":`} {
		if !strings.Contains(lease.Annotations[annotationHolder], want) {
			t.Errorf("%s does not have %s: %s", annotationHolder, want, lease.Annotations[annotationHolder])
		}
	}
}

// A Lease that was acquired by other means is respected.
func TestLeaseTakenByHand(t *testing.T) {
	p := newPlace(t)
	s := p.open()
	l := p.lock(s)
	if err := l.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	patch := []byte(`{"spec":{"holderIdentity":"maintenance"}}`)
	if _, err := cluster.Admin().CoordinationV1().Leases(p.namespace).Patch(t.Context(), headName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	var locked *state.LockedError
	if _, err := s.Lock(t.Context(), who, 0); !errors.As(err, &locked) || locked.Holder.Who != "maintenance" {
		t.Fatalf("%v; want a LockedError that names the holder", err)
	}
}

// A held lock costs only its renewals, and a write of a small state one request.
func TestSteadyStateWritesOnlyRenewals(t *testing.T) {
	soak.Only(t)
	p := newPlace(t)
	requests := &counting{count: map[string]int{}}
	s := p.through(requests.trip)
	l := p.lock(s)
	st := p.write(s, state.State{}.Next(nil), l)
	const renewal = "PUT leases"
	requests.reset()
	begun := time.Now()
	time.Sleep(2 * testLease)
	counts, took := requests.counts(), time.Since(begun)
	// A renewal without an answer is sent again, after a read.
	const look = "GET leases"
	if n := counts[renewal]; n < renewals || n-counts[unanswered+renewal] > int(took*renewals/testLease)+1 {
		t.Errorf("%d renewals of a lease of %v in %v", n, testLease, took)
	}
	if counts[look] <= counts[unanswered+renewal]+counts[unanswered+look] {
		delete(counts, look)
	}
	for _, what := range []string{renewal, unanswered + renewal, unanswered + look} {
		delete(counts, what)
	}
	if len(counts) > 0 {
		t.Errorf("besides renewals: %v", counts)
	}
	requests.reset()
	p.write(s, st.Next(nil), l)
	counts = requests.counts()
	delete(counts, renewal)
	delete(counts, unanswered+renewal)
	if diff := cmp.Diff(map[string]int{"PUT secrets": 1}, counts); diff != "" {
		t.Errorf("requests of a write (-want +got):\n%s", diff)
	}
}

func TestAMissingRightIsNamed(t *testing.T) {
	for _, c := range []struct {
		verb, resource, name string
		doing                string
	}{
		{"get", "secrets", headName, "read"},
		{"get", "leases", headName, "lock"},
		{"create", "leases", headName, "lock"},
		{"update", "leases", headName, "lock again"},
		{"create", "secrets", headName, "lock"},
		{"update", "secrets", headName, "lock again"},
		{"list", "secrets", "", "write"},
		{"delete", "secrets", headName + "-", "write thrice"},
	} {
		t.Run(c.verb+" "+c.resource, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, testbed.Permission{Verb: c.verb, Resource: c.resource})
			p.options.Inline, p.options.Part = 100, 200
			err := doAll(t.Context(), p.open())
			var missing *ForbiddenError
			if !errors.As(err, &missing) {
				t.Fatalf("%s: %v; want a ForbiddenError", c.doing, err)
			}
			for _, want := range []string{c.verb, c.resource, p.namespace, c.name} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in %q", want, err)
				}
			}
			if missing.Verb != c.verb || missing.Resource != c.resource {
				t.Errorf("%s %s is named", missing.Verb, missing.Resource)
			}
		})
	}
}

// doAll performs all operations of a store.
func doAll(ctx context.Context, s *Store) error {
	st, err := s.Read(ctx)
	if err != nil {
		return err
	}
	for range 2 {
		l, err := s.Lock(ctx, who, 0)
		if err != nil {
			return err
		}
		for range 3 {
			st = st.Next(statetest.Records(2))
			if err = s.Write(ctx, st, l); err != nil {
				break
			}
		}
		if err := errors.Join(err, l.Unlock(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// There are other reasons for 403 than a missing permission; they are reported as they are.
func TestANamespaceThatEndsIsNotCalledAMissingRight(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	admin := cluster.Admin().CoreV1()
	// A finalizer keeps the namespace terminating.
	keeper := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "keeper", Finalizers: []string{"eltrain.dev/test"}}}
	if _, err := admin.ConfigMaps(p.namespace).Create(t.Context(), keeper, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := admin.Namespaces().Delete(t.Context(), p.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		admin.ConfigMaps(p.namespace).Patch(context.Background(), "keeper", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	// The Role is deleted with the namespace, so its rules are granted to an account of another one, as a ClusterRole.
	installed, err := os.ReadFile(rights[0])
	if err != nil {
		t.Fatal(err)
	}
	everywhere := filepath.Join(t.TempDir(), "rbac.yaml")
	if err := os.WriteFile(everywhere, bytes.ReplaceAll(installed, []byte("\nkind: Role\n"), []byte("\nkind: ClusterRole\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	p.options.Kubeconfig = cluster.Kubeconfig(t, testbed.User{Namespace: cluster.Namespace(t), Roles: []string{everywhere}})
	p.options.Namespace = p.namespace
	_, err = p.open().Lock(t.Context(), who, 0)
	if err == nil || errors.As(err, new(*ForbiddenError)) || !strings.Contains(err.Error(), "being terminated") {
		t.Fatalf("%v", err)
	}
}

func TestATokenThatIsNotAcceptedIsSaid(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	config, err := clientcmd.LoadFromFile(p.options.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Token += "x"
	}
	p.options.Kubeconfig = t.TempDir() + "/kubeconfig"
	if err := clientcmd.WriteToFile(*config, p.options.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	if _, err := p.open().Read(t.Context()); !apierrors.IsUnauthorized(err) || !strings.Contains(err.Error(), "may have expired") {
		t.Fatalf("%v; want an error that says that the token is not accepted", err)
	}
}

// An API server that comes back after a while refuses everybody at first: that is no missing permission, however long it
// was away.
func TestARefusalRightAfterARestartIsNotBelieved(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	p := newPlace(t)
	back := time.Now().Add(refusalStands + time.Second)
	s := p.through((&restarting{back: back, settled: back.Add(refusalStands / 2)}).trip)
	if _, err := s.Read(t.Context()); err != nil {
		t.Errorf("the temporary refusal was believed: %v", err)
	}
	now := time.Now()
	s = p.through((&restarting{back: now, settled: now.Add(time.Hour)}).trip)
	if _, err := s.Read(t.Context()); !errors.As(err, new(*ForbiddenError)) {
		t.Errorf("a permanent refusal is reported as %v", err)
	}
	if took := time.Since(now); took > patience {
		t.Errorf("a permanent refusal was retried for %v", took)
	}
}

// Nobody took the lock: the person has to log in again.
func TestALockThatATokenLostSaysSo(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	token := &expiring{}
	s := p.through(token.trip)
	l := p.lock(s)
	token.expired.Store(true)
	select {
	case <-l.Lost():
	case <-time.After(enough):
		t.Fatal("Lost was not closed")
	}
	why := l.Why()
	if why == nil || errors.Is(why, state.ErrFenced) || !strings.Contains(why.Error(), "the token may have expired") {
		t.Errorf("it was lost because: %v", why)
	}
	token.expired.Store(false) // for the cleanup
}

// If an API server refused and then does not answer anymore, the error is the refusal.
func TestALockThatWasRefusedSaysSo(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	refusal := &refusing{}
	s := p.through(refusal.trip)
	l := p.lock(s)
	refusal.from.Store(true)
	select {
	case <-l.Lost():
	case <-time.After(enough):
		t.Fatal("Lost was not closed")
	}
	if why := l.Why(); why == nil || errors.As(why, new(*ForbiddenError)) || !strings.Contains(why.Error(), "User cannot update resource leases") {
		t.Errorf("it was lost because: %v", why)
	}
	refusal.from.Store(false) // for the cleanup
}

func TestNames(t *testing.T) {
	for name, valid := range map[string]bool{
		"training": true, "a": true, "a-1": true, strings.Repeat("a", 63): true,
		"": false, "Training": false, "a_b": false, "-a": false, "a-": false, "a.b": false, strings.Repeat("a", 64): false,
	} {
		kubeconfig := t.TempDir() + "/kubeconfig"
		if err := os.WriteFile(kubeconfig, []byte(someKubeconfig), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := New(Options{Kubeconfig: kubeconfig, Name: name})
		if (err == nil) != valid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

const someKubeconfig = `{"apiVersion": "v1", "kind": "Config", "current-context": "c",
	"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
	"contexts": [{"name": "c", "context": {"cluster": "c", "namespace": "here"}}]}`

func TestDecodeRefusesWhatEncodeDidNotMake(t *testing.T) {
	want := state.State{}.Next(statetest.Records(2))
	d, content, err := encode(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decode(d, content)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Fatalf("%v\n%s", err, diff)
	}
	for at := range content {
		damaged := bytes.Clone(content)
		damaged[at] ^= 0x40
		if _, err := decode(d, damaged); err == nil {
			t.Fatalf("a flipped bit in byte %d is not seen", at)
		}
	}
	for _, cut := range [][]byte{nil, content[:1], content[:len(content)-1], append(bytes.Clone(content), 0)} {
		if _, err := decode(d, cut); err == nil {
			t.Fatalf("%d of %d bytes are taken for all", len(cut), len(content))
		}
	}
}
