// Package ask asks whoever leads the jobs of a workspace, and waits for the outcome.
package ask

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/kubernetes"
)

// Route is how requests reach whoever leads.
type Route struct {
	Led bool // somebody leads, or this command cannot

	store    state.Store
	requests state.Requests
	here     state.Requests // instead, where the cluster does not define requests; nil: nobody would read them there
	poll     time.Duration  // how often an outcome is looked for
	alone    bool           // if nobody leads, this command can
}

// The intervals at which the outcome of a request, here and in a cluster, and whether anybody leads are looked for.
const (
	herePoll    = 100 * time.Millisecond
	clusterPoll = 500 * time.Millisecond
	leaderPoll  = time.Second
)

// untaken is how long a request may wait for a leader until that is reported: one that leads takes it within a second.
const untaken = 3 * time.Second

// Expiry is how long a request waits for a leader if nobody says otherwise.
const Expiry = 10 * time.Minute

// lateReply is how long after its end the reply to a request may still come: it may have been accepted shortly before, by a leader whose
// clock is behind.
const lateReply = 10 * time.Second

var (
	// ErrNobodyLeads is returned once the last leader has gone.
	ErrNobodyLeads = errors.New("nobody leads")
	// ErrNoReply is returned if no reply to a request arrived in time.
	ErrNoReply = errors.New("no master has replied in time: none leads these jobs, it hangs, or it cannot read requests")

	errInterrupted = errors.New("interrupted")
)

// Find returns the route to whoever leads. With jobs in a cluster it reads neither records nor lock, so asking takes no right to
// them: if nobody leads, the request waits.
func Find(ctx context.Context, w *workspace.Workspace) (*Route, error) {
	requests := w.Requests()
	to := &Route{Led: true, store: w.Store, requests: requests.Here, poll: herePoll, alone: w.LeadsAlone()}
	if to.alone {
		holder, err := w.Store.Holder(ctx)
		if err != nil {
			return nil, err
		}
		to.Led = holder != nil
	}
	if requests.Cluster != nil {
		to.requests, to.poll = requests.Cluster, clusterPoll
		if _, err := apply.Fetch(ctx, workspace.RunDirectory); err == nil || !to.Led { // it leads in this directory
			to.here = requests.Here
		}
	}
	return to, nil
}

// Ask stores a request, and returns it with its ID. If nobody leads it must be about jobs that were applied: nobody could act on it.
func (to *Route) Ask(ctx context.Context, r job.Request) (job.Request, error) {
	if !to.Led {
		if err := known(ctx, to.store, r.On); err != nil {
			return r, err
		}
	}
	asked, err := to.requests.Ask(ctx, r)
	if to.here != nil && errors.As(err, new(*kubernetes.UndefinedError)) {
		to.requests, to.poll = to.here, herePoll
		asked, err = to.requests.Ask(ctx, r)
	}
	return asked, workspace.MakeRoom(err)
}

// Await waits for a request's final reply. It tells what an accepted one waits for, and if no leader takes it. It ends early with
// ErrNobodyLeads if this command can lead instead, and with ErrNoReply.
func (to *Route) Await(ctx context.Context, r job.Request, tell func(...view.Diagnostic)) (state.Asked, error) {
	begun, reported, said := time.Now(), false, false
	looked := begun
	for {
		asked, err := to.requests.Get(ctx, r.ID)
		if err != nil || asked.Reply.State.Final() {
			return asked, err
		}
		if why := asked.Reply.Reason; !why.IsZero() && !said {
			said = true
			tell(view.Caution("Waiting", view.Sentence(why)+" The request stays if this command is interrupted."))
		}
		if to.alone && time.Since(looked) > leaderPoll {
			holder, err := to.store.Holder(ctx)
			if err != nil {
				return asked, err
			}
			if asked, err = to.requests.Get(ctx, r.ID); holder == nil && err == nil && !asked.Reply.State.Final() {
				to.Led = false
				return asked, ErrNobodyLeads
			}
			looked = time.Now()
		}
		if asked.Reply.State == "" {
			if time.Since(begun) > r.Expires.Sub(r.At)+lateReply { // who stored it, and who leads, may have other clocks
				return asked, ErrNoReply
			}
			if !reported && time.Since(begun) > untaken {
				reported = true
				tell(view.Caution("No master has taken the request yet",
					fmt.Sprintf("Perhaps none leads these jobs now, or it hangs. The request waits for one until %s; -detach does not wait. eltrain requests %s shows what becomes of it.", r.Expires.Local().Format(time.TimeOnly), r.ID)))
			}
		}
		select {
		case <-ctx.Done():
			return asked, errInterrupted
		case <-time.After(to.poll):
		}
	}
}

// AwaitRemoval waits until none of the jobs is recorded: until their providers have removed what belonged to them.
func (to *Route) AwaitRemoval(ctx context.Context, of []job.Selector, before job.Records) error {
	for {
		now, err := to.store.Read(ctx)
		if err != nil {
			return err
		}
		still := func(sel job.Selector) bool {
			return now.Jobs[sel.Job] != nil && now.Jobs[sel.Job].UID == before[sel.Job].UID
		}
		if !slices.ContainsFunc(of, still) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errInterrupted
		case <-time.After(to.poll):
		}
	}
}
