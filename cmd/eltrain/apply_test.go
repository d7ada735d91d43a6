package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/cmd/view"
)

func TestMaxDestroyTakesANumberOfSlotsAndGoesWithFilesOnly(t *testing.T) {
	s := &session{streams: view.Standard()}
	for _, c := range []struct {
		args []string
		told string
	}{
		{[]string{"-max-destroy=-1", "-auto-approve"}, "a number of slots from 0"},
		{[]string{"-max-destroy=all", "-auto-approve"}, "a number of slots from 0"},
		{[]string{"-max-destroy=3", "-destroy", "-auto-approve"}, "-max-destroy cannot be used with -destroy"},
		{[]string{"-max-destroy=3", "plan.bin"}, "-max-destroy cannot be used with a saved plan"},
	} {
		if _, err := parsed[applyArgs](s, 1, c.args); err == nil || !strings.Contains(err.Error(), c.told) {
			t.Errorf("apply %v: %v", c.args, err)
		}
	}
	a, err := parsed[applyArgs](s, 1, []string{"-max-destroy=0", "-auto-approve"})
	if err != nil || a.MaxDestroy == nil || *a.MaxDestroy != 0 {
		t.Errorf("-max-destroy=0: %+v, %v", a.MaxDestroy, err)
	}
}

// stamped matches a line that begins with the time.
var stamped = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`)

// Lines have the time if that is asked for, and by default those of a watch that are kept.
func TestTimestampsByDefault(t *testing.T) {
	for _, c := range []struct {
		args     string
		terminal bool
		want     bool
	}{
		{"-watch", false, true},
		{"-watch", true, false},
		{"-watch -timestamps", true, true},
		{"-watch -timestamps=false", false, false},
		{"-watch -json", false, false},
		{"", false, false},
		{"-timestamps", false, true},
	} {
		s := newScreenless("")
		s.streams.Out.Terminal = c.terminal
		var out, errs bytes.Buffer
		s.streams.Out.Writer, s.streams.Err.Writer = &out, &errs
		a, err := parsed[applyArgs](&s.session, 1, append([]string{"-auto-approve"}, strings.Fields(c.args)...))
		if err != nil {
			t.Fatalf("%s: %v", c.args, err)
		}
		s.stamp(&a)
		fmt.Fprintln(s.streams.Out, "a line")
		fmt.Fprintln(s.streams.Err, "a line")
		if stamped.MatchString(out.String()) != c.want || stamped.MatchString(errs.String()) != c.want {
			t.Errorf("apply %s, terminal %t, writes %q and %q", c.args, c.terminal, out.String(), errs.String())
		}
	}
	if _, err := parsed[applyArgs](&newScreenless("").session, 1, []string{"-auto-approve", "-json", "-timestamps"}); err == nil {
		t.Error("-json has timestamps twice")
	}
}

// A watch until all is done heals on the way, and ends with the jobs.
func TestWatchUntilDone(t *testing.T) {
	t.Parallel()
	job := func(name, script string) string {
		return "job \"" + name + "\" {\n  role \"worker\" {\n    command = [\"sh\", \"-c\", \"" + script + "\"]\n    resources {\n      cpu = 0.1\n    }\n  }\n}\n"
	}
	dir := directoryWith(t, map[string]string{"main.hcl": job("quick", "exit 0"), "healed.hcl": job("healed", "test -e tried && exit 0; touch tried; exit 7")})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-until=done").check(t, exitError, "-until=done needs -watch")
	eltrain(t, dir, "apply", "-watch", "-until=end").check(t, exitError, "write -until=done")
	eltrain(t, dir, "apply", "-watch", "-until=done", "-auto-approve").check(t, exitDone, "process failed in worker[0]", "job.healed: Succeeded", "job.quick: Succeeded", "Watch ended.")
	const again = "To run it again: eltrain restart job.quick"
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "No changes.", "job.quick has succeeded, at ", again)
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, again)
	eltrain(t, dir, "restart", "job.quick").check(t, exitDone, "restart job.quick: done")

	rewrite(t, dir, strings.Replace(job("broken", ""), `"sh", "-c", ""`, `"./none"`, 1))
	eltrain(t, dir, "apply", "-watch", "-until=done", "-auto-approve").check(t, exitError, "job.broken has not succeeded", "It is Failed. eltrain status job.broken shows why.")
}
