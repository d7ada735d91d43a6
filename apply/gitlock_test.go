package apply

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eltrain/eltrain/job"
)

func expectQuiet(t *testing.T, w *FileWatcher, what string) {
	t.Helper()
	select {
	case <-w.Changed():
		t.Fatal(what + " was signaled")
	case <-time.After(5 * filesDebounce):
	}
}

// checkouts returns directories with a job.hcl, each with the path of its git lock: a repository, a directory below its
// root, a worktree, a submodule, and a directory of links to a checkout's files.
func checkouts(t *testing.T) map[string][2]string {
	t.Helper()
	root := t.TempDir()
	repo, tree, super, links := filepath.Join(root, "repo"), filepath.Join(root, "tree"), filepath.Join(root, "super"), filepath.Join(root, "links")
	must(t, os.MkdirAll(filepath.Join(repo, "jobs"), 0o755))
	git(t, repo, "init", "-q", "-b", "main")
	write(t, filepath.Join(repo, "job.hcl"), "a")
	write(t, filepath.Join(repo, "jobs", "job.hcl"), "a")
	git(t, repo, "add", ".")
	git(t, repo, "commit", "-q", "-m", "a")
	git(t, repo, "worktree", "add", "-q", "-b", "other", tree)
	must(t, os.Mkdir(super, 0o755))
	git(t, super, "init", "-q")
	git(t, super, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", repo, "sub")
	must(t, os.Mkdir(links, 0o755))
	must(t, os.Symlink(filepath.Join(tree, "job.hcl"), filepath.Join(links, "job.hcl")))
	return map[string][2]string{
		"a checkout":      {repo, filepath.Join(repo, ".git", "index.lock")},
		"a directory":     {filepath.Join(repo, "jobs"), filepath.Join(repo, ".git", "index.lock")},
		"a worktree":      {tree, filepath.Join(repo, ".git", "worktrees", "tree", "index.lock")},
		"a submodule":     {filepath.Join(super, "sub"), filepath.Join(super, ".git", "modules", "sub", "index.lock")},
		"links to a tree": {links, filepath.Join(repo, ".git", "worktrees", "tree", "index.lock")},
	}
}

func TestNothingIsReadWhileGitIsAtWork(t *testing.T) {
	for name, where := range checkouts(t) {
		t.Run(name, func(t *testing.T) {
			dir, lock := where[0], where[1]
			w := watchDir(t, dir)
			if _, err := Git(w.watched()...); err != nil {
				t.Fatalf("without a lock: %v", err)
			}
			write(t, lock, "")
			write(t, filepath.Join(dir, "job.hcl"), "ab")
			expectQuiet(t, w, "half a checkout")
			var unsteady *UnsteadyError
			if _, err := Git(w.watched()...); !errors.As(err, &unsteady) || !strings.Contains(err.Error(), lock) {
				t.Errorf("with a lock: %v", err)
			}
			must(t, os.Remove(lock))
			expectChange(t, w, "what git did")

			// The lock holds while a file, or a link's target, is gone.
			file, err := filepath.EvalSymlinks(filepath.Join(dir, "job.hcl"))
			must(t, err)
			write(t, lock, "")
			must(t, os.Rename(file, file+".away"))
			expectQuiet(t, w, "a file that git renames")
			must(t, os.Remove(lock))
			expectChange(t, w, "the rename")
			must(t, os.Rename(file+".away", file))
		})
	}
}

func TestALockThatAKilledGitHasLeftIsToldAndDoesNotHoldForEver(t *testing.T) {
	where := checkouts(t)["a checkout"]
	dir, lock := where[0], where[1]
	w := watchDir(t, dir)
	write(t, lock, "")
	write(t, filepath.Join(dir, "job.hcl"), "cut")
	aged := func(by time.Duration) { must(t, os.Chtimes(lock, time.Time{}, time.Now().Add(-by))) }
	aged(reportUnsteadyAfter)
	expectChange(t, w, "that git takes long") // but it is not read: see Git
	if _, err := Git(w.watched()...); err == nil || !strings.Contains(err.Error(), string(GitBusy)) {
		t.Errorf("it is read: %v", err)
	}
	aged(maxLockAge + time.Second)
	expectChange(t, w, "that nobody waits any more")
	if caution, err := Git(w.watched()...); err != nil || caution.Code != FilesDoubtful || caution.Args["path"] != lock {
		t.Errorf("it says %v, %v", caution, err)
	}
	write(t, filepath.Join(dir, "job.hcl"), "ab")
	expectChange(t, w, "an edit beside an old lock")
	aged(-2 * maxLockAge) // as by a wrong clock
	if _, err := Git(w.watched()...); err != nil {
		t.Errorf("a lock from the future holds: %v", err)
	}
	must(t, os.Remove(lock))
	if caution, err := Git(w.watched()...); err != nil || !caution.IsZero() {
		t.Errorf("without a lock it says %v, %v", caution, err)
	}
}

func TestWhoStartsWaitsForGit(t *testing.T) {
	where := checkouts(t)["a worktree"]
	dir, lock := where[0], where[1]
	write(t, lock, "")
	must(t, os.Chtimes(lock, time.Time{}, time.Now().Add(-reportUnsteadyAfter)))
	told := make(chan job.Reason, 1)
	ended := make(chan error, 1)
	go func() { ended <- AwaitGit(t.Context(), dir, func(why job.Reason) { told <- why }) }()
	select {
	case why := <-told:
		if why.Args["path"] != lock {
			t.Errorf("told %v", why)
		}
	case <-time.After(far):
		t.Fatal("nothing was reported")
	}
	if len(ended) > 0 {
		t.Error("AwaitGit does not wait")
	}
	must(t, os.Remove(lock))
	must(t, <-ended)
	write(t, lock, "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := AwaitGit(ctx, dir, func(job.Reason) {}); err == nil {
		t.Error("an interrupt does not end it")
	}
	must(t, os.Chtimes(lock, time.Time{}, time.Now().Add(-2*maxLockAge)))
	must(t, AwaitGit(t.Context(), dir, func(job.Reason) { t.Error("reports a lock that it does not wait for") }))
}

func TestThatJobsAreGoneIsBelievedOfFilesThatAreStill(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.hcl"), "a")
	w := watchDir(t, dir)
	must(t, os.Remove(filepath.Join(dir, "a.hcl")))
	var unsteady *UnsteadyError
	if err := w.Still(Fingerprint(dir), []string{"a"}); !errors.As(err, &unsteady) || !unsteady.Again.After(unsteady.Since) || time.Until(unsteady.Again) > stillLook {
		t.Fatalf("%+v", err)
	}
	first := unsteady.Since
	write(t, filepath.Join(dir, "a.hcl"), "a")
	if err := w.Still(Fingerprint(dir), []string{"a"}); !errors.As(err, &unsteady) || !unsteady.Since.After(first) {
		t.Errorf("a further change does not count: %+v", err)
	}
	w.still.seen = filesStill
	if err := w.Still(Fingerprint(dir), []string{"a"}); err != nil {
		t.Errorf("still files count as unsteady: %v", err)
	}
}

// If the machine was suspended during a checkout, unchanged files prove nothing: nobody looked at them meanwhile.
func TestTimeInWhichNobodyLooksIsNoStillness(t *testing.T) {
	begun := time.Now()
	var s stillness
	for _, c := range []struct {
		at    time.Duration
		print string
		seen  time.Duration
	}{
		{0, "", 0}, {100 * time.Millisecond, "", 100 * time.Millisecond}, {time.Hour, "", 100*time.Millisecond + stillLook},
		{time.Hour + time.Second, "other", 0}, {time.Hour + 3*time.Second/2, "other", time.Second / 2}, {2 * time.Hour, "", 0},
	} {
		if s.look(c.print, begun.Add(c.at)); s.seen != c.seen {
			t.Errorf("after %v it was seen for %v, want %v", c.at, s.seen, c.seen)
		}
	}
}

func TestWhoStartsWaitsUntilFilesAreStill(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.hcl")
	synctest.Test(t, func(t *testing.T) {
		write(t, path, "a")
		told, begun := 0, time.Now()
		last := time.AfterFunc(filesStill-time.Second, func() { write(t, path, "ab") })
		defer last.Stop()
		print, err := AwaitStill(t.Context(), []string{dir}, func() { told++ })
		if err != nil || print != Fingerprint(dir) || told != 1 {
			t.Errorf("%q after %v, reported %d times: %v", print, time.Since(begun), told, err)
		}
		if took := time.Since(begun); took < 2*filesStill-time.Second || took > 2*filesStill {
			t.Errorf("accepted %v after the start; the last write was at %v", took, filesStill-time.Second)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var writing sync.WaitGroup
		writing.Go(func() {
			for text := "a"; sleep(ctx, time.Second); text += "a" {
				write(t, path, text)
			}
		})
		begun := time.Now()
		if _, err := AwaitStill(t.Context(), []string{dir}, func() {}); err == nil || time.Since(begun) != maxStillWait {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		cancel()
		writing.Wait()
		if _, err := AwaitStill(ctx, []string{dir}, func() {}); !errors.Is(err, context.Canceled) {
			t.Errorf("an interrupt does not end it: %v", err)
		}
	})
}

// A lock that appears just as the files are read, such as that of git status, goes without an event.
func TestFilesAreReadAgainAfterALockThatCameAsTheyWere(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, ".git"), 0o755))
	w := watchDir(t, dir)
	lock := filepath.Join(dir, ".git", "index.lock")
	write(t, lock, "")
	var unsteady *UnsteadyError
	if _, err := Git(w.watched()...); !errors.As(err, &unsteady) || unsteady.Again.IsZero() || time.Until(unsteady.Again) > gitAgain {
		t.Errorf("while git is at work: %v, %+v", err, unsteady)
	}
	must(t, os.Remove(lock))
	if _, err := Git(w.watched()...); err != nil {
		t.Errorf("when it is not: %v", err)
	}
}
