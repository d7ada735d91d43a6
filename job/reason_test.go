package job

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestAReasonSurvivesJSON(t *testing.T) {
	for _, r := range []Reason{
		{},
		Because("superseded"),
		Because("no_room", "role", "worker").With(Because("node_free", "node", "n1", "free", "1 cpu"), Because("more_nodes", "nodes", "3")),
	} {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var got Reason
		if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, r) || !got.Equal(r) {
			t.Errorf("%s is read as %v, %v", text, got, err)
		}
	}
}

// States, journals and plans of older versions have sentences instead of reasons.
func TestASentenceIsReadAsAReason(t *testing.T) {
	var i Incident
	if err := json.Unmarshal([]byte(`{"evidence": ["worker[0]: exit code 1"]}`), &i); err != nil {
		t.Fatal(err)
	}
	if want := []Reason{Because(Verbatim, "message", "worker[0]: exit code 1")}; !reflect.DeepEqual(i.Evidence, want) {
		t.Errorf("read as %v", i.Evidence)
	}
	var s Slot
	if err := json.Unmarshal([]byte(`{"why": "its declaration changed"}`), &s); err != nil || s.Why == nil || s.Why.Args["message"] != "its declaration changed" {
		t.Errorf("read as %v, %v", s.Why, err)
	}
}

func TestReasonsThatSayTheSameAreEqual(t *testing.T) {
	a := Because("shrunk", "from", "4", "to", "2").With(Because("job_limits"))
	for _, b := range []Reason{
		Because("grown", "from", "4", "to", "2").With(Because("job_limits")),
		Because("shrunk", "from", "4", "to", "3").With(Because("job_limits")),
		Because("shrunk", "from", "4", "to", "2"),
		{},
	} {
		if a.Equal(b) || b.Equal(a) {
			t.Errorf("%v equals %v", a, b)
		}
	}
	if !a.Equal(a.Map(strings.Clone)) {
		t.Errorf("%v does not equal its copy", a)
	}
}

func TestAReasonAsText(t *testing.T) {
	r := Because("queued", "slots", "worker[0-1]", "message", "0/3 nodes", "left_out", "").With(Because("a"), Because("b", "n", "1"))
	if got, want := r.String(), `queued(message="0/3 nodes" slots=worker[0-1]){a, b(n=1)}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
