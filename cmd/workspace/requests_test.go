package workspace

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/file"
	"github.com/eltrain/eltrain/state/memory"
)

// Who leads takes requests from both places in order, and replies where each was asked.
func TestRequestsOfBothPlacesAreInOrder(t *testing.T) {
	place := func() state.Requests {
		root := filepath.Join(t.TempDir(), "run")
		return file.NewRequests(root, filepath.Join(root, "requests"))
	}
	q := &Requests{Here: place(), Cluster: place()}
	now := time.Now()
	var want []string
	for i, to := range []state.Requests{q.Cluster, q.Here, q.Cluster} {
		at := now.Add(time.Duration(i) * time.Second)
		r, err := to.Ask(t.Context(), job.Request{Verb: job.AskSuspend, On: []job.Selector{{Job: "a"}}, At: at, Expires: at.Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, r.ID)
	}
	pending := func() (ids []string) {
		t.Helper()
		all, err := q.Pending(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			ids = append(ids, r.ID)
		}
		return ids
	}
	if got := pending(); !slices.Equal(got, want) {
		t.Errorf("pending are %v, want %v", got, want)
	}
	for _, id := range want[:2] {
		if err := q.Reply(t.Context(), job.Reply{ID: id, State: job.Done}); err != nil {
			t.Fatal(err)
		}
	}
	if got := pending(); !slices.Equal(got, want[2:]) {
		t.Errorf("pending are %v, want %v", got, want[2:])
	}
	for i, to := range []state.Requests{q.Cluster, q.Here} {
		if asked, err := to.Get(t.Context(), want[i]); err != nil || asked.Reply.State != job.Done {
			t.Errorf("the reply is %+v, %v", asked, err)
		}
	}
	if _, err := q.Here.Get(t.Context(), want[0]); !errors.Is(err, state.ErrNoRequest) {
		t.Errorf("a request to the cluster is here: %v", err)
	}
	all, err := q.All(t.Context())
	if err != nil || len(all) != 3 || all[0].ID != want[0] || all[1].ID != want[1] || all[2].Reply.State != "" {
		t.Errorf("all are %+v, %v", all, err)
	}
}

// With jobs in a cluster their agents do not reach a command elsewhere.
func TestWhoMayLeadAlone(t *testing.T) {
	cluster := &Requests{Here: nil, Cluster: file.NewRequests("", "")}
	for _, c := range []struct {
		requests *Requests
		provider string
		want     bool
	}{{&Requests{}, "kubernetes", true}, {cluster, "local", true}, {cluster, "kubernetes", false}} {
		w := &Workspace{Store: memory.New(), Config: &lang.Config{Jobs: []job.Job{{Provider: "local"}, {Provider: c.provider}}}, requests: c.requests}
		if w.LeadsAlone() != c.want {
			t.Errorf("with jobs of %s: %v", c.provider, !c.want)
		}
		w.Config = &lang.Config{Providers: []lang.ProviderConfig{{Name: c.provider}}}
		if w.LeadsAlone() != c.want {
			t.Errorf("with provider %s: %v", c.provider, !c.want)
		}
	}
}
