package regular

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
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
