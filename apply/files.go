package apply

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// filesDebounce joins the events of one save or one swap of links. It runs from the first event on: what
	// goes on in the directory all the time, a log for instance, must not put the look off for ever.
	filesDebounce = 100 * time.Millisecond
	// filesRescan finds what no event told: network file systems, lost events, and other files that the
	// configuration reads. It always counts as a change.
	filesRescan = 30 * time.Second
)

// FileWatcher tells when the configuration of a directory may have changed. It watches directories, never
// files: editors, ConfigMap mounts and git-sync replace files and links, which ends a watch on the old one.
type FileWatcher struct {
	dir     string
	log     *slog.Logger
	changed chan struct{}
	stop    chan struct{}
	events  *fsnotify.Watcher
	working sync.WaitGroup
}

// WatchFiles watches dir, and the parent of every link on the way to its files, until Close. The first value
// is there at once: whoever read the files before may have missed a change since.
func WatchFiles(dir string, log *slog.Logger) (*FileWatcher, error) {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	w := &FileWatcher{dir: dir, log: log, changed: make(chan struct{}, 1), stop: make(chan struct{}), events: events}
	w.rewatch()
	seen := w.fingerprint()
	w.changed <- struct{}{}
	w.working.Go(func() { w.follow(seen) })
	return w, nil
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
	waiting, last := false, seen
	look := func() {
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
				look()
			}
			continue
		case err, open := <-w.events.Errors:
			if !open {
				return
			}
			w.log.Warn("watching the configuration", "error", err)
			look() // events may be lost
			continue
		case <-debounce.C:
			// A file that is still being written may be cut at a place where it is valid, and declare less than
			// it is to. So the files have to look the same twice.
			if now := w.fingerprint(); now != last {
				last = now
				debounce.Reset(filesDebounce)
				continue
			}
			waiting = false
		case <-rescan.C:
			seen = ""
		}
		w.rewatch() // a directory that was replaced is another one
		if now := w.fingerprint(); now != seen {
			seen = now
			select {
			case w.changed <- struct{}{}:
			default:
			}
		}
	}
}

// rewatch adds every directory that a change of the files can show in. Adding one again does nothing.
func (w *FileWatcher) rewatch() {
	dirs := map[string]bool{w.dir: true, filepath.Dir(w.dir): true}
	addLinks(w.dir, dirs)
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		w.log.Debug("reading the configuration directory", "error", err)
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 {
			addLinks(filepath.Join(w.dir, e.Name()), dirs)
		}
	}
	for dir := range dirs {
		if err := w.events.Add(dir); err != nil {
			w.log.Debug("watching a directory", "dir", dir, "error", err)
		}
	}
}

// maxLinks bounds a chain of links: a loop ends there.
const maxLinks = 16

// addLinks adds the parent of each link from path on, and the directory where the chain ends.
func addLinks(path string, dirs map[string]bool) {
	for range maxLinks {
		dirs[filepath.Dir(path)] = true
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		dirs[filepath.Dir(resolved)] = true
	}
}

// fingerprint tells one state of the files from another: names, sizes, times and identities of what is in
// the directory, links followed.
func (w *FileWatcher) fingerprint() string {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return "unreadable"
	}
	var text string
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if ext != ".hcl" && ext != ".vars" {
			continue
		}
		info, err := os.Stat(filepath.Join(w.dir, e.Name()))
		if err != nil {
			text += e.Name() + " missing\n"
			continue
		}
		text += fmt.Sprintln(e.Name(), info.Size(), info.ModTime().UnixNano(), identity(info))
	}
	return text
}
