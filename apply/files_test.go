package apply

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
)

// far is how long a test waits for a change before it fails. No timing depends on it.
const far = hang.Bound

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func watchDir(t *testing.T, dir string) *FileWatcher {
	t.Helper()
	w, err := WatchFiles(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	expectChange(t, w, "the first look")
	return w
}

func expectChange(t *testing.T, w *FileWatcher, what string) {
	t.Helper()
	select {
	case <-w.Changed():
	case <-time.After(far):
		t.Fatalf("%s was not signaled", what)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAFileThatIsWrittenOrReplacedIsTold(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "job.hcl")
	write(t, path, "a")
	w := watchDir(t, dir)
	write(t, path, "ab")
	expectChange(t, w, "a write in place")
	for range 2 { // the second time shows that the watch survived the first
		write(t, path+".new", "abc")
		must(t, os.Rename(path+".new", path))
		expectChange(t, w, "an editor's rename")
	}
	must(t, os.Remove(path))
	expectChange(t, w, "a removal")
}

// A ConfigMap mount swaps ..data, a link; the files are links through it and are never touched.
func TestASwapOfLinksIsToldEachTime(t *testing.T) {
	dir := t.TempDir()
	version := func(name, text string) {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		write(t, filepath.Join(dir, name, "job.hcl"), text)
	}
	swap := func(name string) {
		temp := filepath.Join(dir, "..data_tmp")
		must(t, os.Symlink(name, temp))
		must(t, os.Rename(temp, filepath.Join(dir, "..data")))
	}
	version("..1", "one")
	must(t, os.Symlink("..1", filepath.Join(dir, "..data")))
	must(t, os.Symlink(filepath.Join("..data", "job.hcl"), filepath.Join(dir, "job.hcl")))
	w := watchDir(t, dir)
	for _, name := range []string{"..2", "..3", "..4"} {
		version(name, "one more")
		swap(name)
		expectChange(t, w, "swap "+name)
	}
}

// git-sync replaces a link that the directory is.
func TestADirectoryThatIsALinkIsFollowed(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		must(t, os.Mkdir(filepath.Join(root, name), 0o755))
		write(t, filepath.Join(root, name, "job.hcl"), name)
	}
	link := filepath.Join(root, "current")
	must(t, os.Symlink("a", link))
	w := watchDir(t, link)
	for _, name := range []string{"b", "c"} {
		must(t, os.Symlink(name, link+".new"))
		must(t, os.Rename(link+".new", link))
		expectChange(t, w, "the link to "+name)
	}
	write(t, filepath.Join(root, "c", "job.hcl"), "edited")
	expectChange(t, w, "an edit in the new directory")
}

func TestADirectoryThatComesBackIsWatchedAgain(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "jobs")
	must(t, os.Mkdir(dir, 0o755))
	write(t, filepath.Join(dir, "job.hcl"), "a")
	w := watchDir(t, dir)
	must(t, os.Rename(dir, dir+".old"))
	expectChange(t, w, "the directory's end")
	must(t, os.Mkdir(dir, 0o755))
	write(t, filepath.Join(dir, "job.hcl"), "b")
	expectChange(t, w, "the new directory")
}

// Constant writes beside the configuration's files neither count as a change nor hide one.
func TestAChatteringLogNeitherCountsNorHides(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "job.hcl"), "a")
	w := watchDir(t, dir)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		log, err := os.Create(filepath.Join(dir, "train.log"))
		if err != nil {
			return
		}
		defer log.Close()
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				log.WriteString("step\n")
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	select {
	case <-w.Changed():
		t.Fatal("a log counts as a change")
	case <-time.After(5 * filesDebounce):
	}
	write(t, filepath.Join(dir, "job.hcl"), "ab")
	expectChange(t, w, "a change beside the log")
}

// A look that hangs, on a dead network file system, hides no change: neither does another one hang beside it.
func TestWhileALookHangsEveryEventCounts(t *testing.T) {
	dir := t.TempDir()
	w := watchDir(t, dir)
	w.looking <- struct{}{} // as a look that does not end
	for _, text := range []string{"a", "ab"} {
		write(t, filepath.Join(dir, "job.hcl"), text)
		expectChange(t, w, "a write")
	}
	<-w.looking
	write(t, filepath.Join(dir, "job.hcl"), "abc")
	expectChange(t, w, "a write after it ended")
}

func TestALoopOfLinksEnds(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Symlink("b.hcl", filepath.Join(dir, "a.hcl")))
	must(t, os.Symlink("a.hcl", filepath.Join(dir, "b.hcl")))
	w := watchDir(t, dir)
	write(t, filepath.Join(dir, "job.hcl"), "a")
	expectChange(t, w, "a file beside the loop")
}

// deploy/git-sync: the files are links through a link that is replaced, somewhere else.
func TestALinkInTheMiddleOfAWayIsFollowed(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	version := func(name string) {
		must(t, os.MkdirAll(filepath.Join(root, "trees", name, "jobs"), 0o755))
		write(t, filepath.Join(root, "trees", name, "jobs", "job.hcl"), "the same in each")
	}
	swap := func(name string) {
		must(t, os.Symlink(filepath.Join("trees", name), filepath.Join(root, "new")))
		must(t, os.Rename(filepath.Join(root, "new"), filepath.Join(root, "current")))
	}
	version("1")
	swap("1")
	must(t, os.Symlink(filepath.Join(root, "current", "jobs", "job.hcl"), filepath.Join(dir, "job.hcl")))
	w := watchDir(t, dir)
	for _, name := range []string{"2", "3", "4"} {
		version(name)
		swap(name)
		expectChange(t, w, "the link to "+name)
	}
	if n := len(w.events.WatchList()); n > 8 {
		t.Errorf("%d directories are watched, including those of old revisions", n)
	}
}

func TestModulesOutsideTheDirectoryAreFollowed(t *testing.T) {
	root := t.TempDir()
	dir, module := filepath.Join(root, "jobs"), filepath.Join(root, "elsewhere", "base")
	must(t, os.Mkdir(dir, 0o755))
	must(t, os.MkdirAll(module, 0o755))
	write(t, filepath.Join(dir, "job.hcl"), "a")
	write(t, filepath.Join(module, "base.hcl"), "a")
	w := watchDir(t, dir)
	w.Further([]string{module})
	expectChange(t, w, "the new module") // it may have changed after it was read
	write(t, filepath.Join(module, "base.hcl"), "ab")
	expectChange(t, w, "an edit in the module")
	w.Further([]string{module})
	must(t, os.Rename(module, module+".old"))
	expectChange(t, w, "the module's end")
	must(t, os.Mkdir(module, 0o755))
	write(t, filepath.Join(module, "base.hcl"), "abc")
	expectChange(t, w, "the module's return")
	w.Further(nil)
	expectChange(t, w, "a module less")
	write(t, filepath.Join(module, "base.hcl"), "abcd")
	select {
	case <-w.Changed():
		t.Error("a module that is no longer used counts")
	case <-time.After(5 * filesDebounce):
	}
}

func TestFilesThatAreNamedAreFollowed(t *testing.T) {
	root := t.TempDir()
	dir, path := filepath.Join(root, "jobs"), filepath.Join(root, "elsewhere", "word.txt")
	must(t, os.Mkdir(dir, 0o755))
	must(t, os.Mkdir(filepath.Dir(path), 0o755))
	write(t, filepath.Join(dir, "job.hcl"), "a")
	w := watchDir(t, dir)
	w.Further([]string{path})
	expectChange(t, w, "the new file") // it may have been created after it was looked for
	write(t, path, "a")
	expectChange(t, w, "that it is there")
	write(t, path, "ab")
	expectChange(t, w, "an edit")
	must(t, os.Remove(path))
	expectChange(t, w, "its end")
	must(t, os.Symlink("other.txt", path))
	write(t, filepath.Join(filepath.Dir(path), "other.txt"), "abc")
	expectChange(t, w, "a link in its place")
	write(t, filepath.Join(filepath.Dir(path), "beside.txt"), "a")
	select {
	case <-w.Changed():
		t.Error("a file beside it counts")
	case <-time.After(5 * filesDebounce):
	}
}

func TestADirectoryThatComesBackWithAllAboveItIsWatchedAgain(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "git", "current", "jobs")
	must(t, os.MkdirAll(dir, 0o755))
	write(t, filepath.Join(dir, "job.hcl"), "a")
	w := watchDir(t, dir)
	must(t, os.RemoveAll(filepath.Join(root, "git")))
	expectChange(t, w, "the end")
	must(t, os.MkdirAll(dir, 0o755))
	write(t, filepath.Join(dir, "job.hcl"), "b")
	expectChange(t, w, "the return")
}

func TestADirectoryThatIsALoopOfLinksIsWatchedUntilItIsNone(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a")
	must(t, os.Symlink("b", dir))
	must(t, os.Symlink("a", filepath.Join(root, "b")))
	w := watchDir(t, dir)
	must(t, os.Remove(filepath.Join(root, "b")))
	must(t, os.Mkdir(filepath.Join(root, "b"), 0o755))
	write(t, filepath.Join(root, "b", "job.hcl"), "a")
	expectChange(t, w, "a directory in the place of the loop")
}

// Fingerprints differ after files were exchanged, even if sizes and times are the same.
func TestAFingerprintTellsRevisionsApart(t *testing.T) {
	root := t.TempDir()
	when := time.Unix(1e9, 0)
	for _, name := range []string{"1", "2"} {
		must(t, os.Mkdir(filepath.Join(root, name), 0o755))
		write(t, filepath.Join(root, name, "job.hcl"), "the same")
		must(t, os.Chtimes(filepath.Join(root, name, "job.hcl"), when, when))
	}
	link, loop := filepath.Join(root, "current"), filepath.Join(root, "loop")
	must(t, os.Symlink("1", link))
	must(t, os.Symlink("loop", loop))
	before := Fingerprint(link, loop)
	if again := Fingerprint(link, loop); again != before {
		t.Errorf("%s is %s", before, again)
	}
	must(t, os.Remove(link))
	if Fingerprint(link, loop) == before {
		t.Error("a removed link does not change the fingerprint")
	}
	must(t, os.Symlink("2", link))
	if Fingerprint(link, loop) == before {
		t.Error("another directory does not change the fingerprint")
	}
}

// Of a directory with a slash at the end it matters which files and directories it has, not what is in them: those that
// count are named themselves.
func TestFingerprintOfNames(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	print := func() string { return Fingerprint(dir + "/") }
	write("train.log", "step 1\n")
	before := print()
	write("train.log", "step 1\nstep 2\n")
	write(".train.py.draft", "")
	if print() != before {
		t.Error("a log that grows, or a hidden file, counts as a change")
	}
	write("train.py", "")
	if print() == before {
		t.Error("a new file does not count as a change")
	}
	if Fingerprint(dir) == Fingerprint(dir+"/") {
		t.Error("the names in a module's directory count")
	}
}

// What runs is compared with what is asked for by the content of the source files, too, wherever their directory is.
func TestDigestHasTheSource(t *testing.T) {
	of := func(digest string) string {
		return (&Files{Jobs: []job.Job{{Name: "x", Roles: []job.Role{{Name: "w", Source: job.Files{"train.py": digest}}}}}}).Digest()
	}
	if of("d1") == of("d2") {
		t.Error("an edit of a source file is no other configuration")
	}
}
