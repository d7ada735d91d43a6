package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/job"
)

func TestLogsSendATerminalNoCommands(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": `job "tiny" {
  role "worker" {
    command    = ["sh", "-c", "printf '\\033]52;c;eA==\\007\\033[31mred\\n'; exec sleep 300"]
    stop_grace = "1s"
    resources {
      cpu = 0.1
    }
  }
}
`})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	eventually(t, "it writes", func() bool {
		return eltrain(t, dir, "logs", "-tail=1", "job.tiny").out == "[rank 0] \x1b]52;c;eA==\a\x1b[31mred\n"
	})
	if o := onTerminal(t, commandIn(dir, "logs", "-tail=1", "job.tiny"), ""); o.out != `[rank 0] \x1b]52;c;eA==\ared`+"\n" {
		t.Errorf("a terminal gets %q", o.out)
	}
}

func TestAnOmittedAddressIsTheOnlyJob(t *testing.T) {
	a, b := job.Job{Name: "a"}, job.Job{Name: "b"}
	for _, c := range []struct {
		records  job.Records
		declared []job.Job
		want     string
		err      string
	}{
		{job.Records{"a": {}}, nil, "a", ""},
		{nil, []job.Job{a}, "a", ""},
		{job.Records{"a": {}}, []job.Job{a}, "a", ""},
		{job.Records{"a": {}}, []job.Job{b}, "", "There are: a, b."},
		{nil, nil, "", "an address is missing"},
	} {
		got, err := onlyJob(c.records, c.declared)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%v and %v: %q, %v", c.records, c.declared, got, err)
		}
	}
}

// -f goes on with the next incarnation and ends with the job, -previous has the one before, and logs outlive their job.
func TestLogsOfAJobThatEnds(t *testing.T) {
	t.Parallel()
	files := func(script string) map[string]string {
		return map[string]string{"main.hcl": `job "tiny" {
  role "worker" {
    command    = ["sh", "-c", "` + script + `"]
    stop_grace = "1s"
    resources {
      cpu = 0.1
    }
  }
}
`}
	}
	dir := directoryWith(t, files("echo one; exec sleep 300"))
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	eventually(t, "it writes", func() bool { return strings.Contains(eltrain(t, dir, "logs").out, "[rank 0] one\n") })
	eltrain(t, dir, "logs", "-previous").check(t, exitError, "No earlier output", "no output of an earlier incarnation is left")

	followed := make(chan outcome)
	go func() { followed <- eltrain(t, dir, "logs", "-f") }()
	writeFile(t, filepath.Join(dir, "main.hcl"), files("echo two; sleep 2; echo three")["main.hcl"])
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	const all = "[rank 0] one\n[rank 0] two\n[rank 0] three\n"
	if o := <-followed; o.code != exitDone || processLines(o.out) != all {
		t.Errorf("followed %q, exit code %d\n%s", o.out, o.code, o.err)
	}
	for _, c := range []struct{ option, want string }{{"-since=1h", all}, {"-previous", "[rank 0] one\n"}, {"-f", all}} {
		if o := eltrain(t, dir, "logs", c.option, "job.tiny"); o.code != exitDone || processLines(o.out) != c.want {
			t.Errorf("%s: %q, exit code %d\n%s", c.option, o.out, o.code, o.err)
		}
	}
	eltrain(t, dir, "logs", "-f", "-previous").check(t, exitError, "-previous cannot be used with -f")

	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone)
	for _, c := range []struct{ option, want string }{{"-tail=99", all}, {"-f", all}, {"-previous", "[rank 0] one\n"}} {
		o := eltrain(t, dir, "logs", c.option, "job.tiny")
		if o.code != exitDone || processLines(o.out) != c.want || !strings.HasPrefix(o.err, "job.tiny is gone: ") || strings.Count(o.err, "\n") != 1 {
			t.Errorf("gone, %s: %q, exit code %d\n%s", c.option, o.out, o.code, o.err)
		}
	}
	eltrain(t, dir, "logs", "-rank=0", "job.tiny").check(t, exitError, "name a slot instead")
	eltrain(t, dir, "logs", "job.other").check(t, exitError, `There is no job "other"`)
}

// processLines leaves out the agent's own lines.
func processLines(out string) (text string) {
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "[eltrain] ") {
			text += line
		}
	}
	return text
}
