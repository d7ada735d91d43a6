package view

import (
	"strings"
	"testing"

	"github.com/eltrain/eltrain/job"
)

func TestDidYouMean(t *testing.T) {
	names := []string{"plan", "apply", "validate", "fmt"}
	for typed, want := range map[string]string{
		"plna": ` Did you mean "plan"?`, "aply": ` Did you mean "apply"?`, "validat": ` Did you mean "validate"?`,
		"frobnicate": "", "x": "", "ls": "",
	} {
		if got := strings.TrimPrefix(DidYouMean(typed, names), "."); got != want {
			t.Errorf("for %q: %q, want %q", typed, got, want)
		}
	}
}

// Of many existing names only some are listed, after the likely one.
func TestWhatThereIs(t *testing.T) {
	var names []string
	for i := range maxNamed + 3 {
		names = append(names, string(rune('a'+i)))
	}
	for _, c := range []struct {
		names []string
		want  string
	}{
		{nil, ". Hint?"},
		{names[:maxNamed], ". Hint? There are: a, b, c, d, e, f, g, h, i, j."},
		{names, ". Hint? There are: a, b, c, d, e, f, g, h, i, j and 3 more."},
	} {
		if got := WhatThereIs(". Hint?", "There are", c.names); got != c.want {
			t.Errorf("of %d: %q", len(c.names), got)
		}
	}
}

func TestCheckSlots(t *testing.T) {
	at := func(role string, i int) job.Slot {
		return job.Slot{Address: job.Address{Job: "a", Role: role, Index: i}}
	}
	record := &job.Record{Slots: []job.Slot{at("ps", 0), at("w", 0), at("w", 1), at("w", 2)}}
	record.Spec = job.Job{Name: "a", Roles: []job.Role{{Name: "ps"}, {Name: "w"}, {Name: "evaluator"}}}
	for address, want := range map[string]string{
		"job.a": "", "job.a.w": "", "job.a.w[2]": "", "job.a.evaluator": "", // the role has no slots yet
		"job.a.evaluater": "evaluator", "job.a.w[7]": "w[0-2]", "job.a.evaluator[0]": "ps[0], w[0-2]",
	} {
		sel, err := job.ParseSelector(address)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckSlots(sel, record); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", address, err)
		}
	}
}
