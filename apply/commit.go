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
)

const (
	// shortHash is how much of a commit's hash is told: what git itself shows.
	shortHash = 7
	// maxSubject bounds what is told of a commit's subject, in characters: git's advice is 50, and longer ones are common.
	maxSubject = 72
	// maxGitFile bounds what is read of a file in .git. packed-refs of 100,000 refs is some 7 MB.
	maxGitFile = 16 << 20
	// gitTimeout bounds the asking of git for a subject.
	gitTimeout = 2 * time.Second
)

// commitHash is a whole hash, SHA-1 or SHA-256.
var commitHash = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// CommitAt names the commit that is checked out where dir is, for a person: `1a2b3c4 "Add gpt"`, or the hash alone
// where git is not installed or does not know it. It is "" where no repository is. What was edited since is not looked at.
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

// gitDirectory is where git keeps what belongs to the checkout that dir is in; "" if it is in none. Of a worktree, or a
// submodule, .git is a file that says where.
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

// joined is a path that is relative to dir, or stands for itself.
func joined(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// headOf is the hash that HEAD stands for; "" if there is none yet, or refs are kept in another form (reftable).
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

// gitFile is the text of a small file, "" if it cannot be read.
func gitFile(path string) string {
	f, err := os.Open(path)
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

// subjectOf asks git for a commit's subject, if git is installed. cat-file only reads: no hook, filter or helper that
// the repository names is run by it.
func subjectOf(ctx context.Context, dir, hash string) string {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", "-C", dir, "cat-file", "commit", hash)
	cmd.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0", "GIT_NO_LAZY_FETCH=1", "GIT_TERMINAL_PROMPT=0")
	cmd.WaitDelay = gitTimeout
	text, err := cmd.Output()
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
