package workspace

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/providers/local"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/file"
	"github.com/eltrain/eltrain/state/kubernetes"
)

// Requests are operators' requests to whoever leads the workspace's jobs. Who leads reads both kinds, in the order of their IDs. Who
// asks chooses.
type Requests struct {
	Here    state.Requests // beside a state in a file; of one in a cluster, in this directory, for who leads here
	Cluster state.Requests // beside the state, for whoever leads; nil unless the state is in a cluster
}

// Requests are operators' requests to whoever leads the workspace's jobs. Close releases them.
func (w *Workspace) Requests() *Requests {
	if w.requests == nil {
		w.requests = &Requests{Here: file.NewRequests(RunDirectory, filepath.Join(RunDirectory, "requests"))}
		switch store := w.Store.(type) {
		case *file.Store:
			w.requests.Here = store.Requests()
		case *kubernetes.Store:
			w.requests.Cluster = store.Requests()
		}
	}
	return w.requests
}

func (q *Requests) close() {
	if q == nil {
		return
	}
	if following, is := q.Cluster.(*kubernetes.Requests); is {
		following.Close()
	}
}

// Pending returns the requests without a final reply, in order.
func (q *Requests) Pending(ctx context.Context) ([]job.Request, error) {
	pending, err := q.Here.Pending(ctx)
	if err != nil || q.Cluster == nil {
		return pending, err
	}
	others, err := q.Cluster.Pending(ctx)
	if err != nil {
		return nil, err // a part of the requests would look as if the others had had their replies
	}
	pending = slices.Concat(pending, others)
	slices.SortFunc(pending, job.CompareRequests)
	return pending, nil
}

// Reply stores what has become of a request where it was asked.
func (q *Requests) Reply(ctx context.Context, r job.Reply) error {
	if q.Cluster == nil {
		return q.Here.Reply(ctx, r)
	}
	_, err := q.Here.Get(ctx, r.ID)
	if errors.Is(err, state.ErrNoRequest) {
		return q.Cluster.Reply(ctx, r)
	}
	return q.Here.Reply(ctx, r)
}

// All returns the requests and their replies, in order. A cluster that does not define requests has none.
func (q *Requests) All(ctx context.Context) ([]state.Asked, error) {
	all, err := q.Here.All(ctx)
	if err != nil || q.Cluster == nil {
		return all, err
	}
	others, err := q.Cluster.All(ctx)
	if err != nil && !errors.As(err, new(*kubernetes.UndefinedError)) {
		return nil, err
	}
	all = slices.Concat(all, others)
	state.SortAsked(all)
	return all, nil
}

// LeadsAlone reports whether a command may lead for as long as it runs. With jobs in a cluster their agents would not reach it: the
// address in the files is that of a master there.
func (w *Workspace) LeadsAlone() bool {
	if w.Requests().Cluster == nil {
		return true
	}
	if len(w.Config.Jobs) == 0 { // perhaps they cannot be read
		return !slices.ContainsFunc(w.Config.Providers, func(p lang.ProviderConfig) bool { return p.Name != local.Name })
	}
	return !slices.ContainsFunc(w.Config.Jobs, func(j job.Job) bool { return j.Provider != local.Name })
}
