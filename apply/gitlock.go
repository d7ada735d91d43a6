package apply

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// While git changes what is checked out it holds index.lock, from before it removes the first file until after it has
// written the last. What is read meanwhile is of no commit: a file that is renamed may be gone in it.
const (
	// gitMost is how old a lock may be and still keep the files from being read. A checkout of 8,000 files takes half a
	// second, and one that fetches large files some minutes; one that was killed leaves its lock forever.
	gitMost = 5 * time.Minute
	// unsteadyTold is how long files are not read before a person is told why: a checkout is done by then.
	unsteadyTold = 10 * time.Second
	// gitPoll is how often it is looked whether git has ended, or the files are still.
	gitPoll = 100 * time.Millisecond
	// gitAgain is when a master looks again that found git at work as it read the files: most often another one's git status,
	// which takes milliseconds.
	gitAgain = 500 * time.Millisecond
	// stillTold is how long a start waits for files to be still before a person is told why.
	stillTold = 2 * time.Second
	// stillMost is how long it waits for files that are written all the time. Nobody heals the jobs meanwhile.
	stillMost = time.Minute
)

// UnsteadyError is why the files are not read now: somebody writes them, or may have done half of it. What is in effect
// stays so until they are read again.
type UnsteadyError struct {
	Text  string    // for a person
	Since time.Time // when it began
	Again time.Time // when to read them: that nothing is written anymore nobody tells
	Lost  []string  // jobs, by name, that are no longer in the files, if that is why
}

func (e *UnsteadyError) Error() string { return e.Text }

// gitLock is the index.lock of a checkout.
type gitLock struct {
	path  string
	since time.Time
}

// lockOfGit finds the oldest lock under which something is written on the way to the configuration, which is read from
// paths; no path of a lock if there is none.
func lockOfGit(paths []string) (oldest gitLock) {
	for dir := range ways(paths) {
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

// left reports whether the lock is so old that git was killed, most likely. One from the future is by a clock that is wrong.
func (l gitLock) left(now time.Time) bool {
	age := now.Sub(l.since)
	return age > gitMost || age < -gitMost
}

// unsteady is why the files are not read while the lock is held.
func (l gitLock) unsteady(now time.Time) *UnsteadyError {
	return &UnsteadyError{Since: l.since, Again: now.Add(gitAgain), Text: fmt.Sprintf(
		"%s exists since %s, and the files are not read until it is gone, or %s at the latest. The current configuration stays in effect. If no git is running, a killed one left it behind: remove it.",
		l.path, l.since.Format(time.TimeOnly), l.since.Add(gitMost).Format(time.TimeOnly))}
}

// leftBehind is what to know of a lock that nobody waits for anymore.
func (l gitLock) leftBehind() string {
	return fmt.Sprintf("%s exists since %s: git seems to have been killed. The files are read as they are and may not match a commit. Remove it if no git is running.",
		l.path, l.since.Format(time.DateTime))
}

// AwaitGit waits until git has done what it is about where dir is, as long as that may take. dir is absolute. told is called once if it
// takes long.
func AwaitGit(ctx context.Context, dir string, told func(why string)) error {
	waiting := false
	for {
		lock, now := lockOfGit([]string{dir}), time.Now()
		if lock.path == "" || lock.left(now) {
			return nil
		}
		if !waiting && now.Sub(lock.since) >= unsteadyTold {
			waiting = true
			told(lock.unsteady(now).Text)
		}
		if !sleep(ctx, gitPoll) {
			return ctx.Err()
		}
	}
}

// AwaitStill waits until the files of paths, which are absolute, have been as they are for so long that it is certain that
// jobs are no longer in them, and returns their fingerprint. told is called once if it takes long. Where somebody writes there
// all the time it is an UnsteadyError in the end.
func AwaitStill(ctx context.Context, paths []string, told func()) (string, error) {
	begun, waiting := time.Now(), false
	var still stillness
	for {
		now := time.Now()
		if still.look(Fingerprint(paths...), now); still.seen >= filesStill {
			return still.print, nil
		}
		if still.since.Sub(begun) >= stillMost-filesStill && now.Sub(begun) >= stillMost {
			return "", &UnsteadyError{Since: begun, Text: fmt.Sprintf(
				"Jobs are no longer in the files, and within %s the files were never unchanged for %s: something keeps writing them", stillMost, filesStill)}
		}
		if !waiting && now.Sub(begun) >= stillTold {
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
