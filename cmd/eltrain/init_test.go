package main

import (
	"os"
	"strings"
	"testing"
)

func TestTheSampleValidatesAndPlans(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"init"}, "job.hcl written"},
		{[]string{"validate"}, "The configuration is valid."},
		{[]string{"fmt", "-check"}, ""},
		{[]string{"plan"}, "Plan: 2 to add, 0 to change, 0 to destroy."},
	} {
		s := newScreenless("")
		if code := s.run(c.args); code != exitDone || !strings.Contains(s.out.String(), c.says) {
			t.Errorf("%v ends with %d, without %q:\n%s%s", c.args, code, c.says, s.out.String(), s.err.String())
		}
	}
}

func TestInitOverwritesNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("mine.hcl", []byte("locals {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newScreenless("")
	if code := s.run([]string{"init"}); code != exitDone || !strings.Contains(s.out.String(), "mine.hcl already exists") {
		t.Errorf("init ends with %d: %s%s", code, s.out.String(), s.err.String())
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) != 1 {
		t.Errorf("there are %v: %v", entries, err)
	}
	if err := writeNew("mine.hcl", sample); err == nil {
		t.Error("a file that is there is overwritten")
	}
	s = newScreenless("")
	if code := s.run([]string{"init", "extra"}); code != exitError {
		t.Errorf("init with an argument ends with %d", code)
	}
}
