package apply

import (
	"errors"
	"iter"
	"maps"
	"reflect"
	"slices"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
)

// incarnation identifies an incarnation. Its slot has no job name, since the job may be renamed.
type incarnation struct {
	uid    string
	slot   job.Address
	number int
}

func incarnationOf(uid string, slot job.Address, number int) incarnation {
	slot.Job = ""
	return incarnation{uid, slot, number}
}

func keyOf(inc *job.Incarnation) incarnation { return incarnationOf(inc.UID, inc.Slot, inc.Number) }

// sight is what is known of the outside world: the providers' last observations and the service's facts.
type sight struct {
	order     []string // of providers
	providers map[string]*provided
	version   uint64
	facts     map[string]elastic.Facts // by the names that agents know
	fresh     bool                     // something has changed since the newest plan
	surveys   surveys

	snapshot job.Snapshot // of the newest plan
	merged   map[*job.Incarnation]merged
	live     map[string]map[incarnation]*job.Incarnation // the snapshot's, by UID, without those that are Gone; see liveOf
}

// merged is a part of the newest snapshot, and what it was made of. It stays as long as that does: a snapshot costs what has changed
// since the last.
type merged struct {
	seen    []job.Incarnation // by the provider
	name    string            // of its job
	members []elastic.MemberFacts
	made    []job.Incarnation
	loss    string // of a member whose loss is not finite; "" if there is none
	gone    bool   // some of it has ended
}

// provided is what is known of one provider.
type provided struct {
	can  job.Capabilities
	seen *providers.Observation // the last successful one; nil before the first
	err  error                  // of the last observation; nil if it succeeded
}

func newSight(order []string) sight {
	s := sight{order: slices.Sorted(slices.Values(order)), providers: make(map[string]*provided, len(order)), live: map[string]map[incarnation]*job.Incarnation{}, surveys: newSurveys()}
	for _, name := range order {
		s.providers[name] = &provided{}
	}
	return s
}

// hear handles the service's facts.
func (s *sight) hear(f Facts) {
	if f.Jobs != nil {
		s.facts = f.Jobs
	}
	s.fresh = s.fresh || f.Version != s.version
	s.version = f.Version
}

// see handles a provider's observation, or the error of a failed one. The same observation again is no news. It returns the
// error as it is kept: one that repeats the previous error is replaced by that.
func (s *sight) see(name string, now Sight, err error) error {
	p := s.providers[name]
	s.fresh = s.fresh || (p.err == nil) != (err == nil)
	if err != nil {
		if !repeats(err, p.err) {
			p.err = err
		}
		return p.err
	}
	s.fresh = s.fresh || p.seen != now.Observation || !reflect.DeepEqual(p.can, now.Capabilities)
	p.can, p.seen, p.err = now.Capabilities, now.Observation, nil
	return nil
}

// answered reports whether a provider is configured and could be observed.
func (s *sight) answered(provider string) bool {
	p := s.providers[provider]
	return p != nil && p.seen != nil && p.err == nil
}

// incomplete reports whether any provider could not be observed, so that plans are partial.
func (s *sight) incomplete() bool {
	for _, p := range s.providers {
		if p.err != nil {
			return true
		}
	}
	return false
}

// unobserved says why providers could not be observed, by provider.
func (s *sight) unobserved() map[string]string {
	why := map[string]string{}
	for name, p := range s.providers {
		if p.err != nil {
			why[name] = p.err.Error()
		}
	}
	return why
}

// each calls do with every incarnation of the last successful observations, as its infrastructure knows it.
func (s *sight) each(do func(*job.Incarnation)) {
	for _, name := range s.order {
		if p := s.providers[name]; p.seen != nil {
			for inc := range p.seen.Incarnations.All() {
				do(inc)
			}
		}
	}
}

// at returns the live incarnation that a change is about; nil if there is none.
func (s *sight) at(c *plan.Change) *job.Incarnation {
	return s.find(c.UID, c.Slot, c.Incarnation)
}

// find returns a live incarnation; nil if there is none.
func (s *sight) find(uid string, slot job.Address, number int) *job.Incarnation {
	return s.liveOf(uid)[incarnationOf(uid, slot, number)]
}

// liveOf returns the live incarnations of a job in the newest snapshot.
func (s *sight) liveOf(uid string) map[incarnation]*job.Incarnation {
	if live, known := s.live[uid]; known {
		return live
	}
	live := map[incarnation]*job.Incarnation{}
	for _, part := range s.snapshot.Incarnations {
		for i := 0; i < len(part) && part[0].UID == uid; i++ {
			if inc := &part[i]; inc.State != job.Gone {
				live[keyOf(inc)] = inc
			}
		}
	}
	s.live[uid] = live
	return live
}

// left reports whether all incarnations that a change stops are gone.
func (s *sight) left(c *plan.Change) bool {
	return s.answered(c.Provider) && !slices.ContainsFunc(c.Stop, func(n int) bool {
		return s.find(c.UID, c.Slot, n) != nil
	})
}

// leavesByItself reports whether the incarnation can be expected to leave when the service asks it to: it has started, and its
// agent either reports or has not registered with this master yet.
func (s *sight) leavesByItself(c *plan.Change) bool {
	inc := s.at(c)
	if inc != nil && (inc.Node == "" || inc.Waiting != "") {
		return false // it has not started
	}
	return inc != nil && (inc.Member == nil || !inc.Member.Silent && !inc.Member.Expired)
}

// delayed returns, by UID, why objects of jobs take long to create, according to the providers' last successful
// observations.
func (s *sight) delayed() map[string]string {
	now := map[string]string{}
	for _, p := range s.providers {
		if p.seen != nil {
			maps.Copy(now, p.seen.Delayed)
		}
	}
	return now
}

// merge adds the service's worlds, members and suspicions to a snapshot. It matches jobs by UID, so that a recreated job does not get those
// of its predecessor.
func merge(s *job.Snapshot, facts map[string]elastic.Facts, records job.Records) {
	members := addWorlds(s, facts, records)
	incs := slices.Clone(s.Incarnations)
	for i, part := range incs {
		if len(part) > 0 && len(members[part[0].UID]) > 0 {
			incs[i] = slices.Clone(part)
			addMembers(incs[i], members[part[0].UID])
		}
	}
	s.Incarnations = incs
}

// addWorlds adds the service's worlds and suspicions, and returns its members, by UID.
func addWorlds(s *job.Snapshot, facts map[string]elastic.Facts, records job.Records) map[string][]elastic.MemberFacts {
	s.Worlds, s.Suspicions = make(map[string]job.World, len(facts)), nil
	members := make(map[string][]elastic.MemberFacts, len(facts))
	for name, f := range facts {
		if rec := records[name]; f.World.Generation > 0 && rec != nil && rec.UID == f.UID {
			s.Worlds[name] = f.World
			if len(f.Suspicions) > 0 {
				if s.Suspicions == nil {
					s.Suspicions = map[string][]job.Suspicion{}
				}
				s.Suspicions[name] = f.Suspicions
			}
		}
		members[f.UID] = f.Members
	}
	return members
}

// addMembers adds what the members of a job report to its incarnations. Both are mostly in the same order.
func addMembers(incs []job.Incarnation, members []elastic.MemberFacts) {
	key := func(m *elastic.MemberFacts) incarnation { return incarnationOf("", m.Slot, m.Incarnation) }
	var others map[incarnation]int
	next := 0
	for i := range incs {
		inc := &incs[i]
		at := incarnationOf("", inc.Slot, inc.Number)
		if next < len(members) && key(&members[next]) == at {
			inc.Member = &members[next].Member
			next++
			continue
		}
		if others == nil {
			others = make(map[incarnation]int, len(members))
			for k := range members {
				others[key(&members[k])] = k
			}
		}
		if k, found := others[at]; found {
			inc.Member, next = &members[k].Member, k+1
		}
	}
}

// input returns the planner's input: what is known, and what operators ask.
func (l *Loop) input() plan.Input {
	in := l.known()
	l.requests.enter(l, &in)
	return in
}

// known returns the jobs of the providers that answered, and everything known about them.
func (l *Loop) known() plan.Input {
	s := &l.sight
	in := plan.Input{
		Now: l.now, Since: l.since, Rerun: map[string]bool{}, Forgotten: map[string]bool{}, InFlight: l.exec.inFlight(), Capabilities: map[string]job.Capabilities{}, Records: job.Records{},
		Released: l.book.state.Released, Nodes: l.book.state.Nodes, Spent: l.book.state.Spent,
	}
	l.declare(&in)
	snapshot := job.Snapshot{At: l.now}
	var nodes []job.Node
	for _, name := range s.order {
		if !s.answered(name) {
			continue
		}
		p := s.providers[name]
		in.Capabilities[name] = p.can
		if snapshot.Nodes = slices.Clip(p.seen.Nodes); len(s.order) > 1 {
			nodes = append(nodes, p.seen.Nodes...)
			snapshot.Nodes = nodes
		}
		if len(p.seen.Held) > 0 && snapshot.Held == nil {
			snapshot.Held = map[string]string{}
		}
		maps.Copy(snapshot.Held, p.seen.Held)
	}
	records := l.book.state.Jobs
	for name, rec := range records {
		if s.answered(rec.Spec.Provider) {
			in.Records[name] = rec
			if l.exec.forgotten(rec.UID) {
				in.Forgotten[rec.UID] = true
			}
		}
		in.Rerun[name] = l.files.rerun[name] == rec.UID
	}
	for _, j := range l.files.Jobs {
		// A job is left out with its record: without it, it would look new.
		name := l.files.recordedAs(j.Name, records)
		p := s.providers[j.Provider]
		if records[name] != nil && in.Records[name] == nil || p != nil && p.err != nil {
			delete(in.Records, name)
			continue
		}
		in.Jobs = append(in.Jobs, j)
	}
	in.Destroyed = map[string]job.Override{}
	for name, o := range l.book.state.Destroyed {
		if !l.leftOut(&in, name) {
			in.Destroyed[name] = o
		}
	}
	in.Bars, in.Extra = s.fits(&in)
	s.merge(&snapshot, addWorlds(&snapshot, l.book.names.fromService(s.facts), records), l.book.names)
	snapshot.Surveys = l.sight.surveys.all()
	in.Snapshot = snapshot
	return in
}

// keep keeps the snapshot of the newest plan.
func (s *sight) keep(snapshot job.Snapshot) {
	s.snapshot, s.live = snapshot, map[string]map[incarnation]*job.Incarnation{}
}

// merge makes the incarnations of a snapshot of the observations and what members report. Parts of which nothing has changed since the
// last snapshot are the same in this one.
func (s *sight) merge(snapshot *job.Snapshot, members map[string][]elastic.MemberFacts, names names) {
	before := s.merged
	s.merged = make(map[*job.Incarnation]merged, len(before))
	for _, provider := range s.order {
		if !s.answered(provider) {
			continue
		}
		for _, part := range s.providers[provider].seen.Incarnations {
			if len(part) == 0 {
				continue
			}
			uid := part[0].UID
			m := before[&part[0]]
			if is := (merged{seen: part, name: names.now(uid, part[0].Slot.Job), members: members[uid], made: m.made}); !m.isOf(&is) {
				m = is
				m.made = slices.Clone(part)
				for i := range m.made {
					inc := &m.made[i]
					inc.Provider, inc.Slot.Job = provider, names.now(uid, inc.Slot.Job)
				}
				addMembers(m.made, m.members)
				m.loss, m.gone = notFinite(m.made), slices.ContainsFunc(m.made, func(inc job.Incarnation) bool { return inc.State == job.Gone })
			}
			s.merged[&part[0]] = m
			snapshot.Incarnations = append(snapshot.Incarnations, m.made)
		}
	}
}

// parts are the parts of the newest snapshot, in order.
func (s *sight) parts() iter.Seq[merged] {
	return func(yield func(merged) bool) {
		for _, provider := range s.order {
			if !s.answered(provider) {
				continue
			}
			for _, part := range s.providers[provider].seen.Incarnations {
				if len(part) > 0 && !yield(s.merged[&part[0]]) {
					return
				}
			}
		}
	}
}

// lives reports whether it is known that nothing of a part has ended.
func (s *sight) lives(part []job.Incarnation) bool {
	m, known := s.merged[&part[0]]
	return known && !m.gone && job.SamePart(m.seen, part)
}

// notFinite is the first loss of members that train that is not finite; "" if there is none.
func notFinite(incs []job.Incarnation) string {
	for i := range incs {
		if m := incs[i].Member; m != nil && m.State == job.MemberRunning {
			if _, loss := m.Loss.Finite(); loss != "" {
				return loss
			}
		}
	}
	return ""
}

// isOf reports whether it was made of the same.
func (m *merged) isOf(o *merged) bool {
	sameMembers := len(m.members) == len(o.members) && (len(m.members) == 0 || &m.members[0] == &o.members[0])
	return m.made != nil && job.SamePart(m.seen, o.seen) && m.name == o.name && sameMembers
}

// fits asks the observations where the roles of all jobs can run and what else they use there: as declared, or as last applied
// if they are no longer declared. Caveats are added to the provider's capabilities, each once, since thousands of roles
// may share one.
func (s *sight) fits(in *plan.Input) (bars map[string]map[string]string, extra map[string]job.Resources) {
	bars, extra = map[string]map[string]string{}, map[string]job.Resources{}
	ask := func(j *job.Job) {
		if !s.answered(j.Provider) {
			return
		}
		for i := range j.Roles {
			role := "job." + j.Name + "." + j.Roles[i].Name
			fit := s.providers[j.Provider].seen.Places.Fit(&j.Roles[i])
			if len(fit.Bars) > 0 {
				bars[role] = fit.Bars
			}
			if !fit.Extra.Equal(job.Resources{}) {
				extra[role] = fit.Extra
			}
			for _, caveat := range fit.Caveats {
				if can := in.Capabilities[j.Provider]; !slices.Contains(can.Caveats, caveat) {
					can.Caveats = append(slices.Clip(can.Caveats), caveat) // the provider's own stay as they are
					in.Capabilities[j.Provider] = can
				}
			}
		}
	}
	declared := make(map[string]bool, len(in.Jobs))
	for i := range in.Jobs {
		declared[in.Jobs[i].Name] = true
		ask(&in.Jobs[i])
	}
	for name, rec := range in.Records {
		if !declared[name] {
			ask(&rec.Spec)
		}
	}
	return bars, extra
}

// heard records the service's facts, and observes the providers after that: if an agent reports that it was asked to stop,
// what its infrastructure says about the reason must not be older.
func (l *Loop) heard(o Outcome) {
	if f, is := o.Result.(Facts); is {
		l.sight.hear(f)
	}
	if l.end.stage == stopping {
		l.looked() // without waiting for providers
		return
	}
	l.turn.phase, l.turn.awaits = observing, len(l.sight.order)
	for _, name := range l.sight.order {
		l.do(Observe{name})
	}
	if l.turn.awaits == 0 {
		l.looked()
	}
}

// observed handles a provider's observation. The jobs of a provider that failed are left out: they continue unchanged
// until it answers again.
func (l *Loop) observed(provider string, o Outcome) {
	if !errors.Is(o.Err, ErrDropped) {
		before := l.sight.providers[provider].seen
		now, _ := o.Result.(Sight)
		err := l.sight.see(provider, now, o.Err)
		l.holds.raiseIf(l, err, "provider."+provider, ProviderUnobserved)
		if err == nil && now.Observation != before {
			l.service.tellGone(l, provider)
		}
	}
	if l.turn.awaits--; l.turn.awaits == 0 {
		l.looked()
	}
}

// tellGone reports incarnations that have definitely ended to the service, each once, as soon as the service knows the job.
func (s *service) tellGone(l *Loop, provider string) {
	seen := l.sight.providers[provider].seen
	if seen == nil {
		return
	}
	for _, part := range seen.Incarnations {
		if len(part) == 0 || l.sight.lives(part) {
			continue
		}
		for i := range part {
			if inc := &part[i]; inc.State == job.Gone && s.ends(inc) {
				l.inform(Ended{inc.Slot, inc.Number, inc.Ended == job.EndFinished})
			}
		}
	}
}
