package literals

import (
	"regexp/syntax"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Every match of an expression contains its required text.
func TestRequired(t *testing.T) {
	for text, want := range map[string]string{
		`step (\d+)`:           "step ",
		`(?:loss|x) is \d`:     " is ",
		`(ab+cd)e`:             "cd",
		`(?:abc){2,3}`:         "abc",
		`(?:abc){0,3}x`:        "x",
		`(?i)abc`:              "",
		`abc|abd`:              "ab",
		`\d+`:                  "",
		`^Traceback \(most re`: "Traceback (most re",
	} {
		tree, err := syntax.Parse(text, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		if got := Required(tree); got != want {
			t.Errorf("%s requires %q, not %q", text, got, want)
		}
	}
}

// A set finds the texts that a line contains, and no others.
func TestIn(t *testing.T) {
	word := rapid.StringOfN(rapid.SampledFrom([]rune("abAB é")), 0, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		var s Set
		ids := map[string]int{}
		for _, text := range rapid.SliceOfN(word, 0, 20).Draw(t, "texts") {
			if id := s.Add(text); id != None {
				ids[text] = id
			} else if len(text) >= 2 {
				t.Fatalf("%q was not added", text)
			}
		}
		line := strings.Join(rapid.SliceOf(word).Draw(t, "line"), "")
		found := make([]bool, s.Len())
		some := s.In([]byte(line), found)
		for text, id := range ids {
			if found[id] != strings.Contains(line, text) {
				t.Fatalf("%q in %q: %v", text, line, found[id])
			}
		}
		if some != slices.Contains(found, true) {
			t.Fatalf("some is %v of %v", some, found)
		}
	})
}

// A set that has no room for a text says so, and finds the others.
func TestTooMany(t *testing.T) {
	var s Set
	full := false
	for i := range 300 {
		text := string([]byte{'A' + byte(i/26), 'A' + byte(i%26)})
		full = full || s.Add(text) == None
	}
	if !full {
		t.Error("300 texts with pairs of their own were added")
	}
	found := make([]bool, s.Len())
	if !s.In([]byte("xABx"), found) || !found[s.Add("AB")] {
		t.Error("AB was not found")
	}
}
