package jsonlist

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	type item struct {
		Name     string   `json:"name"`
		Patterns []string `json:"patterns"`
	}
	const most = 100
	for text, want := range map[string]string{
		"":                                   "",
		"[]":                                 "",
		`[{"name": "a", "patterns": ["x"]}]`: "",
		"[\n{]":                              "in line 2",
		"[\n\n":                              "in line 3",
		"[] []":                              "after the list",
		"[\n{\"pattern\": \"x\"}]":           "unknown field \"pattern\" in line 2",
		`{"name": "a"}`:                      "cannot unmarshal",
		strings.Repeat(" ", most+1):          "at most",
	} {
		list, err := Parse[item](text, most)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, not %q", text, err, want)
		}
		if len(text) > 10 && err == nil && len(list) != 1 {
			t.Errorf("%.40q: %+v", text, list)
		}
	}
}
