package execsocket

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// asCaller makes the test binary a caller of the socket in the directory that it names.
const asCaller = "ELTRAIN_TEST_AS_CALLER"

func TestMain(m *testing.M) {
	dir := os.Getenv(asCaller)
	if dir == "" {
		os.Exit(m.Run())
	}
	conn, err := Dial(context.Background(), dir)
	if err == nil {
		err = conn.Send(Request{Command: []string{"id"}}, [3]*os.File{os.Stdin, os.Stdout, os.Stderr})
	}
	if err == nil {
		_, err = conn.Await()
	}
	switch {
	case Over(err), errors.Is(err, syscall.EPIPE):
		os.Exit(3) // turned away
	case err != nil:
		io.WriteString(os.Stderr, err.Error()+"\n")
		os.Exit(1)
	}
}

// The directory keeps other users out. If somebody opens it, the kernel's word on who calls still does.
func TestOtherUsersAreTurnedAway(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "execsocket") // t.TempDir's parents are closed to other users
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "caller")
	if err := os.WriteFile(program, self, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Join(dir, name), 0o666)); err != nil {
		t.Fatal(err)
	}
	served := make(chan int)
	go func() {
		conn, pid, err := l.Accept()
		if err != nil {
			close(served)
			return
		}
		defer conn.Close()
		_, files, err := conn.Receive()
		if err == nil {
			for _, f := range files {
				f.Close()
			}
			err = conn.Reply(Reply{})
		}
		if err != nil {
			pid = 0
		}
		served <- pid
	}()
	call := func(uid uint32) (code, pid int) {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), asCaller+"="+dir)
		cmd.Stderr = t.Output()
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), cmd.Process.Pid
	}
	const nobody = 65534
	if code, _ := call(nobody); code != 3 {
		t.Errorf("another user's exit code is %d", code)
	}
	code, caller := call(0)
	if pid := <-served; code != 0 || pid != caller {
		t.Errorf("exit code %d of %d, served %d", code, caller, pid)
	}
}
