package e2e

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/loopback"
)

// What docs/gitops.md promises: its commands are run as written, in order, by one shell.

const gitopsPage = "../docs/gitops.md"

// step matches a block of commands to run, which <!-- run: NAME --> precedes.
var step = regexp.MustCompile("(?s)<!-- run: (\\S+) -->\n```sh\n(.*?)```")

// reader follows the page in one shell.
type reader struct {
	t     *testing.T
	root  string
	steps map[string]string
	shell *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Scanner
	ended chan struct{}
}

func newReader(t *testing.T) *reader {
	t.Helper()
	site.NotShort(t)
	page, err := os.ReadFile(gitopsPage)
	if err != nil {
		t.Fatal(err)
	}
	examples, err := filepath.Abs("../examples")
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, root: t.TempDir(), steps: map[string]string{}, ended: make(chan struct{})}
	for _, m := range step.FindAllStringSubmatch(string(page), -1) {
		r.steps[m[1]] = m[2]
	}
	for name, value := range map[string]string{
		"PATH": filepath.Dir(programs.Eltrain) + ":" + os.Getenv("PATH"), "examples": examples, "NO_COLOR": "1", "CI": "", "ELTRAIN_VAR_listen": loopback.Free(t),
		"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.com",
		"GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.com",
		// The page exports these itself; here they are for the test's own commands.
		"ELTRAIN_VAR_home": filepath.Join(r.root, "home"), "ELTRAIN_DATA_DIR": filepath.Join(r.root, "home", "run"),
	} {
		t.Setenv(name, value)
	}
	r.shell = exec.Command("bash", "-euo", "pipefail")
	r.shell.Dir = r.root
	// The page's shell starts without what the page sets.
	r.shell.Env = slices.DeleteFunc(os.Environ(), func(pair string) bool {
		return strings.HasPrefix(pair, "ELTRAIN_VAR_home=") || strings.HasPrefix(pair, "ELTRAIN_DATA_DIR=")
	})
	if r.in, err = r.shell.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := r.shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.shell.Stderr = r.shell.Stdout
	r.out = bufio.NewScanner(out)
	r.out.Buffer(nil, 1<<20)
	if err := r.shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	return r
}

// follow runs a step of the page, which must succeed, and returns its output.
func (r *reader) follow(name string) string {
	r.t.Helper()
	commands, there := r.steps[name]
	if !there {
		r.t.Fatalf("%s has no step %q", gitopsPage, name)
	}
	delete(r.steps, name)
	return r.enter(name, commands)
}

// enter runs commands in the page's shell, which must succeed, and returns their output.
func (r *reader) enter(name, commands string) string {
	r.t.Helper()
	const done = "::done::"
	if _, err := io.WriteString(r.in, commands+"\necho "+done+"\n"); err != nil {
		r.t.Fatalf("the shell does not respond: %v", err)
	}
	watchdog := time.AfterFunc(site.Bound, func() { r.shell.Process.Kill() })
	defer watchdog.Stop()
	var text strings.Builder
	for r.out.Scan() {
		if r.out.Text() == done {
			return text.String()
		}
		text.WriteString(r.out.Text() + "\n")
	}
	r.t.Fatalf("step %q of %s fails:\n%s", name, gitopsPage, text.String())
	return ""
}

// close ends the shell and what it started, and checks that nothing is left.
func (r *reader) close() {
	r.in.Close()
	r.shell.Process.Signal(syscall.SIGKILL)
	r.shell.Wait()
	if r.t.Failed() {
		log, _ := os.ReadFile(filepath.Join(r.root, "master.log"))
		r.t.Logf("the master said:\n%s", log)
	}
	all := r.site("")
	for pid, args := range all.Processes() {
		if strings.Contains(args, "apply -watch") {
			syscall.Kill(pid, syscall.SIGTERM)
		}
	}
	jobs := r.site("work/jobs")
	if out, code := jobs.Run("destroy", "-auto-approve", "-lock-timeout=30s"); code != 0 {
		r.t.Errorf("destroy: exit code %d\n%s", code, out)
	}
	for deadline := time.Now().Add(site.Bound); len(all.Processes()) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Errorf("left: %v", all.Processes())
			for pid := range all.Processes() {
				syscall.Kill(pid, syscall.SIGKILL)
			}
			return
		}
	}
}

// overtakenInAModule is the page's step "overtaken" with all edits in a module outside the job directory.
const overtakenInAModule = `
git checkout -q -b modular main
mkdir base
printf 'output "grace" {\n  value = "4s"\n}\n' > base/grace.hcl
printf 'output "priority" {\n  value = 0\n}\n' > base/priority.hcl
sed -i -e 's/"4s"/module.base.grace/' -e 's/  role "worker" {/  priority = module.base.priority\n\n  role "worker" {/' jobs/digits.hcl
printf '\nmodule "base" {\n  source = "../base"\n}\n' >> jobs/digits.hcl
git add base jobs
git commit -q -m "A base for all"

git checkout -q -b longer-base
sed -i 's/"4s"/"6s"/' base/grace.hcl
git commit -q -a -m "All stop in six seconds"
head=$(git rev-parse HEAD)
CI=true "$examples/gitops/pull-request.sh" jobs ../plans
eltrain show ../plans/plan.bin

git checkout -q -b merged-base modular
sed -i 's/0/7/' base/priority.hcl
git commit -q -a -m "All go first"
git merge -q --no-ff -m "Merge: all stop in six seconds" longer-base
if CI=true "$examples/gitops/merge.sh" jobs ../plans/plan.bin "$head"; then
	exit 1
fi
git checkout -q main
`

// site returns a site for a job directory of the page.
func (r *reader) site(dir string) *site.Site {
	s := site.NewLocalIn(r.t, programs, filepath.Join(r.root, dir))
	s.Job = "digits"
	return s
}

func TestANewcomerGetsFromAnEmptyRepositoryToAHealedJob(t *testing.T) {
	r := newReader(t)
	r.follow("begin")
	site.Has(t, r.follow("first"), "Plan: 2 to add, 0 to change, 0 to destroy.", "Apply complete! Resources: 2 added, 0 changed, 0 destroyed.")
	work := r.site("work/jobs")
	first := work.Status()
	if first.Phase != "Running" {
		t.Fatalf("the job is %s", first.Phase)
	}

	// The pull request's plan shows its cost, and changes nothing.
	site.Has(t, r.follow("pull-request"), "**eltrain plan:** 2 to add, 0 to change, 2 to destroy.", "its world of 2 slots (generation 1) restarts",
		"resumes from the checkpoint", "stop_grace = \"5s\" -> \"4s\" # forces replacement")
	work.Undisturbed(first, work.Status())

	// The approved plan is carried out, once.
	site.Has(t, r.follow("merge"), "Apply complete! Resources: 2 added, 0 changed, 2 destroyed.")
	merged := work.Status()
	for _, s := range merged.Slots {
		if s.Incarnation != 2 {
			t.Errorf("%s is incarnation %d after the merge", s.Address, s.Incarnation)
		}
	}
	site.Has(t, r.follow("stale"), "Saved plan is stale", "the state was changed by another operation", "Plan again")
	work.Undisturbed(merged, work.Status())

	// The plan of an overtaken branch is not carried out, although the state has not changed since.
	const overtaken = "The job files are not those that the plan was made of: plan again."
	site.Has(t, r.follow("overtaken"), overtaken)
	site.Has(t, r.enter("overtaken in a module", overtakenInAModule), "Plan: 2 to add", overtaken)
	work.Undisturbed(merged, work.Status())

	// A master follows the checkout, which each commit replaces.
	r.follow("follow")
	s := r.site("sync/current/jobs")
	before := s.AwaitWorld(2, merged.Generation)
	if before.UID != first.UID {
		t.Errorf("it is another job: %s, was %s", before.UID, first.UID)
	}
	r.follow("break")
	healed := s.AwaitWorld(2, before.Generation+1)
	if len(healed.Incidents) != 1 || healed.Incidents[0].Cause != "process_killed" {
		t.Errorf("incidents %+v", healed.Incidents)
	}
	r.follow("commit")
	site.Until(s.T, "the commit", func() bool { return strings.Contains(s.Must("events"), `"Digits go first" is in effect`) })
	site.Until(s.T, "the edit", func() bool { return strings.Contains(s.Must("plan"), "No changes.") })
	s.Undisturbed(healed, s.Status())

	r.follow("mistake")
	broken := s.Await("the mistake, and of which commit", func(j site.Job) bool {
		told := strings.Join(j.Reasons, " ") // git may return a commit's subject late
		return j.Phase == "Degraded" && strings.Contains(told, `"Two of them"`) && strings.Contains(told, `"Digits go first"`)
	})
	site.Has(t, strings.Join(broken.Reasons, " "), "The configuration has errors (commit ", `"Two of them"); the last valid one stays in effect (commit `,
		`"Digits go first")`, "on digits.hcl line 7", "a number is required")
	s.Undisturbed(healed, broken)
	if _, code := work.Run("validate"); code != 1 {
		t.Errorf("validate of the mistake exits with %d", code)
	}

	// It continues to heal with a configuration that no checkout has any more.
	site.Kill(t, syscall.SIGKILL, broken.Slot("worker[1]").PID)
	again := s.Await("healing", func(j site.Job) bool {
		return j.Generation > healed.Generation && len(j.Running()) == 2 && j.WorldSize == 2
	})

	r.follow("removal")
	held := s.Await("the removal that is held back", func(j site.Job) bool {
		return strings.Contains(strings.Join(j.Reasons, " "), "-max-destroy=1")
	})
	site.Has(t, strings.Join(held.Reasons, " "), `"No digits any more") would remove or replace 2 slots of it`)
	if held.Phase != "Degraded" || held.Healthy {
		t.Errorf("it is %s", held.Phase)
	}
	s.Undisturbed(again, held)
	site.Has(t, s.Must("events"), "withheld job.digits: The files (commit ", "withheld job.digits: The configuration has errors (commit ")

	site.Has(t, r.follow("confirm"), `"status":"planned"`, `"changes":{"add":0,"change":0,"remove":2}`)
	s.Await("the end", func(j site.Job) bool { return j.Address == "" })
	r.follow("end")
	if len(r.steps) > 0 {
		t.Errorf("not run: %v", r.steps)
	}
	// Old revisions do not pile up.
	if trees, _ := os.ReadDir(filepath.Join(r.root, "sync/trees")); len(trees) != 1 {
		t.Errorf("%d checkouts are left", len(trees))
	}
}

// A checkout in place removes files for a moment, and so does a person who restores one: no job is destroyed.
func TestACheckoutInPlaceEndsNoJob(t *testing.T) {
	s := newSite(t, nil)
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=A", "-c", "user.email=a@example.com"}, args...)...)
		cmd.Dir = s.Dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	sleeping := func(name string) string {
		return "job \"" + name + "\" {\n  role \"worker\" {\n    replicas   = 1\n    command    = [\"sh\", \"-c\", \"echo step 1; exec sleep 600\"]\n    stop_grace = \"1s\"\n    resources { cpu = 0.1 }\n  }\n}\n"
	}
	// These files are written between the removal of b.hcl and the write of z.hcl, and take git a while.
	data := func(text string) {
		if err := os.MkdirAll(filepath.Join(s.Dir, "data"), 0o755); err != nil {
			t.Fatal(err)
		}
		for i := range 2000 {
			if err := os.WriteFile(filepath.Join(s.Dir, "data", strconv.Itoa(i)), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	git("init", "-q", "-b", "main")
	s.Write("a.hcl", sleeping("a"))
	s.Write("b.hcl", sleeping("b"))
	data("one")
	git("add", "a.hcl", "b.hcl", "data")
	git("commit", "-q", "-m", "One")
	git("checkout", "-q", "-b", "other")
	git("mv", "b.hcl", "z.hcl")
	data("two")
	git("commit", "-q", "-a", "-m", "Two")
	git("checkout", "-q", "main")

	s.Watch()
	formed := func(j site.Job) bool { return j.Phase == "Running" && j.WorldSize == 1 }
	before := s.Of("b").Await("its world", formed)
	s.Of("a").Await("its world", formed)
	unhurt := func(what string) {
		t.Helper()
		if out := s.Must("events"); strings.Contains(out, "Canceling") {
			t.Errorf("%s: something is stopped:\n%s", what, out)
		}
		if now := s.Of("b").Status(); now.UID != before.UID || now.Generation != before.Generation {
			t.Fatalf("%s: b is %s of generation %d, was %s of %d", what, now.UID, now.Generation, before.UID, before.Generation)
		}
	}
	taken := func(subject string, times int) {
		t.Helper()
		site.Until(s.T, "taking "+subject+" up", func() bool { return strings.Count(s.Must("events"), `"`+subject+`" is in effect`) == times })
		unhurt(subject)
	}
	for i := range 3 {
		git("checkout", "-q", "other")
		taken("Two", i+1)
		git("checkout", "-q", "main")
		taken("One", i+2)
	}
	// Longer than until files are read, shorter than they must be unchanged to be believed: see docs/gitops.md.
	const restored = time.Second
	for _, gone := range []func() error{
		func() error { return os.Remove(filepath.Join(s.Dir, "b.hcl")) },
		func() error { return os.Truncate(filepath.Join(s.Dir, "b.hcl"), 0) },
	} {
		if err := gone(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(restored)
		git("checkout", "-q", "b.hcl")
		unhurt("b.hcl was away")
		time.Sleep(restored)
		unhurt("b.hcl is back")
	}
	// A committed removal is carried out.
	git("rm", "-q", "b.hcl")
	git("commit", "-q", "-m", "Without b")
	s.Of("b").Await("its end", func(j site.Job) bool { return j.Address == "" })
}

// used matches an eltrain command in a script: at the beginning of a line, or after a separator.
var used = regexp.MustCompile(`(?m)(?:^\s*(?:run: |if )?|[;&|(] *)eltrain ((?:-[a-z]+(?:=\S+)? )*)([a-z]+)\b([^\n;&|>]*)`)

func TestCommandsInTheExamplesExistWithTheirFlags(t *testing.T) {
	files := []string{gitopsPage}
	err := filepath.WalkDir("../examples/gitops", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found, parsed := 0, 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		commands := string(text)
		switch filepath.Ext(path) {
		case ".yaml":
			parsed++
			var doc any
			d := yaml.NewDecoder(bytes.NewReader(text))
			if err := d.Decode(&doc); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			commands = strings.Join(scripts(doc), "\n")
			if err := d.Decode(new(any)); err != io.EOF {
				t.Errorf("%s is not one document", path)
			}
		case ".sh":
			if out, err := exec.Command("sh", "-n", path).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", path, err, out)
			}
		case ".hcl":
			continue
		}
		for _, m := range used.FindAllStringSubmatch(commands, -1) {
			found++
			help := helpOf(t, m[2])
			for _, flag := range regexp.MustCompile(`(?:^| )-([a-z][a-z-]*)`).FindAllStringSubmatch(m[3], -1) {
				if !regexp.MustCompile(`(?m)^  -` + regexp.QuoteMeta(flag[1]) + `\b`).MatchString(help) {
					t.Errorf("%s: eltrain %s has no option -%s", path, m[2], flag[1])
				}
			}
			for _, flag := range strings.Fields(m[1]) {
				if name, _, _ := strings.Cut(flag, "="); name != "-chdir" {
					t.Errorf("%s: eltrain has no global option %s", path, name)
				}
			}
		}
	}
	if found < 20 || parsed != 5 {
		t.Errorf("%d commands were found, and %d YAML files", found, parsed)
	}
}

// scripts returns the strings in a YAML document.
func scripts(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var all []string
		for _, x := range v {
			all = append(all, scripts(x)...)
		}
		return all
	case map[string]any:
		var all []string
		for _, x := range v {
			all = append(all, scripts(x)...)
		}
		return all
	}
	return nil
}

func helpOf(t *testing.T, command string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), site.Bound)
	defer cancel()
	out, err := exec.CommandContext(ctx, programs.Eltrain, command, "-help").Output()
	if err != nil {
		t.Fatalf("eltrain %s -help: %v", command, err)
	}
	return string(out)
}

// The job files of the example are valid, and in canonical format.
func TestTheExampleRepositoryIsValid(t *testing.T) {
	for _, args := range [][]string{{"validate"}, {"fmt", "-check", "-diff"}} {
		cmd := exec.Command(programs.Eltrain, args...)
		cmd.Dir = "../examples/gitops/jobs"
		cmd.Env = append(os.Environ(), "ELTRAIN_VAR_home="+t.TempDir(), "CI=") // its files are ours
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("eltrain %v: %v\n%s", args, err, out)
		}
	}
}
