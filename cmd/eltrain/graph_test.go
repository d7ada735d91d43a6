package main

import (
	"strings"
	"testing"
)

func TestParseGraph(t *testing.T) {
	for args, want := range map[string]string{
		"":                      "",
		"-var n=3":              "",
		"-plan=p":               "",
		"-plan=p -var n=3":      "saved plan",
		"-plan=p something.hcl": "not expected",
	} {
		_, err := parsed[graphArgs](new(session), 0, strings.Fields(args))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("graph %s: %v, want %q", args, err, want)
		}
	}
}

// A command line for copying is on one line.
func TestGraphHelpHasItsCommandOnOneLine(t *testing.T) {
	if help := graphCommand().help(); !strings.Contains(help, "\n  eltrain graph | dot -Tsvg > graph.svg\n") {
		t.Errorf("the help is\n%s", help)
	}
}

func TestGraph(t *testing.T) {
	jobDir(t, consoleJobs)
	s := newScreenless("")
	if code := s.run([]string{"graph"}); code != exitDone {
		t.Fatalf("exit code %d\n%s", code, s.err.String())
	}
	for _, line := range []string{
		`  "job.gpt.worker" -> "job.gpt.ps" [class = "depends_on"];`,
		`  "job.gpt.ps" -> "job.gpt.worker" [class = "value", style = "dashed", constraint = "false", label = "replicas from replicas"];`,
	} {
		if !strings.Contains(s.out.String(), "\n"+line+"\n") {
			t.Errorf("no line %s in\n%s", line, s.out.String())
		}
	}
	if strings.Count(s.out.String(), "->") != 2 {
		t.Errorf("there are other edges:\n%s", s.out.String())
	}
}

func TestGraphOfASavedPlan(t *testing.T) {
	jobDir(t, consoleJobs)
	s := newScreenless("")
	if code := s.run([]string{"plan", "-out=p"}); code != exitDone {
		t.Fatalf("plan: exit code %d\n%s", code, s.err.String())
	}
	drawn := newScreenless("")
	if code := drawn.run([]string{"graph", "-plan=p"}); code != exitDone {
		t.Fatalf("exit code %d\n%s", code, drawn.err.String())
	}
	if text := drawn.out.String(); !strings.Contains(text, `[label = "worker\n4\n4 to create", fillcolor = "palegreen"]`) || strings.Contains(text, "hunter22") {
		t.Errorf("the graph is\n%s", text)
	}
	missing := newScreenless("")
	if code := missing.run([]string{"graph", "-plan=job.hcl"}); code != exitError || missing.out.Len() > 0 || missing.err.Len() == 0 {
		t.Errorf("a file that is not a plan: exit code %d, %s%s", code, missing.out.String(), missing.err.String())
	}
}
