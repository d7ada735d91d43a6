package file

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/statetest"
)

// These tests run real processes: this test binary, started again with childEnv set to its task.
const (
	childEnv = "ELTRAIN_STATE_TEST_CHILD"
	dirEnv   = "ELTRAIN_STATE_TEST_DIR"
	leaseEnv = "ELTRAIN_STATE_TEST_LEASE"
)

var children = map[string]func(dir string) error{
	"write": childWrite,
	"hold":  childHold,
	"full":  childFull,
}

func runChild(name string) int {
	if err := children[name](os.Getenv(dirEnv)); err != nil {
		fmt.Println("error:", err)
		return 1
	}
	return 0
}

func childStore(dir string) (*Store, error) {
	lease, err := time.ParseDuration(os.Getenv(leaseEnv))
	if err != nil {
		return nil, err
	}
	return New(filepath.Join(dir, "eltrain.state"), Options{Lease: lease})
}

// child is a process that reports on its output, one line at a time.
type child struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	done bool
}

func start(t *testing.T, what, dir string, lease time.Duration) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.Command(exe)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+what, dirEnv+"="+dir, leaseEnv+"="+lease.String())
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	return c
}

// kill kills the child with SIGKILL and waits for it. A second call does nothing.
func (c *child) kill() {
	if c.done {
		return
	}
	c.done = true
	c.cmd.Process.Kill()
	c.cmd.Wait()
}

func (c *child) line() string {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("the child said %q, then: %v", line, err)
	}
	return strings.TrimSpace(line)
}

func (c *child) expect(want string) {
	c.t.Helper()
	if got := c.line(); got != want {
		c.t.Fatalf("the child said %q, want %q", got, want)
	}
}

func (c *child) say(line string) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.in, line); err != nil {
		c.t.Fatal(err)
	}
}

// update is one record that a writing child adds to the journal before it writes the state of that serial.
type update struct {
	Writer string `json:"writer"` // its lock
	Serial uint64 `json:"serial"`
	Fill   string `json:"fill"`
}

var crashJournal = state.JournalOptions{FileSize: 20 << 10, Files: 100_000}

// childWrite writes states and journal records forever and reports which ones are done.
func childWrite(dir string) error {
	s, err := childStore(dir)
	if err != nil {
		return err
	}
	ctx := context.Background()
	// The lease is an hour, so this shows that a killed predecessor does not block.
	l, err := s.Lock(ctx, state.LockInfo{Operation: "write", Who: "child"}, 20*time.Second)
	if err != nil {
		return err
	}
	j, err := state.OpenJournal(filepath.Join(dir, "journal"), crashJournal)
	if err != nil {
		return err
	}
	st, err := s.Read(ctx)
	if err != nil {
		return err
	}
	fmt.Println("locked")
	for {
		st = st.Next(statetest.Records(20))
		u := update{Writer: l.Info().ID, Serial: st.Serial}
		if st.Serial%7 == 0 {
			u.Fill = strings.Repeat("x", 6<<10) // compressed
		}
		data, err := json.Marshal(u)
		if err != nil {
			return err
		}
		if err := j.Append(state.Entry{Kind: "update", Data: data}, state.Entry{Kind: "other"}); err != nil {
			return err
		}
		if err := s.Write(ctx, st, l); err != nil {
			return err
		}
		fmt.Println("done", u.Writer, u.Serial)
	}
}

func TestKill9AtAnyInstantLosesAndDuplicatesNothing(t *testing.T) {
	dir := memoryDir(t)
	s := open(t, filepath.Join(dir, "eltrain.state"), Options{})
	reader := state.Reader{Dir: filepath.Join(dir, "journal"), Damaged: func(d state.Damage) {
		if d.Bytes == 0 || !strings.Contains(d.Reason, "checksum") {
			t.Error(d) // a torn tail may be seen until the next writer removes it; nothing else may
		}
	}}
	// Like `eltrain events -f`, in a process other than the writers.
	followed := make(chan uint64, 1<<20)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- state.Reader{Dir: reader.Dir}.Follow(ctx, 1, func(e state.Entry) error { followed <- e.Seq; return nil })
	}()

	done := map[update]bool{}
	var newest, epoch uint64
	const kills = 70
	for i := range kills {
		c := start(t, "write", dir, time.Hour)
		acknowledged := func() bool {
			line, err := c.out.ReadString('\n')
			if err != nil {
				return false // a cut line was not acknowledged
			}
			var u update
			if n, _ := fmt.Sscanf(line, "done %s %d", &u.Writer, &u.Serial); n == 2 {
				done[u] = true
				newest = max(newest, u.Serial)
			} else if line != "locked\n" {
				t.Fatal(line)
			}
			return true
		}
		if i%5 > 0 { // otherwise it is killed while it starts
			c.expect("locked")
			for range rand.IntN(5) { // however fast this machine is
				acknowledged()
			}
		}
		time.Sleep(time.Duration(rand.IntN(10_000)) * time.Microsecond)
		c.cmd.Process.Kill()
		for acknowledged() {
		}
		c.kill()

		st, err := s.Read(t.Context())
		if err != nil {
			t.Fatalf("kill %d: %v", i, err)
		}
		if st.Serial < newest || st.Serial > newest+1 || st.Epoch < epoch {
			t.Fatalf("kill %d: serial %d, %d was acknowledged; epoch %d after %d", i, st.Serial, newest, st.Epoch, epoch)
		}
		newest, epoch = st.Serial, st.Epoch // written, though possibly not acknowledged
	}
	if newest < kills {
		t.Fatalf("only %d writes in %d rounds", newest, kills)
	}
	// The last writer's torn tail is removed by this one.
	j, err := state.OpenJournal(reader.Dir, crashJournal)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	count := map[update]int{}
	last := uint64(0)
	err = reader.Read(1, func(e state.Entry) error {
		if e.Seq != last+1 {
			return fmt.Errorf("record %d after %d", e.Seq, last)
		}
		last = e.Seq
		if e.Kind != "update" {
			return nil
		}
		var u update
		if err := json.Unmarshal(e.Data, &u); err != nil {
			return err
		}
		count[update{Writer: u.Writer, Serial: u.Serial}]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for u := range done {
		if count[u] != 1 {
			t.Errorf("the acknowledged record %+v is in the journal %d times", u, count[u])
		}
	}
	for u, n := range count {
		if n > 1 {
			t.Errorf("record %+v is in the journal %d times", u, n)
		}
	}
	for want := uint64(1); want <= last; want++ {
		select {
		case got := <-followed:
			if got != want {
				t.Fatalf("followed record %d, want %d", got, want)
			}
		case <-time.After(hang.Bound):
			t.Fatalf("record %d of %d was not followed", want, last)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}

	left := names(t, dir)
	l := take(t, s)
	if err := l.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(names(t, dir), " "); got != ".eltrain eltrain.state eltrain.state.backup journal" {
		t.Errorf("left behind: %s (before the last lock: %v)", got, left)
	}
	t.Logf("%d kills, %d writes acknowledged, %d journal records", kills, len(done), last)
}

// childHold takes the lock and then executes commands, one per line.
func childHold(dir string) error {
	s, err := childStore(dir)
	if err != nil {
		return err
	}
	ctx := context.Background()
	l, err := s.Lock(ctx, state.LockInfo{Operation: "hold", Who: "child"}, 20*time.Second)
	if err != nil {
		return err
	}
	fmt.Println("locked")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		switch in.Text() {
		case "write":
			st, err := s.Read(ctx)
			if err != nil {
				return err
			}
			err = s.Write(ctx, st.Next(nil), l)
			switch {
			case errors.Is(err, state.ErrFenced):
				fmt.Println("fenced")
			case err != nil:
				return err
			default:
				fmt.Println("written")
			}
		case "lost?":
			<-l.Lost()
			fmt.Println("lost")
		case "unlock":
			if err := l.Unlock(ctx); err != nil {
				return err
			}
			fmt.Println("unlocked")
		}
	}
	return in.Err()
}

func TestKilledHolderDoesNotBlock(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "eltrain.state"), Options{})
	c := start(t, "hold", dir, time.Hour)
	c.expect("locked")
	var locked *state.LockedError
	if _, err := s.Lock(t.Context(), state.LockInfo{}, 0); !errors.As(err, &locked) || locked.Holder.PID != c.cmd.Process.Pid {
		t.Fatalf("%v; want a LockedError with the child's PID", err)
	}
	c.cmd.Process.Kill()
	// EOF shows that it exited; it is a zombie now, since nobody has waited for it.
	if rest, err := io.ReadAll(c.out); err != nil || len(rest) > 0 {
		t.Fatalf("%q, %v", rest, err)
	}
	l, err := s.Lock(t.Context(), state.LockInfo{}, 20*time.Second)
	if err != nil {
		t.Fatalf("a zombie blocks: %v", err)
	}
	defer l.Unlock(t.Context())
	if l.Info().Epoch != locked.Holder.Epoch+1 {
		t.Fatalf("epoch %d after %d", l.Info().Epoch, locked.Holder.Epoch)
	}
}

func TestStoppedHolderIsTakenOverAndFencedWhenItWakes(t *testing.T) {
	const lease = 5 * time.Second
	dir := memoryDir(t)
	s := open(t, filepath.Join(dir, "eltrain.state"), Options{})
	c := start(t, "hold", dir, lease)
	c.expect("locked")
	c.say("write")
	c.expect("written")
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	l, err := s.Lock(t.Context(), state.LockInfo{}, time.Minute)
	if err != nil {
		t.Fatalf("a suspended holder blocks: %v", err)
	}
	defer l.Unlock(t.Context())
	// It may have renewed just before it was suspended, but the watch began after that.
	if waited := time.Since(begin); waited < lease {
		t.Fatalf("taken over after %v; the lease is %v", waited, lease)
	}
	c.say("write")
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.expect("fenced")
	c.say("lost?")
	c.expect("lost")
	c.say("unlock")
	c.expect("unlocked")
	st, err := s.Read(t.Context())
	if err != nil || st.Serial != 1 {
		t.Fatalf("serial %d, %v; the fenced write came through", st.Serial, err)
	}
	if err := s.Write(t.Context(), st.Next(nil), l); err != nil {
		t.Fatalf("the fenced holder's unlock took the successor's lock: %v", err)
	}
}

// fullDisk performs, in a directory with room for some 64 KiB, what a full disk must not break.
func fullDisk(dir string) error {
	ctx := context.Background()
	s, err := New(filepath.Join(dir, "eltrain.state"), Options{Lease: time.Hour})
	if err != nil {
		return err
	}
	l, err := s.Lock(ctx, state.LockInfo{}, 0)
	if err != nil {
		return err
	}
	small := state.State{}.Next(statetest.Records(1))
	if err := s.Write(ctx, small, l); err != nil {
		return err
	}
	before, err := os.ReadFile(s.Path())
	if err != nil {
		return err
	}
	for range 3 {
		err := s.Write(ctx, small.Next(statetest.Records(500)), l)
		if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EFBIG) || !strings.HasPrefix(err.Error(), "write state "+s.Path()) {
			return fmt.Errorf("a write that cannot fit: %v", err)
		}
		after, err := os.ReadFile(s.Path())
		if err != nil || string(after) != string(before) {
			return fmt.Errorf("the old state changed: %v", err)
		}
		if temps, err := filepath.Glob(filepath.Join(dir, ".*.tmp")); err != nil || len(temps) > 0 {
			return fmt.Errorf("temporary files stay: %v %v", temps, err)
		}
	}
	if err := s.Write(ctx, small.Next(nil), l); err != nil {
		return fmt.Errorf("a write that fits, afterwards: %w", err)
	}
	if err := fullJournal(filepath.Join(dir, "journal")); err != nil {
		return err
	}
	// Even with no space left the lock can be released.
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		return err
	}
	defer filler.Close()
	for err == nil {
		_, err = filler.Write(make([]byte, 1024))
	}
	if err := l.Unlock(ctx); err != nil {
		return err
	}
	if holder, err := s.Holder(ctx); holder != nil || err != nil {
		return fmt.Errorf("after unlock on a full disk: %v, %v", holder, err)
	}
	return nil
}

func fullJournal(dir string) error {
	j, err := state.OpenJournal(dir, state.JournalOptions{})
	if err != nil {
		return err
	}
	defer j.Close()
	noise := make([]byte, 100<<10) // incompressible, so that it cannot fit
	for i := range noise {
		noise[i] = byte('a' + rand.IntN(26))
	}
	big, err := json.Marshal(string(noise))
	if err != nil {
		return err
	}
	var want []string
	for i := range 3 {
		kind := fmt.Sprint("small", i)
		if err := j.Append(state.Entry{Kind: kind}); err != nil {
			return err
		}
		want = append(want, kind)
		if err := j.Append(state.Entry{Kind: "lost"}, state.Entry{Kind: "big", Data: big}); !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EFBIG) {
			return fmt.Errorf("an append that cannot fit: %v", err)
		}
	}
	var got []string
	r := state.Reader{Dir: dir, Damaged: func(d state.Damage) { got = append(got, d.String()) }}
	if err := r.Read(1, func(e state.Entry) error { got = append(got, e.Kind); return nil }); err != nil {
		return err
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		return fmt.Errorf("the journal holds %v, want %v", got, want)
	}
	return nil
}

func childFull(dir string) error {
	signal.Ignore(syscall.SIGXFSZ)
	const most = 64 << 10
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: most, Max: most}); err != nil {
		return err
	}
	return fullDisk(dir)
}

func TestFullDiskLeavesTheOldState(t *testing.T) {
	t.Run("limited file size", func(t *testing.T) {
		c := start(t, "full", memoryDir(t), time.Hour)
		out, _ := io.ReadAll(c.out)
		c.done = true
		if err := c.cmd.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	})
	t.Run("full file system", func(t *testing.T) {
		if err := fullDisk(mountTmpfs(t, "size=64k")); err != nil {
			t.Fatal(err)
		}
	})
}

// mountTmpfs returns a new file system.
func mountTmpfs(t *testing.T, options string) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("there is no tmpfs here")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", options, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("a file system cannot be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount %s: %v: %s", dir, err, out)
		}
	})
	return dir
}

func TestReadOnlyDirectoryLeavesTheOldState(t *testing.T) {
	var dir string
	protect := func() {
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Chmod(dir, 0o700) })
	}
	want := fs.ErrPermission
	if os.Getuid() == 0 { // root ignores permissions
		dir, want = mountTmpfs(t, "size=1m"), unix.EROFS
		protect = func() {
			if out, err := exec.Command("mount", "-o", "remount,ro", dir).CombinedOutput(); err != nil {
				t.Skipf("remount: %v: %s", err, out)
			}
		}
	} else {
		dir = t.TempDir()
	}
	s := open(t, filepath.Join(dir, "eltrain.state"), Options{Lease: time.Hour})
	l, err := s.Lock(t.Context(), state.LockInfo{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	st := state.State{}.Next(statetest.Records(1))
	if err := s.Write(t.Context(), st, l); err != nil {
		t.Fatal(err)
	}
	protect()
	if err := s.Write(t.Context(), st.Next(nil), l); !errors.Is(err, want) {
		t.Errorf("write: %v; want %v", err, want)
	}
	if got, err := s.Read(t.Context()); err != nil || got.Serial != 1 {
		t.Errorf("read: serial %d, %v", got.Serial, err)
	}
	_ = l.Unlock(t.Context()) // fails on a read-only file system; here it stops the renewal
}
