package job

import (
	"encoding/json"
	"testing"
)

// A training that diverged must not look like one whose loss is unknown.
func TestALossThatIsNotFiniteSurvivesJSON(t *testing.T) {
	for _, text := range []string{`{"state":"running","loss":0}`, `{"state":"running","loss":0.5}`, `{"state":"running","loss":"NaN"}`,
		`{"state":"running","loss":"Infinity"}`, `{"state":"running","loss":"-Infinity"}`, `{"state":"running"}`} {
		var m Member
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		if again, err := json.Marshal(m); err != nil || string(again) != text {
			t.Errorf("%s becomes %s, %v", text, again, err)
		}
	}
	for _, text := range []string{`"nan"`, `"1"`, `true`, `1e999`, `[]`} {
		var l Loss
		if err := json.Unmarshal([]byte(text), &l); err == nil {
			t.Errorf("%s is read as %v", text, l)
		}
	}
}
