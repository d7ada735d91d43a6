package apply

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

func expectQuiet(t *testing.T, w *FileWatcher, what string) {
	t.Helper()
	select {
	case <-w.Changed():
		t.Fatal(what + " was told")
	case <-time.After(5 * filesDebounce):
	}
}

// checkouts are directories with a job.hcl: of a repository, below its root, of a worktree, of a submodule, and one of
// links to the files of a checkout. Beside each is the lock that git writes it under.
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
			if _, err := w.Git(); err != nil {
				t.Fatalf("without a lock: %v", err)
			}
			write(t, lock, "")
			write(t, filepath.Join(dir, "job.hcl"), "ab")
			expectQuiet(t, w, "half a checkout")
			var unsteady *UnsteadyError
			if _, err := w.Git(); !errors.As(err, &unsteady) || !strings.Contains(err.Error(), lock) {
				t.Errorf("with a lock: %v", err)
			}
			must(t, os.Remove(lock))
			expectChange(t, w, "what git did")

			// It holds while a file, or what a link leads to, is gone.
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
	aged(unsteadyTold)
	expectChange(t, w, "that git takes long") // read it is not: see Git
	if _, err := w.Git(); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("it is read: %v", err)
	}
	aged(gitMost + time.Second)
	expectChange(t, w, "that nobody waits any more")
	if caution, err := w.Git(); err != nil || !strings.Contains(caution, "Git was killed") {
		t.Errorf("it says %q, %v", caution, err)
	}
	write(t, filepath.Join(dir, "job.hcl"), "ab")
	expectChange(t, w, "an edit beside an old lock")
	aged(-2 * gitMost) // by a clock that is wrong
	if _, err := w.Git(); err != nil {
		t.Errorf("a lock of the future holds: %v", err)
	}
	must(t, os.Remove(lock))
	if caution, err := w.Git(); err != nil || caution != "" {
		t.Errorf("without a lock it says %q, %v", caution, err)
	}
}

func TestWhoStartsWaitsForGit(t *testing.T) {
	where := checkouts(t)["a worktree"]
	dir, lock := where[0], where[1]
	write(t, lock, "")
	must(t, os.Chtimes(lock, time.Time{}, time.Now().Add(-unsteadyTold)))
	told := make(chan string, 1)
	ended := make(chan error, 1)
	go func() { ended <- AwaitGit(t.Context(), dir, func(why string) { told <- why }) }()
	select {
	case why := <-told:
		if !strings.Contains(why, lock) {
			t.Errorf("told %q", why)
		}
	case <-time.After(far):
		t.Fatal("not told")
	}
	if len(ended) > 0 {
		t.Error("it does not wait")
	}
	must(t, os.Remove(lock))
	must(t, <-ended)
	write(t, lock, "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := AwaitGit(ctx, dir, func(string) {}); err == nil {
		t.Error("an interrupt does not end it")
	}
	must(t, os.Chtimes(lock, time.Time{}, time.Now().Add(-2*gitMost)))
	must(t, AwaitGit(t.Context(), dir, func(string) { t.Error("told of what it does not wait for") }))
}

func TestThatJobsAreGoneIsBelievedOfFilesThatAreStill(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.hcl"), "a")
	w := watchDir(t, dir)
	must(t, os.Remove(filepath.Join(dir, "a.hcl")))
	var unsteady *UnsteadyError
	if err := w.Still([]string{"a"}); !errors.As(err, &unsteady) || !unsteady.Again.After(unsteady.Since) || time.Until(unsteady.Again) > stillLook {
		t.Fatalf("%+v", err)
	}
	first := unsteady.Since
	write(t, filepath.Join(dir, "a.hcl"), "a")
	if err := w.Still([]string{"a"}); !errors.As(err, &unsteady) || !unsteady.Since.After(first) {
		t.Errorf("a further change does not count: %+v", err)
	}
	w.mu.Lock()
	w.still.seen = filesStill
	w.mu.Unlock()
	if err := w.Still([]string{"a"}); err != nil {
		t.Errorf("they are still: %v", err)
	}
}

// A machine that is suspended amid a checkout finds the files as they were, and nobody has looked at them meanwhile.
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
			t.Errorf("%q after %v, told %d times: %v", print, time.Since(begun), told, err)
		}
		if took := time.Since(begun); took < 2*filesStill-time.Second || took > 2*filesStill {
			t.Errorf("believed %v after the start, of which the last write was at %v", took, filesStill-time.Second)
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
		var unsteady *UnsteadyError
		begun := time.Now()
		if _, err := AwaitStill(t.Context(), []string{dir}, func() {}); !errors.As(err, &unsteady) || time.Since(begun) != stillMost {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		cancel()
		writing.Wait()
		if _, err := AwaitStill(ctx, []string{dir}, func() {}); !errors.Is(err, context.Canceled) {
			t.Errorf("an interrupt does not end it: %v", err)
		}
	})
}

// That a job is in the files no more is told at once, and not only once it is believed: to whoever watches, and to whoever asks.
func TestAJobThatIsLostIsToldAtOnce(t *testing.T) {
	b, view := guarded(t, func(*Options) {})
	gone := &UnsteadyError{Text: "Jobs are in the files no more.", Since: b.now, Again: b.now.Add(filesStill), Lost: []string{"b"}}
	told := []string{"job.b: it is not in the files any more, which is believed in 5s, unless it comes back"}
	for range 2 { // somebody writes on
		b.heed(reading(Files{}, gone))
		if p := b.turn(t); len(removed(p)) > 0 {
			t.Errorf("removed %v", removed(p))
		}
		if got := view.messages("withheld"); !slices.Equal(got, told) {
			t.Errorf("told %q", got)
		}
	}
	if live := b.Live(); !strings.Contains(waitsOf(plan.Plan{Waits: live.Waits}, "b"), "left_files(after=5s)") {
		t.Errorf("it waits for %+v", live.Waits)
	}
	b.heed(reading(Files{Jobs: two(2)}, nil))
	b.turn(t)
	if got := view.messages("withheld"); !slices.Equal(got, append(told, "job.b: over: it is in the files again")) || len(b.Live().Waits) > 0 {
		t.Errorf("once it is back told is %q, and it waits for %+v", got, b.Live().Waits)
	}
	view.notices = view.notices[:0]
	both := *gone
	both.Lost = []string{"a", "b"}
	b.heed(reading(Files{}, &both))
	b.heed(reading(Files{}, gone)) // a has come back, and b has not yet
	b.heed(reading(Files{Jobs: two(2)}, nil))
	b.turn(t)
	if got := view.messages("withheld"); len(got) != 4 || got[2] != "job.a: over: it is in the files again" || got[3] != "job.b: over: it is in the files again" {
		t.Errorf("of two that come back one after the other is told %q", got)
	}
	b.heed(reading(Files{}, gone))
	b.heed(reading(Files{}, &UnusableError{Brief: "A typo.", Text: "A typo."}))
	b.turn(t)
	if waits := waitsOf(plan.Plan{Waits: b.Live().Waits}, "b"); strings.Contains(waits, "is believed") {
		t.Errorf("with an error in the files it waits for %q", waits)
	}
	view.notices = view.notices[:0]
	b.heed(reading(Files{}, gone))
	b.heed(reading(Files{Jobs: two(2)[:1]}, nil))
	b.turns(t)
	if got := view.messages("withheld"); !slices.Contains(got, told[0]) || b.Records()["b"] != nil || len(b.Live().Waits) > 0 {
		t.Errorf("once it is believed told is %q, and it waits for %+v", got, b.Live().Waits)
	}
}

// With -prune=false nothing is destroyed, so there is nothing to announce.
func TestAJobThatIsLostAndStaysIsNotTold(t *testing.T) {
	b, view := guarded(t, func(o *Options) { o.Keep = true })
	b.heed(reading(Files{}, &UnsteadyError{Since: b.now, Again: b.now.Add(filesStill), Lost: []string{"b"}}))
	b.turn(t)
	if got := view.messages("withheld"); len(got) > 0 || len(b.Live().Waits) > 0 {
		t.Errorf("told %q, waits %+v", got, b.Live().Waits)
	}
}

func TestFilesThatAreBeingWrittenChangeNothingAndAreReadLater(t *testing.T) {
	b, view := guarded(t, func(o *Options) { o.Commit = "1111111" })
	busy := &UnsteadyError{Text: "index.lock is there.", Since: b.now, Again: b.now.Add(filesStill)}
	if b.reload(reading(Files{}, busy)) || !b.again.Equal(busy.Again) {
		t.Fatal("it is read, or not again")
	}
	p := b.turn(t)
	if len(removed(p)) > 0 || waitsOf(p, "a") != "" || len(view.warned) > 0 {
		t.Errorf("removed %v, a waits %s, warned %q", removed(p), waitsOf(p, "a"), view.warned)
	}
	// A request waits with them, and is answered with what they come to.
	most := 4
	answers := make(chan elastic.ReconcileReply, 1)
	go func() { answers <- b.Reconcile(t.Context(), elastic.ReconcileRequest{MaxDestroy: &most}) }()
	eventually(t, "the request", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.requests) == 1
	})
	b.now = b.now.Add(unsteadyTold)
	for range 2 {
		b.heed(reading(Files{}, busy))
		b.turn(t)
	}
	if len(b.heeded) > 0 || len(b.requests) != 1 || len(answers) > 0 {
		t.Error("the request is answered before the files are read")
	}
	want := unsteadyTrouble + ": " + busy.Text
	if got := view.messages("configuration"); !slices.Equal(got, []string{want}) {
		t.Errorf("events %q", got)
	}
	if !slices.Contains(view.warned, want) {
		t.Errorf("warned %q", view.warned)
	}
	b.heed(reading(Files{Jobs: two(2)[:1], Commit: "2222222", Caution: "an old lock"}, nil))
	b.turn(t)
	if reply := <-answers; reply.Changes == nil || reply.Changes.Remove != 2 || reply.Commit != "2222222" {
		t.Errorf("answered %+v", reply)
	}
	if !b.again.IsZero() || !b.unsteady.IsZero() {
		t.Error("they are read again")
	}
	if got := view.messages("configuration"); !slices.Contains(got, filesCaution+": an old lock") {
		t.Errorf("events %q", got)
	}
}

// The loop reads again by itself when it is time: nothing tells that nothing happens.
func TestTheLoopReadsAgainWhenTheFilesAreStill(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Clock, o.Spawn = nil, nil; o.Jobs = []job.Job{} })
	ctx, cancel := context.WithCancel(t.Context())
	readings := 0
	changed := make(chan struct{}, 1)
	changed <- struct{}{}
	w := &Watch{Changed: changed, Reload: func() (Files, error) {
		if readings++; readings == 1 {
			return Files{}, &UnsteadyError{Since: time.Now(), Again: time.Now().Add(filesDebounce)}
		}
		cancel()
		return Files{}, nil
	}}
	end := time.AfterFunc(far, cancel)
	defer end.Stop()
	if _, err := b.Run(ctx, w); err != nil || readings != 2 {
		t.Errorf("%d readings, %v", readings, err)
	}
}

// A lock that comes just as the files are read, as that of git status, is no change that anybody tells of when it goes.
func TestFilesAreReadAgainAfterALockThatCameAsTheyWere(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, ".git"), 0o755))
	w := watchDir(t, dir)
	lock := filepath.Join(dir, ".git", "index.lock")
	write(t, lock, "")
	var unsteady *UnsteadyError
	if _, err := w.Git(); !errors.As(err, &unsteady) || unsteady.Again.IsZero() || time.Until(unsteady.Again) > gitAgain {
		t.Errorf("while git is at work: %v, %+v", err, unsteady)
	}
	must(t, os.Remove(lock))
	if _, err := w.Git(); err != nil {
		t.Errorf("when it is not: %v", err)
	}
}
