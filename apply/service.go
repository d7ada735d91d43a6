package apply

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// service tracks what the elastic training service was told.
type service struct {
	open bool
	jobs map[string]knownJob  // by the names that the service knows
	gone map[incarnation]bool // incarnations that were reported to have ended
	// labels are those of nodes, by name.
	labels map[string]map[string]string
	nodes  []job.Node
}

// knownJob is a job that the service knows. The job's leases begin at that time.
type knownJob struct {
	uid  string
	at   time.Time
	told *instructed // nil unless the same would be told again
}

// instructed is what a job's desired world was made of. The same is not told again: a job costs something when it changes.
type instructed struct {
	record *job.Record
	want   job.Want
	token  string
	news   time.Duration
	name   string
	nodes  []job.Node
}

func (i *instructed) is(o *instructed) bool {
	return i != nil && i.record == o.record && i.token == o.token && i.news == o.news && i.name == o.name && sameNodes(i.nodes, o.nodes) && reflect.DeepEqual(i.want, o.want)
}

// sameNodes reports whether two lists are the same, not merely equal.
func sameNodes(a, b []job.Node) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// labelsOf are the labels of nodes, by name.
func (s *service) labelsOf(nodes []job.Node) map[string]map[string]string {
	if s.labels == nil || !sameNodes(s.nodes, nodes) {
		s.nodes, s.labels = nodes, make(map[string]map[string]string, len(nodes))
		for i := range nodes {
			s.labels[nodes[i].Name] = nodes[i].Labels
		}
	}
	return s.labels
}

func newService() service {
	return service{jobs: map[string]knownJob{}, gone: map[incarnation]bool{}}
}

// unheard is until when reports of agents of a job are awaited that had registered with an earlier master, and that according to their
// provider still run. Zero if all have reported, or their time is over: the lease, or the time in which a new service address
// reaches agents, whichever is longer. After that the service considers them lost.
func (s *service) unheard(l *Loop, name string, rec *job.Record) (until time.Time) {
	provider := l.sight.providers[rec.Spec.Provider]
	if provider == nil || !l.sight.silent(rec) {
		return time.Time{}
	}
	since := l.since
	if known := s.jobs[rec.LaunchedAs(name)]; known.uid == rec.UID {
		since = known.at
	}
	return later(l.now, since.Add(max(rec.Spec.Detect.Lease.Std(), provider.can.News.Std())+plan.Proof))
}

// holds is until when a planned stop in a world waits for its other members: one that has not reported to this master would not learn
// that the world ends, and take that for a fault. Zero if it does not wait.
func (s *service) holds(l *Loop, p *plan.Plan, c *plan.Change) (until time.Time) {
	rec := p.Records[c.Job]
	if !isStop(c) || c.Force || rec == nil || rec.UID != c.UID {
		return time.Time{}
	}
	slot, role := rec.Slot(c.Slot.Role, c.Slot.Index), rec.Spec.Role(c.Slot.Role)
	if slot == nil || slot.Phase != job.Canceling || role == nil || !role.Ranked {
		return time.Time{}
	}
	return s.unheard(l, c.Job, rec)
}

// ends reports whether the end of an incarnation is to be reported now, and records that it is.
func (s *service) ends(inc *job.Incarnation) bool {
	key := keyOf(inc)
	if s.gone[key] || s.jobs[inc.Slot.Job].uid != inc.UID {
		return false
	}
	s.gone[key] = true
	return true
}

// prune drops the ended incarnations that no provider shows anymore.
func (s *service) prune(seen *sight) {
	if len(s.gone) == 0 || seen.incomplete() {
		return
	}
	still := make(map[incarnation]bool, len(s.gone))
	seen.each(func(inc *job.Incarnation) {
		if key := keyOf(inc); inc.State == job.Gone && s.gone[key] {
			still[key] = true
		}
	})
	s.gone = still
}

// instruct tells the service what it is to form, and has jobs prepared whose preparation is due.
func (s *service) instruct(l *Loop, p *plan.Plan) {
	leaving, stops := map[incarnation]*plan.Change{}, map[string]bool{}
	for i := range p.Changes {
		if c := &p.Changes[i]; isStop(c) && c.Wave == 0 {
			for _, n := range c.Stop {
				leaving[incarnationOf(c.UID, c.Slot, n)] = c
				stops[c.UID] = true
			}
		}
	}
	labels := s.labelsOf(l.sight.snapshot.Nodes)
	known, recorded := map[string]bool{}, map[string]bool{}
	l.groups.plan()
	for _, name := range slices.Sorted(maps.Keys(p.Records)) {
		rec := p.Records[name]
		recorded[rec.UID] = true
		want, here := p.Wants[name] // else its provider could not be observed
		group, startable := p.Groups[name]
		provider := l.sight.providers[rec.Spec.Provider]
		if !here || !startable || provider == nil { // the plan reports a provider that is not configured
			l.groups.resetRetries(l, rec.UID)
			continue
		}
		token, prepared := l.groups.ask(l, rec, group)
		if !prepared {
			continue // meanwhile its agents keep training, unknown to the service
		}
		launched := rec.LaunchedAs(name)
		if s.jobs[launched].uid != rec.UID {
			s.jobs[launched] = knownJob{uid: rec.UID, at: l.now}
		}
		as := instructed{record: rec, want: want, token: token, news: provider.can.News.Std(), name: name, nodes: s.nodes}
		if k := s.jobs[launched]; !stops[rec.UID] && k.told.is(&as) {
			known[launched] = true
			continue
		}
		d := elastic.Desired{UID: rec.UID, Token: token, Want: want, World: rec.World, News: provider.can.News.Std(), Nodes: labels}
		for _, s := range rec.Slots {
			if s.Incarnation == 0 || s.Phase == job.Canceled {
				continue
			}
			stop := leaving[incarnationOf(rec.UID, s.Address, s.Incarnation)]
			slot := elastic.DesiredSlot{Address: s.Address, Incarnation: s.Incarnation, InPlace: s.InPlace, Rank: s.Rank, Node: s.Node,
				Leave: stop != nil && !l.groups.holds(stop) && l.service.holds(l, p, stop).IsZero() || s.Phase == job.Succeeded, Force: stop != nil && stop.Force, Return: s.Return, Processes: 1}
			if role := rec.Spec.Role(s.Address.Role); role != nil {
				slot.Processes = role.Processes
			}
			d.Slots = append(d.Slots, slot)
		}
		name, d = l.book.names.toService(name, d)
		known[name] = true
		l.inform(Wanted{name, d})
		k := s.jobs[launched]
		if k.told = nil; !stops[rec.UID] {
			k.told = &as
		}
		s.jobs[launched] = k
	}
	if !l.sight.incomplete() {
		l.groups.keep(recorded)
		for _, name := range slices.Sorted(maps.Keys(s.jobs)) {
			if !known[name] {
				l.inform(Unwanted{name})
				delete(s.jobs, name)
			}
		}
	}
	if !s.open {
		s.open = true
		l.inform(Open{})
	}
	for _, name := range l.sight.order {
		s.tellGone(l, name)
	}
}
