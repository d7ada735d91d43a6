package regular

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	t.Chdir(t.TempDir()) // a socket's path has a limit
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile("file", []byte("text"), 0o600))
	must(os.Symlink("file", "link"))
	must(os.Symlink("/dev/zero", "zero"))
	must(syscall.Mkfifo("pipe", 0o600))
	must(os.Mkdir("dir", 0o700))
	socket, err := net.Listen("unix", "socket")
	must(err)
	defer socket.Close()
	must(os.WriteFile("sparse", nil, 0o600))
	must(os.Truncate("sparse", 1<<40))

	for path, want := range map[string]struct{ own, named string }{
		"file":   {},
		"link":   {own: "link is a symbolic link, not a regular file: move it away"},
		"zero":   {"zero is a symbolic link, not a regular file: move it away", "zero is a device, not a regular file: name a regular file"},
		"pipe":   {"pipe is a named pipe, not a regular file: move it away", "pipe is a named pipe, not a regular file: name a regular file"},
		"dir":    {"dir is a directory, not a regular file: move it away", "dir is a directory, not a regular file: name a regular file"},
		"socket": {"socket is a socket, not a regular file: move it away", "socket is a socket, not a regular file: name a regular file"},
		"sparse": {"sparse is larger than 4B: check what it is", "sparse is larger than 4B: check what it is"},
	} {
		for _, read := range []struct {
			by   func(string, int64) ([]byte, error)
			want string
		}{{Read, want.own}, {ReadNamed, want.named}} {
			text, err := read.by(path, 4)
			if read.want == "" && (err != nil || string(text) != "text") {
				t.Errorf("%s: %q, %v", path, text, err)
			}
			if read.want != "" && (err == nil || err.Error() != read.want) {
				t.Errorf("%s: %v; want %s", path, err, read.want)
			}
		}
	}
	for _, path := range []string{"link", "pipe", "dir", "socket"} {
		_, err := Open(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if irregular := new(Error); !errors.As(err, &irregular) {
			t.Errorf("write to %s: %v", path, err)
		}
	}
	if _, err := Read(filepath.Join("dir", "none"), 4); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
}

// ownedBy is a file with a given owner. Only root can create a real one.
type ownedBy struct {
	fs.FileInfo
	uid  uint32
	mode fs.FileMode
}

func (o ownedBy) Sys() any          { return &syscall.Stat_t{Uid: o.uid} }
func (o ownedBy) Mode() fs.FileMode { return o.mode }

// A key or token belongs to who uses it, root included, or to root.
func TestSecretsBelongToTheirUser(t *testing.T) {
	const (
		root, me, other = 0, 1000, 65534
		chown           = "key is owned by user 65534, not by user "
		chmod           = "key is accessible to others, its mode is "
	)
	for _, c := range []struct {
		user  int
		owner uint32
		mode  fs.FileMode
		want  string
	}{
		{me, me, 0o600, ""}, {me, me, 0o400, ""}, {root, root, 0o600, ""}, {me, root, 0o600, ""}, {me, root, 0o640, ""},
		{me, me, 0o640, chmod + "0640: run chmod 600 key"}, {me, root, 0o644, chmod + "0644: run chmod 600 key"}, {root, root, 0o660, chmod + "0660: run chmod 600 key"},
		{me, other, 0o600, chown + "1000: check where it comes from, then run chown 1000 key, or run eltrain as user 65534"},
		{root, other, 0o600, chown + "0: check where it comes from, then run chown 0 key, or run eltrain as user 65534"},
	} {
		got := ""
		if err := secret("key", ownedBy{uid: c.owner, mode: c.mode}, c.user); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("user %d reads a file of %d, %04o: %q; want %q", c.user, c.owner, c.mode, got, c.want)
		}
	}
}

func TestDirectoriesBelongToTheirUser(t *testing.T) {
	dir := t.TempDir()
	at := func(path string) string { return filepath.Join(dir, path) }
	me := os.Geteuid()
	if err := checkPrivate(dir, me+1); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("owned by user %d, not by user %d: check its files, then run chown -R %d", me, me+1, me+1)) {
		t.Errorf("of another user: %v", err)
	}
	if err := MakePrivate(at("a/run"), at("a/run/jobs/x")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"a", "a/run", "a/run/jobs", "a/run/jobs/x"} {
		if info, err := os.Stat(at(path)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s is %v, %v", path, info.Mode(), err)
		}
	}
	if err := CheckPrivate(at("none")); err != nil {
		t.Errorf("a missing directory: %v", err)
	}
	if err := os.WriteFile(at("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := MakePrivate(dir, at("file")); err == nil || !strings.HasSuffix(err.Error(), "file is not a directory: move it away") {
		t.Errorf("a file: %v", err)
	}
	// Each directory from the root on is checked, also if the last exists.
	for _, path := range []string{"a/run", "a/run/jobs", "a/run/jobs/x"} {
		for mode, private := range map[fs.FileMode]bool{0o755: true, 0o777: false, 0o720: false} {
			if err := os.Chmod(at(path), mode); err != nil {
				t.Fatal(err)
			}
			if err := MakePrivate(at("a/run"), at("a/run/jobs/x")); (err == nil) != private || err != nil && !strings.Contains(err.Error(), "chmod 700 "+at(path)) {
				t.Errorf("%s with mode %04o: %v", path, mode, err)
			}
		}
		if err := os.Chmod(at(path), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}
