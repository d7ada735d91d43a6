package apply

import (
	"maps"
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
}

// knownJob is a job that the service knows. The job's leases begin at that time.
type knownJob struct {
	uid string
	at  time.Time
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
	leaving := map[incarnation]*plan.Change{}
	for i := range p.Changes {
		if c := &p.Changes[i]; isStop(c) && c.Wave == 0 {
			for _, n := range c.Stop {
				leaving[incarnationOf(c.UID, c.Slot, n)] = c
			}
		}
	}
	labels := map[string]map[string]string{}
	for _, n := range l.sight.snapshot.Nodes {
		labels[n.Name] = n.Labels
	}
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
		if launched := rec.LaunchedAs(name); s.jobs[launched].uid != rec.UID {
			s.jobs[launched] = knownJob{rec.UID, l.now}
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
