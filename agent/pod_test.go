package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
)

// In a pod an agent's configuration differs from that of a local one: no directory, output on stdout, and a file for its last
// word.

// inPod configures the bench's agent as in a pod.
func (b *bench) inPod(t *testing.T) {
	t.Helper()
	b.config.Dir, b.config.Log = "", ""
	b.config.LastWordFile = filepath.Join(b.dir, "termination-log")
	b.write(t, "termination-log", "what an earlier container said, which is longer than what this one says")
}

func (b *bench) lastWord(t *testing.T) job.LastWord {
	t.Helper()
	text := b.read("termination-log")
	if len(text) > job.LastWordSize {
		t.Errorf("the last word has %d bytes", len(text))
	}
	var w job.LastWord
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		t.Fatalf("the last word is %q: %v", text, err)
	}
	return w
}

func TestLastWordFitsItsMountedFile(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sh", "-c", `
		head -c 30000 /dev/zero | tr '\0' '<' | sed 's/^/boom /' >"$TORCHELASTIC_ERROR_FILE"
		seq 100 199; exit 3`)
	b.inPod(t)
	mounted, err := os.Stat(b.config.LastWordFile)
	if err != nil {
		t.Fatal(err)
	}
	a := b.launch(t)
	b.service.run(1, 1)
	b.service.await(t, "the failure", func(r elastic.Report) bool { return r.State == job.MemberFailed && len(r.PIDs) == 0 })
	b.service.give(elastic.Order{Do: elastic.Leave})
	if code := a.code(t); code != 3 {
		t.Errorf("exit code %d", code)
	}
	w := b.lastWord(t)
	if w.Reason != job.EndFailed || w.State != job.MemberFailed || w.Exit == nil || w.Exit.Code != 3 || !strings.HasPrefix(w.Exit.Message, "boom <<<") {
		t.Errorf("the last word is %+v", w)
	}
	if now, err := os.Stat(b.config.LastWordFile); err != nil || !os.SameFile(mounted, now) {
		t.Error("the file was replaced: a mount would not show it")
	}
}

func TestShortLastWordHasTheTail(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sh", "-c", "echo one; echo two; exit 3")
	b.inPod(t)
	a := b.launch(t)
	b.service.run(1, 1)
	b.service.await(t, "the failure", func(r elastic.Report) bool { return r.State == job.MemberFailed && len(r.PIDs) == 0 })
	a.signal(t, unix.SIGTERM)
	a.code(t)
	if w := b.lastWord(t); w.Reason != job.EndFailed || strings.Join(w.Exit.Tail, "|") != "one|two" {
		t.Errorf("the last word is %+v", w)
	}
}

func TestLastWordOfAnAgentThatCouldNotStart(t *testing.T) {
	t.Parallel()
	b := newBench(t, time.Second, "true")
	b.inPod(t)
	b.config.CheckpointPattern = "(" // an invalid regular expression
	if code := b.launch(t).code(t); code != ExitConfig {
		t.Errorf("exit code %d", code)
	}
	if w := b.lastWord(t); w.Reason != job.EndFailed || w.Exit == nil || w.Exit.NotStarted == "" {
		t.Errorf("the last word is %+v", w)
	}
}

func TestLastWordThatNobodyTakesChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, time.Second, "true")
	b.inPod(t)
	b.config.LastWordFile = filepath.Join(b.dir, "no-such-file")
	a := b.launch(t)
	b.service.run(1, 1)
	if code := a.code(t); code != ExitDone {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(a.stderr.String(), "no-such-file") {
		t.Error("it is not logged")
	}
}

// A container's output is its pod's log: whole lines of the processes on stdout, the agent's own on stderr.
func TestOutputOfAPodIsItsProcesses(t *testing.T) {
	t.Parallel()
	const lines = 2000
	b := newBench(t, time.Second, "sh", "-c", fmt.Sprintf(`i=0; while [ $i -lt %d ]; do echo "line $i of a length that is not always the same $i"; i=$((i+1)); done`, lines))
	b.inPod(t)
	b.config.Processes = 2
	a := b.launch(t)
	b.service.run(1, 1)
	if code := a.code(t); code != ExitDone {
		t.Errorf("exit code %d", code)
	}
	whole := regexp.MustCompile(`^\[rank (\d)\] line (\d+) of a length that is not always the same (\d+)\n$`)
	next := map[string]int{"0": 0, "1": 0}
	for line := range strings.Lines(a.stdout.String()) {
		if strings.HasPrefix(line, "[eltrain] ") {
			continue
		}
		m := whole.FindStringSubmatch(line)
		if m == nil || m[2] != fmt.Sprint(next[m[1]]) || m[3] != m[2] {
			t.Fatalf("%q on stdout, where line %d was due", line, next["0"])
		}
		next[m[1]]++
	}
	if next["0"] != lines || next["1"] != lines {
		t.Errorf("lines of the ranks on stdout: %v", next)
	}
	if s := a.stderr.String(); strings.Contains(s, "[rank ") || !strings.Contains(s, "the agent exits") {
		t.Errorf("stderr has\n%s", s)
	}
}

func TestProcessesRunInTheWorkingDirectory(t *testing.T) {
	t.Parallel()
	b := newBench(t, time.Second, "sh", "-c", `echo "$(/bin/pwd) $PWD"`)
	dir, err := filepath.EvalSymlinks(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "work", "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.inPod(t)
	b.under = []string{"env", "-C", filepath.Join(dir, "work")}
	b.config.WorkingDir = "sub" // relative to where the agent was started
	a := b.launch(t)
	b.service.run(1, 1)
	a.code(t)
	if want := filepath.Join(dir, "work", "sub"); !strings.Contains(a.stdout.String(), "[rank 0] "+want+" "+want+"\n") {
		t.Errorf("it did not run in %s:\n%s", want, &a.stdout)
	}
}

func TestWorkingDirectoryThatIsNone(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]string{
		"gone": "working directory %s does not exist",
		"file": "working directory %s is not a directory",
	} {
		b := newBench(t, 10*time.Minute, "true")
		b.write(t, "file", "")
		b.inPod(t)
		b.config.WorkingDir = filepath.Join(b.dir, dir)
		b.launch(t)
		b.service.run(1, 1)
		r := b.service.awaitState(t, job.MemberFailed, 1)
		if want := fmt.Sprintf(want, b.config.WorkingDir); r.Exit.NotStarted != want || r.Exit.Code != codeNotFound {
			t.Errorf("exit is %+v, want %q", r.Exit, want)
		}
	}
}

func TestServiceWithAPrivateCA(t *testing.T) {
	t.Parallel()
	b := newBench(t, time.Second, "sh", "-c", `test "$ELTRAIN_CA_FILE" && cat "$ELTRAIN_CA_FILE"`)
	b.inPod(t)
	b.write(t, "ca.pem", "not a certificate")
	a := b.launch(t)
	b.service.run(1, 1)
	// The right one comes later, like a mounted Secret that is renewed.
	b.write(t, "ca.pem", string(certificateOf(b.service.server)))
	if code := a.code(t); code != ExitDone {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(a.stdout.String(), "[rank 0] -----BEGIN CERTIFICATE-----") {
		t.Errorf("the processes do not know the certificates:\n%s", &a.stdout)
	}
}

func TestServiceThatNobodyVouchesFor(t *testing.T) {
	t.Parallel()
	b := newBench(t, time.Second, "true")
	b.inPod(t)
	b.write(t, "ca.pem", "")
	session := newSession(&b.config, func() outgoing { return outgoing{} }, nil, nil, quiet)
	defer session.disconnect()
	if err := session.register(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("registered, or %v", err)
	}
	b.config.CAFile = filepath.Join(b.dir, "token")
	session.disconnect()
	if err := session.register(t.Context()); err == nil || !strings.Contains(err.Error(), b.config.CAFile+" has none in PEM") {
		t.Errorf("registered, or %v", err)
	}
	if n := b.service.registrations(); n != 0 {
		t.Errorf("%d registrations", n)
	}
}
