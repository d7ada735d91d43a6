package conditions_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func told(s *conditions.Set) string {
	var lines []string
	for _, c := range s.Changes() {
		lines = append(lines, fmt.Sprintf("%s %s %s since %s", c.Type, c.About, c.Reason, c.Since.Sub(epoch)))
	}
	return strings.Join(lines, "; ")
}

func TestEachTransitionIsToldOnce(t *testing.T) {
	var s conditions.Set
	at := func(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }
	down := func(message string) job.Reason { return job.Because("provider_unobserved", "message", message) }
	for _, step := range []struct {
		do   func()
		told string
	}{
		{func() { s.Raise(at(0), "provider.local", down("port 5 is closed")) }, "raised provider.local provider_unobserved(message=\"port 5 is closed\") since 0s"},
		{func() { s.Raise(at(1), "provider.local", down("port 5 is closed")) }, ""},
		{func() { s.Raise(at(3), "provider.local", down("refused")) }, "changed provider.local provider_unobserved(message=refused) since 0s"},
		{func() { s.Clear("provider.west", "provider_unobserved") }, ""},
		{func() { s.Clear("provider.local", "provider_unobserved") }, "cleared provider.local provider_unobserved(message=refused) since 0s"},
		{func() { s.Clear("provider.local", "provider_unobserved") }, ""},
		{func() { s.Raise(at(4), "provider.local", down("refused")) }, "raised provider.local provider_unobserved(message=refused) since 4s"},
	} {
		step.do()
		if got := told(&s); got != step.told {
			t.Errorf("told %q, want %q", got, step.told)
		}
	}
}

func TestWhatIsNotSettledIsCleared(t *testing.T) {
	var s conditions.Set
	held := func(name string) conditions.Condition {
		return conditions.Condition{About: "job." + name, Reason: job.Because("held_up")}
	}
	s.Raise(epoch, "store", job.Because("not_stored"))
	s.Settle(epoch, "delays", []conditions.Condition{held("a"), held("b")})
	told(&s)
	s.Settle(epoch, "delays", []conditions.Condition{held("b"), held("c")})
	if got, want := told(&s), "cleared job.a held_up since 0s; raised job.c held_up since 0s"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	if all := s.All(); len(all) != 3 {
		t.Errorf("%v hold", all)
	}
}
