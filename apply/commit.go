package apply

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/eltrain/eltrain/internal/regular"
)

const (
	// shortHash is the length of an abbreviated hash: git's default.
	shortHash = 7
	// maxSubject bounds a commit's subject, in characters: git recommends 50, and longer ones are common.
	maxSubject = 72
	// maxGitFile bounds how much of a file in .git is read. packed-refs of 100,000 refs takes about 7 MB.
	maxGitFile = 16 << 20
	// gitTimeout bounds the git command that reads a subject.
	gitTimeout = 2 * time.Second
)

// commitHash matches a full hash, SHA-1 or SHA-256.
var (
	commitHash  = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	shortCommit = regexp.MustCompile(`^[0-9a-f]{7,64}$`)
)

// CommitAt describes the commit that is checked out at dir, for display: `1a2b3c4 "Add gpt"`, or the hash alone
// if git is not installed or does not know it. It is "" outside a repository. Uncommitted edits are ignored.
func CommitAt(ctx context.Context, dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	hash := headOf(gitDirectory(dir))
	if hash == "" {
		return ""
	}
	if subject := subjectOf(ctx, dir, hash); subject != "" {
		return fmt.Sprintf("%s %q", hash[:shortHash], subject)
	}
	return hash[:shortHash]
}

// gitDirectory returns the git directory of the checkout that contains dir; "" if there is none. In a worktree or
// submodule, .git is a file that names that directory.
func gitDirectory(dir string) string {
	for {
		path := filepath.Join(dir, ".git")
		info, err := os.Stat(path)
		switch {
		case err == nil && info.IsDir():
			return path
		case err == nil:
			to, found := strings.CutPrefix(gitFile(path), "gitdir: ")
			if !found {
				return ""
			}
			return joined(dir, to)
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// joined resolves path relative to dir, unless it is absolute.
func joined(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// headOf returns the hash that HEAD resolves to; "" if there is none yet, or refs are stored in another format (reftable).
func headOf(git string) string {
	if git == "" {
		return ""
	}
	common := git // refs are shared between worktrees
	if other := gitFile(filepath.Join(git, "commondir")); other != "" {
		common = joined(git, other)
	}
	head := gitFile(filepath.Join(git, "HEAD"))
	name, symbolic := strings.CutPrefix(head, "ref: ")
	if symbolic {
		head = ""
		if filepath.IsLocal(name) {
			head = gitFile(filepath.Join(common, name))
		}
		if head == "" {
			head = packedRef(filepath.Join(common, "packed-refs"), name)
		}
	}
	if !commitHash.MatchString(head) {
		return ""
	}
	return head
}

// packedRef finds a ref in packed-refs: lines of hash and name.
func packedRef(path, name string) string {
	for line := range strings.Lines(gitFile(path)) {
		if hash, is := strings.CutSuffix(strings.TrimSpace(line), " "+name); is {
			return hash
		}
	}
	return ""
}

// gitFile returns the trimmed text of a small file; "" if it cannot be read.
func gitFile(path string) string {
	f, err := regular.OpenNamed(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxGitFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Follows reports whether a commit has another one among its ancestors, both as CommitAt describes them. It is false if the repository of
// dir does not know both.
func Follows(ctx context.Context, dir, commit, ancestor string) bool {
	later, _, _ := strings.Cut(commit, " ")
	earlier, _, _ := strings.Cut(ancestor, " ")
	if !shortCommit.MatchString(later) || !shortCommit.MatchString(earlier) || later == earlier {
		return false
	}
	_, err := askGit(ctx, dir, "merge-base", "--is-ancestor", earlier, later)
	return err == nil
}

// askGit runs a command of git that only reads: it runs no hook, filter or helper that the repository configures.
func askGit(ctx context.Context, dir string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0", "GIT_NO_LAZY_FETCH=1", "GIT_TERMINAL_PROMPT=0")
	cmd.WaitDelay = gitTimeout
	return cmd.Output()
}

// subjectOf asks git for a commit's subject, if git is installed.
func subjectOf(ctx context.Context, dir, hash string) string {
	text, err := askGit(ctx, dir, "cat-file", "commit", hash)
	if err != nil {
		return ""
	}
	_, message, _ := bytes.Cut(text, []byte("\n\n"))
	subject, _, _ := strings.Cut(strings.TrimSpace(string(message)), "\n")
	if runes := []rune(strings.ToValidUTF8(subject, "")); len(runes) > maxSubject {
		return string(runes[:maxSubject-1]) + "…"
	}
	return strings.ToValidUTF8(subject, "")
}
