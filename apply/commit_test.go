package apply

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// git runs git in dir with a neutral configuration.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestTheCommitIsReadFromEveryFormOfACheckout(t *testing.T) {
	repo := t.TempDir()
	git(t, repo, "init", "-q", "-b", "main")
	if got := CommitAt(t.Context(), repo); got != "" {
		t.Errorf("before the first commit: %s", got)
	}
	must(t, os.Mkdir(filepath.Join(repo, "jobs"), 0o755))
	commit := func(subject string) string {
		write(t, filepath.Join(repo, "jobs", "job.hcl"), subject)
		git(t, repo, "add", ".")
		git(t, repo, "commit", "-q", "-m", subject, "-m", "Its body.")
		return git(t, repo, "rev-parse", "HEAD")[:shortHash]
	}
	expect := func(how, dir, want string) {
		t.Helper()
		if got := CommitAt(t.Context(), dir); got != want {
			t.Errorf("%s: %s, want %s", how, got, want)
		}
	}
	first := commit("Add gpt")
	expect("a branch", repo, first+` "Add gpt"`)
	expect("a directory below", filepath.Join(repo, "jobs"), first+` "Add gpt"`)
	second := commit(strings.Repeat("é", maxSubject+1))
	expect("a long subject", repo, second+` "`+strings.Repeat("é", maxSubject-1)+`…"`)
	if !Follows(t.Context(), repo, second+` "x"`, first) || Follows(t.Context(), repo, first, second) || Follows(t.Context(), repo, first, first) ||
		Follows(t.Context(), repo, "--all", first) || Follows(t.Context(), t.TempDir(), second, first) {
		t.Error("the order of commits is wrong")
	}
	git(t, repo, "pack-refs", "--all")
	third := git(t, repo, "rev-parse", "HEAD")[:shortHash]
	if _, err := os.Stat(filepath.Join(repo, ".git/refs/heads/main")); err == nil {
		t.Error("the ref is not packed")
	}
	expect("packed refs", repo, third+` "`+strings.Repeat("é", maxSubject-1)+`…"`)
	tree := filepath.Join(t.TempDir(), "tree")
	git(t, repo, "worktree", "add", "-q", "-b", "other", tree, first)
	expect("a worktree on a branch", filepath.Join(tree, "jobs"), first+` "Add gpt"`)
	git(t, tree, "checkout", "-q", "--detach")
	expect("a detached worktree", tree, first+` "Add gpt"`)

	t.Setenv("PATH", t.TempDir())
	expect("without git", repo, third)
}

func TestWhatIsNoCheckoutHasNoCommit(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "main")
	write(t, outside, strings.Repeat("a", 40))
	for name, files := range map[string]map[string]string{
		"nothing":            {},
		"an empty .git":      {".git/x": ""},
		"a HEAD of garbage":  {".git/HEAD": "garbage"},
		"a HEAD of bytes":    {".git/HEAD": strings.Repeat("\x00", 40)},
		"a ref that is none": {".git/HEAD": "ref: refs/heads/.invalid", ".git/packed-refs": "# pack-refs\nfffff refs/heads/main"},
		"a ref outside":      {".git/HEAD": "ref: ../../../../../../../../" + outside},
		"a .git of garbage":  {".git": "garbage"},
		"a .git to nowhere":  {".git": "gitdir: nowhere"},
		"a .git to itself":   {".git": "gitdir: .git"},
	} {
		dir := t.TempDir()
		for path, text := range files {
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755))
			write(t, filepath.Join(dir, path), text)
		}
		if got := CommitAt(t.Context(), dir); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
