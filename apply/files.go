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
)

const (
	// filesDebounce joins the events of one save or one swap of links. It runs from the first event on: what
	// happens in the directory all the time, a log for instance, must not put the look off forever.
	filesDebounce = 100 * time.Millisecond
	// filesRescan finds what no event told: network file systems, hard links, lost events. It always counts as a change.
	filesRescan = 30 * time.Second
	// filesStill is how long the files must be as they are before it is certain that a job is no longer in them. Until
	// then something may be at work that will bring it back: a checkout without git's lock, an editor, a person who
	// restores a file. The longest checkout that was measured, of 8,000 files, takes half a second.
	filesStill = 5 * time.Second
	// stillLook is how much of the time between two looks counts for that.
	stillLook = time.Second
)

// FileWatcher tells when the configuration of a directory may have changed. It watches directories, never
// files: editors, ConfigMap mounts and git-sync replace files and links, which ends a watch on the old one.
type FileWatcher struct {
	dir     string
	log     *slog.Logger
	changed chan struct{}
	moved   chan struct{} // gets a value when further has changed
	stop    chan struct{}
	events  *fsnotify.Watcher
	working sync.WaitGroup

	mu      sync.Mutex
	further []string // paths of modules' directories, and of files that the configuration names
	still   stillness
}

// stillness is for how long something was seen to be one and the same. What was there while this process, or its whole
// machine, stood still nobody knows: of the time between two looks no more than stillLook counts.
type stillness struct {
	print  string
	since  time.Time     // when it was first seen to be that
	looked time.Time     // when it was last looked at
	seen   time.Duration // what counts of the time between
}

// look records what it is now.
func (s *stillness) look(print string, now time.Time) {
	if print != s.print || s.since.IsZero() {
		*s = stillness{print: print, since: now}
	} else {
		s.seen += min(now.Sub(s.looked), stillLook)
	}
	s.looked = now
}

// WatchFiles watches dir, and the parent of every link on the way to its files, until Close. The first value
// is there at once: whoever read the files before may have missed a change since.
func WatchFiles(dir string, log *slog.Logger) (*FileWatcher, error) {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	w := &FileWatcher{dir: dir, log: log, changed: make(chan struct{}, 1), moved: make(chan struct{}, 1), stop: make(chan struct{}), events: events}
	w.rewatch()
	seen := w.look()
	w.changed <- struct{}{}
	w.working.Go(func() { w.follow(seen) })
	return w, nil
}

// Further says what else the configuration is read from, by absolute paths: directories of modules, and single files. If
// that is something else than before, it counts as a change: something may have changed there since it was read.
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

// watched is all that the configuration is read from.
func (w *FileWatcher) watched() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string{w.dir}, w.further...)
}

// look is what the files are now, and records when they became that.
func (w *FileWatcher) look() string {
	now := Fingerprint(w.watched()...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.still.look(now, time.Now())
	return now
}

// Still is an UnsteadyError until the files have been as they are for a while. Whoever finds jobs gone asks, and names them.
func (w *FileWatcher) Still(lost []string) error {
	w.look()
	w.mu.Lock()
	defer w.mu.Unlock()
	left := filesStill - w.still.seen
	if left <= 0 {
		return nil
	}
	return &UnsteadyError{Since: w.still.since, Again: w.still.looked.Add(min(left, stillLook)), Lost: lost, Text: fmt.Sprintf(
		"Jobs are no longer in the files. They are removed once the files have not changed for %s; until then the current configuration stays in effect.", filesStill)}
}

// Git is an UnsteadyError while git is at work on the files. caution is what to know of a lock that a killed git has left,
// if there is one.
func (w *FileWatcher) Git() (caution string, err error) {
	lock := lockOfGit(w.watched())
	switch {
	case lock.path == "":
		return "", nil
	case lock.left(time.Now()):
		return lock.leftBehind(), nil
	}
	return "", lock.unsteady(time.Now())
}

// Changed gets a value when the files may have changed. Values coalesce; any event is only a hint.
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
			soon() // events may be lost
			continue
		case <-debounce.C:
			// A file that is still being written may be cut at a place where it is valid, and declare less than
			// it is to. So the files have to look the same twice.
			if now := w.look(); now != last {
				last = now
				debounce.Reset(filesDebounce)
				continue
			}
			waiting = false
		case <-w.moved:
			seen = ""
		case <-rescan.C:
			seen = ""
		}
		w.rewatch() // a directory that was replaced is another one
		var unsteady *UnsteadyError
		if _, err := w.Git(); errors.As(err, &unsteady) {
			if !told && time.Since(unsteady.Since) >= unsteadyTold {
				told, seen = true, "" // that it is over is told as well
				w.hint()
			}
			soon()
			continue
		}
		told = false
		if now := w.look(); now != seen {
			seen = now
			w.hint()
		}
	}
}

// hint has the files looked at.
func (w *FileWatcher) hint() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// rewatch watches every directory that a change of the files can show in, and no other. Adding one again does
// nothing.
func (w *FileWatcher) rewatch() {
	wanted := ways(w.watched())
	for _, dir := range w.events.WatchList() {
		if !wanted[dir] {
			w.events.Remove(dir) // it may be gone, which has ended the watch
		}
	}
	for dir := range wanted {
		if err := w.events.Add(dir); err != nil {
			w.log.Debug("watching a directory", "dir", dir, "error", err)
		}
	}
}

// ways are the directories in which it shows when a file of the configuration becomes another one. It is read from paths.
func ways(paths []string) map[string]bool {
	all := map[string]bool{}
	for _, path := range paths {
		trail(path, all)
		entries, _ := os.ReadDir(path) // what cannot be read is an error of who reads the files, and a file has none
		for _, e := range entries {
			if e.Type()&fs.ModeSymlink != 0 {
				trail(filepath.Join(path, e.Name()), all)
			}
		}
	}
	return all
}

// maxLinks bounds the links on one path, as Linux does: a loop ends there.
const maxLinks = 40

// trail adds the directories in which it shows when path becomes another file: the parent of each link on the way,
// what it leads to and that one's parent, or the last directory that is there. path is absolute. What is added has
// no link in it.
func trail(path string, dirs map[string]bool) {
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
			dirs[at] = true // where it may come
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

// Fingerprint tells one state of the configuration in these directories and single files from another: where each path
// leads, and names, sizes, times and identities of the files there, links followed. If it is the same before and after the
// files were read, they were of one revision.
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

// printDirectory prints what of a directory is read in any case. real has no link in it.
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
