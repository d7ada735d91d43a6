package apply

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/eltrain/eltrain/job"
)

// While git changes a checkout it holds index.lock, from before it removes the first file until after it has
// written the last. Files read meanwhile match no commit: one that is being renamed may be missing.
const (
	// maxLockAge is the maximum age of a lock that keeps the files from being read. A checkout of 8,000 files takes half a
	// second, one that fetches large files some minutes, and one that was killed leaves its lock behind.
	maxLockAge = 5 * time.Minute
	// reportUnsteadyAfter is how long files may be unsteady before the user is told: most checkouts are done by then.
	reportUnsteadyAfter = 10 * time.Second
	// gitPoll is how often to check whether git has ended, or the files are still.
	gitPoll = 100 * time.Millisecond
	// gitAgain is when a master that found git at work looks again: most often it was a git status, which takes
	// milliseconds.
	gitAgain = 500 * time.Millisecond
	// reportStillAfter is how long a start waits for unchanged files before the user is told.
	reportStillAfter = 2 * time.Second
	// maxStillWait is how long a start waits for files that keep changing. Nothing heals the jobs meanwhile.
	maxStillWait = time.Minute
)

// UnsteadyError says why the files are not read now: they are being written, or may be half written. The current
// configuration stays in effect until they are read again.
type UnsteadyError struct {
	Why   job.Reason // GitBusy or JobsMissing
	Since time.Time  // when it began
	Again time.Time  // when to try again, since no event signals that writing has ended
	Lost  []string   // names of the jobs that are no longer in the files, if that is why
}

func (e *UnsteadyError) Error() string { return e.Why.String() }

// gitLock is the index.lock of a checkout.
type gitLock struct {
	path  string
	since time.Time
}

// lockOfGit finds the oldest lock on a checkout that the configuration at paths is read from; its path is "" if
// there is none.
func lockOfGit(paths []string) (oldest gitLock) {
	for dir := range watchDirs(paths) {
		git := gitDirectory(dir)
		if git == "" {
			continue
		}
		path := filepath.Join(git, "index.lock")
		if info, err := os.Lstat(path); err == nil && (oldest.path == "" || info.ModTime().Before(oldest.since)) {
			oldest = gitLock{path, info.ModTime()}
		}
	}
	return oldest
}

// left reports whether the lock is so old, or so far in the future because of a wrong clock, that git was probably killed.
func (l gitLock) left(now time.Time) bool {
	age := now.Sub(l.since)
	return age > maxLockAge || age < -maxLockAge
}

// unsteady is the error while the lock is held.
func (l gitLock) unsteady(now time.Time) *UnsteadyError {
	return &UnsteadyError{Since: l.since, Again: now.Add(gitAgain), Why: job.Because(GitBusy,
		"path", l.path, "since", l.since.Format(time.RFC3339), "until", l.since.Add(maxLockAge).Format(time.RFC3339))}
}

// leftBehind is the caution about a lock that is no longer waited for.
func (l gitLock) leftBehind() job.Reason {
	return job.Because(FilesDoubtful, "path", l.path, "since", l.since.Format(time.RFC3339))
}

// AwaitGit waits while git is working on the checkout of dir, for maxLockAge at most. dir is absolute. told is called once if
// it takes long.
func AwaitGit(ctx context.Context, dir string, told func(why job.Reason)) error {
	waiting := false
	for {
		lock, now := lockOfGit([]string{dir}), time.Now()
		if lock.path == "" || lock.left(now) {
			return nil
		}
		if !waiting && now.Sub(lock.since) >= reportUnsteadyAfter {
			waiting = true
			told(lock.unsteady(now).Why)
		}
		if !sleep(ctx, gitPoll) {
			return ctx.Err()
		}
	}
}

// AwaitStill waits until the files of paths, which are absolute, have been unchanged for filesStill, and returns their
// fingerprint. told is called once if it takes long. Files that keep changing for maxStillWait are an error.
func AwaitStill(ctx context.Context, paths []string, told func()) (string, error) {
	begun, waiting := time.Now(), false
	var still stillness
	for {
		now := time.Now()
		if still.look(Fingerprint(paths...), now); still.seen >= filesStill {
			return still.print, nil
		}
		if still.since.Sub(begun) >= maxStillWait-filesStill && now.Sub(begun) >= maxStillWait {
			return "", fmt.Errorf("jobs are no longer in the files, and within %s the files were never unchanged for %s: something keeps writing them", maxStillWait, filesStill)
		}
		if !waiting && now.Sub(begun) >= reportStillAfter {
			waiting = true
			told()
		}
		if !sleep(ctx, gitPoll) {
			return "", ctx.Err()
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
