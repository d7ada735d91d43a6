package view

import (
	"strings"
	"testing"
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
