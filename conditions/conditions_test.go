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

func reported(s *conditions.Set) string {
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
		want string
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
		if got := reported(&s); got != step.want {
			t.Errorf("reported %q, want %q", got, step.want)
		}
	}
}

func TestWhatIsNotSettledIsCleared(t *testing.T) {
	var s conditions.Set
	held := func(name string) conditions.Condition {
		return conditions.Condition{About: "job." + name, Reason: job.Because("held_up")}
	}
	jobs := func(k conditions.Key) bool { return strings.HasPrefix(k.About, "job.") }
	s.Raise(epoch, "store", job.Because("not_stored"))
	s.Settle(epoch, jobs, []conditions.Condition{held("a"), held("b")})
	reported(&s)
	s.Settle(epoch, jobs, []conditions.Condition{held("b"), held("c")})
	if got, want := reported(&s), "cleared job.a held_up since 0s; raised job.c held_up since 0s"; got != want {
		t.Errorf("reported %q, want %q", got, want)
	}
	if all := s.All(); len(all) != 3 {
		t.Errorf("%v hold", all)
	}
}

func TestWhatIsTakenOverIsToldOnceAsWhatBecameOfIt(t *testing.T) {
	why := func(message string) job.Reason { return job.Because("refused", "message", message) }
	var before conditions.Set
	for _, about := range []string{"holds", "changes", "ends", "rests"} {
		before.Raise(epoch, about, why("quota"))
	}
	s := conditions.TakeOver(before.All(), nil)
	if got := reported(&s); got != "" {
		t.Errorf("reported at once: %q", got)
	}
	later := epoch.Add(time.Hour)
	for range 2 {
		s.Raise(later, "holds", why("quota"))
		s.Raise(later, "changes", why("webhook"))
		s.Clear("ends", "refused")
	}
	want := "held holds refused(message=quota) since 0s; changed changes refused(message=webhook) since 0s; cleared ends refused(message=quota) since 0s"
	if got := reported(&s); got != want {
		t.Errorf("reported %q, want %q", got, want)
	}
	if !s.Unseen(conditions.Key{About: "rests", Code: "refused"}) || s.Unseen(conditions.Key{About: "holds", Code: "refused"}) {
		t.Error("Unseen is wrong")
	}
}

// Changes of slots, counts and ports are stored but not reported.
func TestOtherNumbersAreNoNews(t *testing.T) {
	why := func(commit, slots, message string) job.Reason {
		return job.Because("refused", "commit", commit, "slots", slots).With(job.Because("part", "message", message))
	}
	var s conditions.Set
	s.Raise(epoch, "job.a", why("111", "worker[0-3]", "port 40001"))
	reported(&s)
	s.Raise(epoch, "job.a", why("111", "worker[2]", "port 40002"))
	if got := reported(&s); got != "" {
		t.Errorf("reported %q", got)
	}
	if c, _ := s.Get("job.a", "refused"); !c.Reason.Equal(why("111", "worker[2]", "port 40002")) {
		t.Errorf("it holds %v", c.Reason)
	}
	as := func(why job.Reason) conditions.Condition { return conditions.Condition{About: "job.a", Reason: why} }
	if first := as(why("111", "worker[2]", "port 1")); !s.Equal(first, as(why("111", "worker[2]", "port 2"))) || s.Equal(first, as(why("111", "worker[3]", "port 1"))) {
		t.Error("Equal is wrong for conditions that differ in a port, or in more")
	}
	for _, other := range []job.Reason{why("222", "worker[2]", "port 40001"), why("222", "worker[2]", "refused"), why("222", "worker[2]", "refused").With()} {
		s.Raise(epoch, "job.a", other)
		if got := reported(&s); !strings.HasPrefix(got, "changed job.a refused") {
			t.Errorf("for %v it reports %q", other, got)
		}
	}
}

// Details, such as what nodes have free, are kept, and their change is neither reported nor written.
func TestOtherDetailsAreNoNews(t *testing.T) {
	shortage := func(wanted string, free ...string) job.Reason {
		of := []job.Reason{job.Because("wanted", "each", wanted)}
		for _, f := range free {
			of = append(of, job.Because("node_free", "free", f))
		}
		return job.Because("never_fits").With(job.Because("no_room").With(of...))
	}
	s := conditions.TakeOver(nil, map[job.Code]bool{"node_free": true})
	s.Raise(epoch, "job.a", shortage("a core", "half a core"))
	reported(&s)
	before := s.All()
	for _, free := range [][]string{{"nothing"}, {"half a core", "nothing"}, nil} {
		s.Raise(epoch, "job.a", shortage("a core", free...))
		if got := reported(&s); got != "" {
			t.Errorf("with %v free it reports %q", free, got)
		}
		if now, _ := s.Get("job.a", "never_fits"); !now.Reason.Equal(shortage("a core", free...)) || !s.Equal(before[0], now) {
			t.Errorf("with %v free it holds %v", free, now)
		}
	}
	s.Raise(epoch, "job.a", shortage("a device", "nothing"))
	if got := reported(&s); !strings.HasPrefix(got, "changed job.a never_fits") {
		t.Errorf("reported %q", got)
	}
}

// Several reasons with one code are one condition, with each of them once.
func TestReasonsWithOneCodeAreOneCondition(t *testing.T) {
	why := func(messages ...string) job.Reason {
		var of []job.Reason
		for _, m := range messages {
			of = append(of, job.Because("queued", "message", m))
		}
		return conditions.Combined(of)
	}
	of := func(about string, why job.Reason) conditions.Condition {
		return conditions.Condition{About: about, Reason: why}
	}
	got := conditions.Merge([]conditions.Condition{of("a", why("x")), of("b", why("x")), of("a", why("y", "x")), of("b", why("x"))})
	if len(got) != 2 || !got[0].Reason.Equal(why("x", "y")) || !got[1].Reason.Equal(why("x")) {
		t.Errorf("merged are %v", got)
	}
	if parts := conditions.Reasons(got[0].Reason); len(parts) != 2 || !parts[1].Equal(why("y")) {
		t.Errorf("its reasons are %v", parts)
	}
}

// Conditions about a job, or a part of it, follow the job's name; another job's name may have the same prefix.
func TestConditionsFollowTheirJobsName(t *testing.T) {
	text := func(all []conditions.Condition) (abouts string) {
		for _, c := range all {
			abouts += c.About + " "
		}
		return abouts
	}
	var before conditions.Set
	for _, about := range []string{"job.a", "job.a.worker", "job.ab", "provider.a"} {
		before.Raise(epoch, about, job.Because("refused"))
	}
	names := map[string]string{"a": "z", "ab": "a"}
	if got, want := text(conditions.Renamed(before.All(), names)), "job.z job.z.worker job.a provider.a "; got != want {
		t.Errorf("renamed are %q, want %q", got, want)
	}
	s := conditions.TakeOver(before.All(), nil)
	s.Rename(names)
	if got, want := text(s.All()), "job.a job.z job.z.worker provider.a "; got != want || !s.Unseen(conditions.Key{About: "job.z", Code: "refused"}) {
		t.Errorf("renamed are %q, want %q", got, want)
	}
	if s.Raise(epoch, "job.z", job.Because("refused")); reported(&s) != "held job.z refused since 0s" {
		t.Error("a renamed condition is not reported as held")
	}
}
