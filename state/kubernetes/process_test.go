package kubernetes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/soak"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/statetest"
	"github.com/eltrain/eltrain/testbed"
)

// childEnv makes this test binary another process that takes the lock; its value is the kubeconfig to use.
const childEnv = "ELTRAIN_STATE_TEST_KUBECONFIG"

// runChild takes the lock, reports it, writes states until it is killed, and reports each that is stored.
func runChild(kubeconfig string) int {
	err := childWrite(context.Background(), kubeconfig)
	fmt.Println("error:", err)
	return 1
}

func childWrite(ctx context.Context, kubeconfig string) error {
	s, err := New(Options{Kubeconfig: kubeconfig, Name: "training", Lease: testLease})
	if err != nil {
		return err
	}
	l, err := s.Lock(ctx, who, enough)
	if err != nil {
		return err
	}
	fmt.Println("epoch", l.Info().Epoch)
	for {
		st, err := s.Read(ctx)
		if err != nil {
			return err
		}
		if err := s.Write(ctx, st.Next(statetest.Records(20)), l); err != nil {
			return err
		}
		fmt.Println("serial", st.Serial+1)
	}
}

type child struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Reader
}

func (p *place) child() *child {
	p.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	c := &child{t: p.t, cmd: exec.Command(exe)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+p.options.Kubeconfig)
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(c.kill)
	return c
}

// kill kills the child with SIGKILL and waits for it; a second call does nothing.
func (c *child) kill() {
	if c.cmd.ProcessState == nil {
		c.cmd.Process.Kill()
		c.cmd.Wait()
	}
}

// number reads a line "what N".
func (c *child) number(what string) (n uint64) {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("the child said %q, then: %v", line, err)
	}
	if _, err := fmt.Sscanf(strings.TrimSpace(line), what+" %d", &n); err != nil {
		c.t.Fatalf("the child said %q, want %s", line, what)
	}
	return n
}

// Two masters: the second one waits, and takes over within the lease after the first was killed. Everything that the
// first reported as stored is there.
func TestTheOtherMasterTakesOverWithinTheLease(t *testing.T) {
	soak.Only(t)
	p := newPlace(t)
	first := p.child()
	epoch := first.number("epoch")
	last := first.number("serial")

	type taken struct {
		l   state.Lock
		err error
	}
	waiting := make(chan taken, 1)
	second := p.open()
	go func() {
		l, err := second.Lock(context.Background(), who, 2*enough)
		waiting <- taken{l, err}
	}()
	for stop := time.Now().Add(2 * testLease); time.Now().Before(stop); {
		last = first.number("serial")
	}
	select {
	case got := <-waiting:
		t.Fatalf("the lock of a living master was taken: %v", got.err)
	default:
	}
	first.kill()
	killed := time.Now()
	got := <-waiting
	if got.err != nil {
		t.Fatal(got.err)
	}
	// The lease counts from the last renewal that was seen; two reads and a busy machine add to it.
	if took := time.Since(killed); took > 2*testLease {
		t.Errorf("taken over after %v; the lease is %v", took, testLease)
	}
	if got.l.Info().Epoch <= epoch {
		t.Errorf("epoch %d after %d", got.l.Info().Epoch, epoch)
	}
	st := p.read()
	if st.Serial < last {
		t.Fatalf("serial %d is read, %d was reported as stored", st.Serial, last)
	}
	p.write(second, st.Next(nil), got.l)
	if err := got.l.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// An API server that is slow to answer does not keep a dead master's jobs without a master: the time between two reads
// counts, though each takes a quarter of the lease.
func TestASlowAPIServerDelaysNoTakeOver(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	p := newPlace(t)
	dead := p.lock(p.open())
	if err := dead.Halt(t.Context()); err != nil {
		t.Fatal(err)
	}
	slow := p.through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if looksAtLease(r) {
			time.Sleep(testLease / 4)
		}
		return next.RoundTrip(r)
	})
	begun := time.Now()
	l, err := slow.Lock(t.Context(), who, enough)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < testLease || took > testLease*5/2 {
		t.Errorf("taken over after %v; the lease is %v", took, testLease)
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A release is noticed at the next read, long before the lease expires.
func TestARollingUpdateDoesNotWaitForTheLease(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.options.Lease = 2 * enough
	l := p.lock(p.open())
	got := make(chan error, 1)
	go func() {
		l, err := p.open().Lock(context.Background(), who, enough)
		if err == nil {
			err = l.Unlock(context.Background())
		}
		got <- err
	}()
	time.Sleep(time.Second) // it waits by now, which makes the test harder; it would pass without
	if err := l.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

// An API server that is killed and comes back within the lease costs nobody the lock, and an interrupted write is
// completed once it is back.
func TestAPIServerRestart(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	real(t)
	own := testbed.Start(t, testbed.Options{})
	namespace := own.Namespace(t)
	kubeconfig := own.Kubeconfig(t, testbed.User{Namespace: namespace, Roles: rights})
	s, err := New(Options{Kubeconfig: kubeconfig, Name: "training", Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Lock(t.Context(), who, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(t.Context(), state.State{}.Next(nil), l); err != nil {
		t.Fatal(err)
	}
	st, err := s.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own.APIServer.Kill(t)
	killed := time.Now()
	written := make(chan error, 1)
	go func() { written <- s.Write(context.Background(), st.Next(nil), l) }()
	own.APIServer.Start(t)
	if err := <-written; err != nil && time.Since(killed) > patience { // on a busy machine this may take longer than a write is retried
		err = s.Write(t.Context(), st.Next(nil), l)
		if err != nil {
			t.Errorf("the write after the one that the restart hit: %v", err)
		}
	} else if err != nil {
		t.Errorf("the write that the restart hit: %v", err)
	}
	if isLost(l.(*lock)) {
		t.Error("the lock was lost")
	}
	if now, err := s.Read(t.Context()); err != nil || now.Serial != 2 {
		t.Errorf("serial %d, %v", now.Serial, err)
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// Without an API server nothing hangs, and the holder notices in time that it is no longer the master.
func TestAPIServerGone(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	real(t)
	own := testbed.Start(t, testbed.Options{})
	namespace := own.Namespace(t)
	kubeconfig := own.Kubeconfig(t, testbed.User{Namespace: namespace, Roles: rights})
	s, err := New(Options{Kubeconfig: kubeconfig, Name: "training", Lease: testLease})
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Lock(t.Context(), who, 0)
	if err != nil {
		t.Fatal(err)
	}
	own.APIServer.Kill(t)
	killed := time.Now()
	select {
	case <-l.Lost():
	case <-time.After(enough):
		t.Fatal("Lost was not closed")
	}
	if why := l.Why(); why == nil || errors.Is(why, state.ErrFenced) || !strings.Contains(why.Error(), "not renewed for") {
		t.Errorf("it was lost because: %v", why)
	}
	if took := time.Since(killed); took > 2*testLease {
		t.Errorf("closed %v after the last chance to renew; the lease is %v", took, testLease)
	}
	if err := s.Write(t.Context(), state.State{}.Next(nil), l); !errors.Is(err, state.ErrFenced) {
		t.Errorf("a write: %v; want ErrFenced", err)
	}
	begun := time.Now()
	if _, err := s.Read(t.Context()); err == nil || time.Since(begun) > 2*patience {
		t.Errorf("a read took %v: %v", time.Since(begun), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := l.Unlock(ctx); err == nil {
		t.Error("unlock without an API server: no error")
	}
}
