package apply

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/eltrain/eltrain/job"
)

const (
	// filesDebounce joins the events of one save or one swap of links. It starts at the first event, so that
	// constant events in the directory, from a log for instance, cannot delay the look forever.
	filesDebounce = 100 * time.Millisecond
	// filesRescan finds changes without an event: network file systems, hard links, lost events. It always counts as a change.
	filesRescan = 30 * time.Second
	// filesStill is how long the files must be unchanged before a job that is missing from them counts as removed. Until
	// then something may bring it back: a checkout without git's lock, an editor, a person who restores a file. The longest
	// checkout measured, of 8,000 files, took half a second.
	filesStill = 5 * time.Second
	// lookWithin bounds a look at the files. On a working file system it takes milliseconds.
	lookWithin = 2 * time.Second
	// stillLook bounds how much of the time between two looks counts toward filesStill.
	stillLook = time.Second
)

// FileWatcher signals when the configuration in a directory may have changed. It watches directories, never
// files: editors, ConfigMap mounts and git-sync replace files and links, which ends a watch on the old one.
type FileWatcher struct {
	dir     string
	log     *slog.Logger
	changed chan struct{}
	moved   chan struct{} // receives a value when further has changed
	looking chan struct{} // full while a look is in progress
	stop    chan struct{}
	events  *fsnotify.Watcher
	working sync.WaitGroup

	mu      sync.Mutex
	further []string // paths of modules' directories, and of files and directories that the configuration names

	still stillness // of the files as they were read
}

// stillness measures for how long a fingerprint has not changed. Of the time between two looks at most stillLook counts:
// while this process or its machine was suspended, the files may have changed and changed back.
type stillness struct {
	print  string
	since  time.Time     // when print was first seen
	looked time.Time     // the last look
	seen   time.Duration // how much of the time between counts
}

// look records the current fingerprint.
func (s *stillness) look(print string, now time.Time) {
	if print != s.print || s.since.IsZero() {
		*s = stillness{print: print, since: now}
	} else {
		s.seen += min(now.Sub(s.looked), stillLook)
	}
	s.looked = now
}

// WatchFiles watches dir, and the parent of every link on the way to its files, until Close. The first value is sent
// at once, since the files may have changed after the caller read them.
func WatchFiles(dir string, log *slog.Logger) (*FileWatcher, error) {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	w := &FileWatcher{dir: dir, log: log, changed: make(chan struct{}, 1), moved: make(chan struct{}, 1), looking: make(chan struct{}, 1),
		stop: make(chan struct{}), events: events}
	seen, _ := w.look()
	w.changed <- struct{}{}
	w.working.Go(func() { w.follow(seen.print) })
	return w, nil
}

// Further sets what else the configuration is read from, by absolute paths: directories of modules, single files, and, with
// a slash at the end, directories whose names matter.
// If the paths differ from before, that counts as a change: they may have changed after they were read.
func (w *FileWatcher) Further(paths []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Equal(w.further, paths) {
		return
	}
	w.further = slices.Clone(paths)
	select {
	case w.moved <- struct{}{}:
	default:
	}
}

// watched returns all paths that the configuration is read from.
func (w *FileWatcher) watched() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string{w.dir}, w.further...)
}

// look is what one look at the files finds.
type look struct {
	print string
	git   error // see Git
}

// look watches the directories in which changes can show, as they are now, and looks at the files. ok is false if that takes
// longer than lookWithin, as on a dead network file system: then the files may have changed. Until such a look ends there is no
// other.
func (w *FileWatcher) look() (found look, ok bool) {
	select {
	case w.looking <- struct{}{}:
	default:
		return look{}, false
	}
	done := make(chan look, 1)
	go func() {
		w.rewatch() // a directory may have been replaced
		paths := w.watched()
		_, err := Git(paths...)
		found := look{Fingerprint(paths...), err}
		<-w.looking // first: whoever receives may look again at once
		done <- found
	}()
	late := time.NewTimer(lookWithin)
	defer late.Stop()
	select {
	case found = <-done:
		return found, true
	case <-late.C:
		return look{}, false
	}
}

// Still returns an UnsteadyError until readings of the files have had the same fingerprint for filesStill. lost names the jobs
// that are missing from them.
func (w *FileWatcher) Still(print string, lost []string) error {
	w.still.look(print, time.Now())
	left := filesStill - w.still.seen
	if left <= 0 {
		return nil
	}
	return &UnsteadyError{Since: w.still.since, Again: w.still.looked.Add(min(left, stillLook)), Lost: lost, Why: job.Because(JobsMissing, "after", filesStill.String())}
}

// Git returns an UnsteadyError while git is working on the files at paths, which are absolute, and a caution about a lock that
// a killed git seems to have left behind.
func Git(paths ...string) (caution job.Reason, err error) {
	lock := lockOfGit(paths)
	switch {
	case lock.path == "":
		return job.Reason{}, nil
	case lock.left(time.Now()):
		return lock.leftBehind(), nil
	}
	return job.Reason{}, lock.unsteady(time.Now())
}

// Changed receives a value when the files may have changed. Values coalesce, and are only hints.
func (w *FileWatcher) Changed() <-chan struct{} { return w.changed }

// Close ends the watch.
func (w *FileWatcher) Close() error {
	close(w.stop)
	err := w.events.Close()
	w.working.Wait()
	return err
}

func (w *FileWatcher) follow(seen string) {
	debounce := time.NewTimer(time.Hour)
	debounce.Stop()
	waiting, last, told := false, seen, false
	soon := func() {
		if !waiting {
			waiting = true
			debounce.Reset(filesDebounce)
		}
	}
	rescan := time.NewTicker(filesRescan)
	defer rescan.Stop()
	defer debounce.Stop()
	for {
		select {
		case <-w.stop:
			return
		case event, open := <-w.events.Events:
			if !open {
				return
			}
			if event.Op != fsnotify.Chmod {
				soon()
			}
			continue
		case err, open := <-w.events.Errors:
			if !open {
				return
			}
			w.log.Warn("watching the configuration", "error", err)
			soon() // events may have been lost
			continue
		case <-debounce.C:
			// A file that is still being written may be valid and declare too little. So two looks must find
			// the same.
			if now, ok := w.look(); ok && now.print != last {
				last = now.print
				debounce.Reset(filesDebounce)
				continue
			}
			waiting = false
		case <-w.moved:
			seen = ""
		case <-rescan.C:
			seen = ""
		}
		now, ok := w.look()
		var unsteady *UnsteadyError
		if errors.As(now.git, &unsteady) {
			if !told && time.Since(unsteady.Since) >= reportUnsteadyAfter {
				told, seen = true, "" // with seen empty, the end of it is signaled as well
				w.hint()
			}
			soon()
			continue
		}
		told = false
		if !ok || now.print != seen {
			seen = now.print
			w.hint()
		}
	}
}

// hint signals a possible change.
func (w *FileWatcher) hint() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// rewatch watches every directory in which a change of the files can show, and no other. Adding one again has no
// effect.
func (w *FileWatcher) rewatch() {
	wanted := watchDirs(w.watched())
	for _, dir := range w.events.WatchList() {
		if !wanted[dir] {
			w.events.Remove(dir) // fails if the directory is gone, which ended the watch anyway
		}
	}
	for dir := range wanted {
		if err := w.events.Add(dir); err != nil {
			w.log.Debug("watching a directory", "dir", dir, "error", err)
		}
	}
}

// watchDirs returns the directories in which it shows when a file below paths is replaced.
func watchDirs(paths []string) map[string]bool {
	all := map[string]bool{}
	for _, path := range paths {
		addWatchDirs(path, all)
		entries, _ := os.ReadDir(path) // path may be a file; other errors are reported by the reading of the files
		for _, e := range entries {
			if e.Type()&fs.ModeSymlink != 0 {
				addWatchDirs(filepath.Join(path, e.Name()), all)
			}
		}
	}
	return all
}

// maxLinks bounds the links on one path, as Linux does, and so ends loops.
const maxLinks = 40

// addWatchDirs adds the directories in which it shows when path is replaced: the parent of each link on the way, and the
// target with its parent, or the last directory that exists. path is absolute. The directories added contain no
// links.
func addWatchDirs(path string, dirs map[string]bool) {
	const root = string(filepath.Separator)
	at, rest, links := root, path, 0
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, root)
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		if err != nil {
			dirs[at] = true // where it may be created
			return
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		dirs[at] = true
		target, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks {
			return
		}
		if filepath.IsAbs(target) {
			at = root
		}
		rest = target + root + rest
	}
	dirs[filepath.Dir(at)] = true
	if info, err := os.Stat(at); err == nil && info.IsDir() {
		dirs[at] = true
	}
}

// Fingerprint identifies one state of the configuration in these directories and single files: where each path leads, and
// the names, sizes, times and inodes of the files there, links followed. Of a directory with a slash at the end it has all
// names that patterns can match, and nothing else of the files. If it is the same before and after the files are read, they
// were of one revision.
func Fingerprint(paths ...string) string {
	var text strings.Builder
	for _, path := range paths {
		printPath(&text, path)
	}
	return text.String()
}

func printPath(text *strings.Builder, path string) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		fmt.Fprintln(text, path, "unreadable")
		return
	}
	info, err := os.Stat(real)
	switch {
	case err != nil:
		fmt.Fprintln(text, path, "unreadable")
	case info.IsDir() && strings.HasSuffix(path, "/"):
		fmt.Fprintln(text, path, real, identity(info))
		printNames(text, real)
	case info.IsDir():
		fmt.Fprintln(text, path, real, identity(info))
		printDirectory(text, real)
	default:
		printFile(text, path+" "+real, info)
	}
}

func printFile(text *strings.Builder, name string, info fs.FileInfo) {
	fmt.Fprintln(text, name, info.Size(), info.ModTime().UnixNano(), identity(info))
}

// printDirectory prints the .hcl and .vars files of a directory. real contains no links.
func printDirectory(text *strings.Builder, real string) {
	entries, err := os.ReadDir(real)
	if err != nil {
		fmt.Fprintln(text, "unreadable")
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext != ".hcl" && ext != ".vars" {
			continue
		}
		info, err := os.Stat(filepath.Join(real, e.Name()))
		if err != nil {
			fmt.Fprintln(text, e.Name(), "missing")
			continue
		}
		printFile(text, e.Name(), info)
	}
}

// printNames prints which files and directories a directory has.
func printNames(text *strings.Builder, real string) {
	entries, err := os.ReadDir(real)
	if err != nil {
		fmt.Fprintln(text, "unreadable")
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") { // programs that replace files give the new ones such names first
			fmt.Fprintln(text, e.Name(), e.Type())
		}
	}
}
