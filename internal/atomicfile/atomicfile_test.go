package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary also runs as a process that writes the file at a path again and again until it is killed, and as a process
// whose disk is full.
const (
	asWriter = "ATOMICFILE_TEST_WRITES"
	asFull   = "ATOMICFILE_TEST_FULL"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(asWriter); path != "" {
		writeForEver(path)
	}
	if path := os.Getenv(asFull); path != "" {
		writeOnAFullDisk(path)
		return
	}
	os.Exit(m.Run())
}

func writeForEver(path string) {
	for i := 0; ; i++ {
		if err := Write(path, version(i), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// writeOnAFullDisk prints the errors of writes that do not fit, one per line: under file size limits of 100 and 0 bytes.
func writeOnAFullDisk(path string) {
	signal.Ignore(syscall.SIGXFSZ)
	for _, most := range []uint64{100, 0} {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: most, Max: 100}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		for _, write := range []func(string, []byte, fs.FileMode) error{Write, Create} {
			if err := write(path, version(1), 0o600); !errors.Is(err, unix.EFBIG) {
				fmt.Fprintf(os.Stderr, "with %d bytes left: %v\n", most, err)
				os.Exit(1)
			} else {
				os.Stdout.WriteString(err.Error() + "\n")
			}
		}
	}
}

// version is the i-th content: complete if all its lines are equal and none is missing.
func version(i int) []byte { return []byte(strings.Repeat(fmt.Sprintf("version %d\n", i), 1000)) }

func whole(content []byte) bool {
	first, _, _ := bytes.Cut(content, []byte("\n"))
	var i int
	_, err := fmt.Sscanf(string(first), "version %d", &i)
	return err == nil && bytes.Equal(content, version(i))
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// only checks the entries of a directory.
func only(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if strings.Join(names, " ") != strings.Join(want, " ") {
		t.Errorf("in the directory there are %v, want %v", names, want)
	}
}

func TestWriteReplacesWithTheGivenPermissions(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for i, mode := range []fs.FileMode{0o600, 0o644, 0o755} {
		content := fmt.Sprint("content ", i)
		if err := Write(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode() != mode || read(t, path) != content {
			t.Errorf("it has %v and %q, %v; want %v and %q", info.Mode(), read(t, path), err, mode, content)
		}
	}
	only(t, dir, "file")
}

func TestWriteForKeepsTheOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := Write(path, []byte("before"), 0o640); err != nil {
		t.Fatal(err)
	}
	const owner, group = 1234, 2345
	if err := os.Chown(path, owner, group); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteFor(before, path, []byte("after"), 0o640); err != nil {
		t.Fatal(err)
	}
	now, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if of := now.Sys().(*syscall.Stat_t); of.Uid != owner || of.Gid != group || now.Mode() != 0o640 || os.SameFile(before, now) || read(t, path) != "after" {
		t.Errorf("it belongs to %d:%d with %v and %q", of.Uid, of.Gid, now.Mode(), read(t, path))
	}
	only(t, dir, "file")
}

func TestCreateLeavesWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	const writers = 8
	errs := make([]error, writers)
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() { errs[i] = Create(path, version(i), 0o600) })
	}
	all.Wait()
	created := 0
	for i, err := range errs {
		switch {
		case err == nil:
			if created++; read(t, path) != string(version(i)) {
				t.Errorf("writer %d created it, and it is another's", i)
			}
		case !errors.Is(err, fs.ErrExist):
			t.Error(err)
		}
	}
	if created != 1 {
		t.Errorf("%d created it", created)
	}
	only(t, dir, "file")
}

func TestADraftCountsOnceItIsPlaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := Write(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := NewDraft(path, []byte("after"), 0o600)
	if err != nil || read(t, path) != "before" {
		t.Fatalf("%q, %v", read(t, path), err)
	}
	if err := d.PlaceNew(); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over what is there: %v", err)
	}
	if err := d.Place(); err != nil || read(t, path) != "after" {
		t.Errorf("%q, %v", read(t, path), err)
	}
	if now, err := os.Stat(path); err != nil || !os.SameFile(now, d.Info()) || !now.ModTime().Equal(d.Info().ModTime()) {
		t.Errorf("what is there is not what Info tells of: %v", err)
	}
	d.Discard()
	if read(t, path) != "after" {
		t.Error("Discard took what was placed")
	}
	again, err := NewDraft(path, []byte("never"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	again.Discard()
	if read(t, path) != "after" {
		t.Error("what was discarded counts")
	}
	only(t, dir, "file")
}

func TestSweepTakesDraftsAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if _, err := NewDraft(path, nil, 0o600); err != nil { // its owner crashes
		t.Fatal(err)
	}
	kept := []string{".file.mine.tmp", ".file.tmp", ".files.12.tmp", "file", "file.12.tmp"}
	for _, name := range kept {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	Sweep(path)
	only(t, dir, kept...)
	Sweep(filepath.Join(dir, "missing", "file"))
}

// A writer killed at any moment leaves a complete file, and readers never see anything else.
func TestAWriterThatIsKilledLeavesAWholeFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := Write(path, version(0), 0o600); err != nil {
		t.Fatal(err)
	}
	for round := range 20 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), asWriter+"="+path)
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		until := time.Now().Add(time.Duration(20+7*round) * time.Millisecond)
		for time.Now().Before(until) {
			if content := read(t, path); !whole([]byte(content)) {
				t.Fatalf("a reader found %d bytes that begin with %.20q", len(content), content)
			}
		}
		cmd.Process.Kill()
		cmd.Wait()
		if said.Len() > 0 {
			t.Fatal(said.String())
		}
		if !whole([]byte(read(t, path))) {
			t.Fatalf("what is left is %d bytes", len(read(t, path)))
		}
	}
	Sweep(path)
	only(t, dir, "file")
}

func TestOnAFullDiskTheOldFileStays(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := Write(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asFull+"="+path)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output() // a pipe is not a file, and has no limit
	if err != nil {
		t.Fatalf("%v\n%s", err, &said)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(lines)
	if texts := slices.Compact(lines); len(texts) != 1 {
		t.Errorf("one trouble has %d texts: %q", len(texts), texts)
	}
	if got := read(t, path); got != "before" {
		t.Errorf("after writes that failed there is %q", got)
	}
	only(t, dir, "file")
}

func TestInADirectoryThatTakesNothingTheOldFileStays(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := Write(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := protect(t, dir)
	for what, write := range map[string]func(string, []byte, fs.FileMode) error{"write": Write, "create": Create} {
		if err := write(path, []byte("after"), 0o600); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	if got := read(t, path); got != "before" {
		t.Errorf("there is %q", got)
	}
	only(t, dir, "file")
}

// protect makes a directory read-only, and returns the error of a write there. Permissions do not stop root: then the directory
// is bind-mounted read-only.
func protect(t *testing.T, dir string) error {
	t.Helper()
	if os.Getuid() != 0 {
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Chmod(dir, 0o700) })
		return fs.ErrPermission
	}
	for _, args := range [][]string{{"--bind", dir, dir}, {"-o", "remount,bind,ro", dir}} {
		if out, err := exec.Command("mount", args...).CombinedOutput(); err != nil {
			t.Skipf("root cannot mount here: %v: %s", err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount %s: %v: %s", dir, err, out)
		}
	})
	return unix.EROFS
}

func TestResolveKeepsLinksAndRefusesDevices(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"link": "file", "nowhere": "missing", "device": os.DevNull} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"file": at("file"), "link": at("file"), "new": at("new")} {
		if got, err := Resolve(at(name)); err != nil || got != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer writer.Close()
	// Like /dev/stdout when the output is a pipe: a link to something without a path.
	if err := os.Symlink(fmt.Sprintf("/dev/fd/%d", writer.Fd()), at("output")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"output": "not a regular file", "nowhere": "a symbolic link to a missing file", "device": "not a regular file", ".": "not a regular file"} {
		if _, err := Resolve(at(name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}
