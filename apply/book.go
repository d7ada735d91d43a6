package apply

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/eltrain/eltrain/goodput"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// book holds the recorded state and serializes writes to it.
type book struct {
	state  state.State
	names  names // of state
	epoch  uint64
	unsure bool // the last write failed, but may have been stored anyway

	busy      bool            // a write or a reread is in flight
	decided   bool            // that write records a turn's decision
	worlds    []Forming       // that write records these worlds
	forming   []Forming       // worlds waiting for the next write
	seal      *job.Sealer     // nil if nothing is sensitive
	unwritten []job.Notice    // not in the journal yet
	ledger    []goodput.Entry // the same of these
	decision  *Decision       // waits to be journaled
	newest    int             // number of the newest Chronicle
	retried   bool            // it failed, and waits to be retried
}

func newBook(s Setup) book {
	b := book{epoch: s.Epoch, seal: s.Files.Seal}
	if s.State.Jobs == nil {
		s.State.Jobs = job.Records{}
	}
	b.set(s.State)
	return b
}

// set replaces the current state, with sensitive values sealed.
func (b *book) set(s state.State) {
	s.Jobs, s.Conditions = b.seal.Records(s.Jobs), sealed(s.Conditions, b.seal)
	s.Notifications.Unsent = slices.Clone(s.Notifications.Unsent)
	for i := range s.Notifications.Unsent {
		m := &s.Notifications.Unsent[i]
		m.Reason = m.Reason.Map(b.seal.Text)
	}
	b.state, b.names = s, namesOf(s.Jobs)
}

// note queues notices to be journaled and reported with the next stored turn.
func (b *book) note(notices ...job.Notice) { b.unwritten = append(b.unwritten, notices...) }

// recordOf finds a job by its UID; nil if it is not recorded.
func recordOf(records job.Records, uid string) (name string, rec *job.Record) {
	for name, rec := range records {
		if rec.UID == uid {
			return name, rec
		}
	}
	return "", nil
}

// form returns the records with these worlds entered, and the worlds of jobs that are not recorded.
func (b *book) form(worlds []Forming) (jobs job.Records, unknown []Forming) {
	jobs = maps.Clone(b.state.Jobs)
	for _, f := range worlds {
		name, old := recordOf(jobs, f.UID)
		if old == nil {
			unknown = append(unknown, f)
			continue
		}
		rec := *old
		rec.World = f.World.Of(name)
		jobs[name] = &rec
	}
	return jobs, unknown
}

// recognize handles a reread after a failed write, which may have been stored anyway. The decision in it is made again, but its
// conditions were reported when it was made, and its messages may be over when it is made again: they stay.
func (b *book) recognize(stored state.State) {
	known := b.state
	ours := stored.Lineage == known.Lineage || known.Lineage == ""
	if ours && stored.Serial == known.Serial+1 && stored.Epoch == b.epoch {
		known.Lineage, known.Serial, known.Conditions, known.Notifications = stored.Lineage, stored.Serial, stored.Conditions, stored.Notifications
	}
	if stored.Serial == 0 {
		known.Serial = 0 // the state was removed: rewrite it from memory
	}
	b.set(known)
	b.unsure = false
}

// record writes formed worlds as soon as no other write is in flight.
func (b *book) record(l *Loop) {
	if b.busy || len(b.forming) == 0 {
		return
	}
	b.busy, b.worlds, b.forming = true, b.forming, nil
	b.write(l)
}

// write starts the pending write, but rereads first if the last write failed.
func (b *book) write(l *Loop) {
	if b.unsure {
		l.do(Reread{l.number()})
		return
	}
	if b.decided {
		l.do(Store{b.next(l)})
		return
	}
	jobs, unknown := b.form(b.worlds)
	for _, f := range unknown {
		l.inform(Recorded{f.Number, fmt.Errorf("job %s with uid %s is not recorded", f.Job, f.UID)})
	}
	b.worlds = slices.DeleteFunc(b.worlds, func(f Forming) bool {
		return slices.ContainsFunc(unknown, func(u Forming) bool { return u.Number == f.Number })
	})
	if len(b.worlds) == 0 {
		b.busy = false
		return
	}
	l.do(Store{b.state.Next(jobs)})
}

// reread handles the outcome of a reread, and continues with the pending write.
func (b *book) reread(l *Loop, o Outcome) {
	if o.Err != nil {
		b.failed(l, fmt.Errorf("reread the state: %w", o.Err))
		return
	}
	b.recognize(o.Result.(state.State))
	if b.decided {
		l.alerts.settle(l, &l.turn.decided)
	}
	b.write(l)
}

// stored handles the outcome of a write.
func (b *book) stored(l *Loop, e Store, err error) {
	if err != nil {
		b.unsure = true
		b.failed(l, fmt.Errorf("store the state: %w", err))
		return
	}
	before := b.state.Jobs
	b.set(e.State)
	worlds, decided := b.worlds, b.decided
	b.busy, b.worlds, b.decided = false, nil, false
	for _, f := range worlds {
		name, rec := recordOf(before, f.UID)
		n := worldNotice("job."+name, &f.World)
		if rec.World.Generation > 0 {
			n.Reason = n.Reason.With(resized(&rec.Spec, &rec.World, &f.World)...)
		}
		b.note(n)
		l.inform(Recorded{f.Number, nil})
	}
	if decided {
		b.journal(l)
	}
}

// failed handles a failed write.
func (b *book) failed(l *Loop, err error) {
	worlds, decided := b.worlds, b.decided
	b.busy, b.worlds, b.decided = false, nil, false
	for _, f := range worlds {
		l.inform(Recorded{f.Number, err})
	}
	if decided {
		l.failed(aboutStore, NotStored, err)
	}
}

// store writes the turn's decision before any of it is carried out, if it changes the state.
func (b *book) store(l *Loop) {
	if b.busy {
		return
	}
	d := &l.turn.decided
	l.holds.fail(l, &d.Plan)
	l.alerts.settle(l, d)
	l.turn.phase, l.turn.storing = storing, l.now
	if !d.Plan.Dirty && l.files.Values.Equal(b.state.Values) && l.holds.stored(b) && l.alerts.stored(b) {
		b.journal(l)
		return
	}
	b.busy, b.decided = true, true
	b.write(l)
}

// next is the state after the plan's decision.
func (b *book) next(l *Loop) state.State {
	in, p, current := &l.turn.decided.Input, &l.turn.decided.Plan, b.state
	jobs := maps.Clone(current.Jobs)
	stored := make(map[string]*job.Record, len(current.Jobs))
	for _, rec := range current.Jobs {
		stored[rec.UID] = rec // by UID, since the plan may rename the job
	}
	keep := func(name string, rec *job.Record) {
		// A world may have formed since the plan was made.
		if now := stored[rec.UID]; now != nil && now.World.Generation > rec.World.Generation {
			formed := *rec // copied: the journal says what was decided
			formed.World = now.World.Of(name)
			rec = &formed
		}
		jobs[name] = rec
	}
	for name := range in.Records {
		delete(jobs, name)
	}
	for name, rec := range p.Leaving {
		if forgets(p, rec) {
			keep(name, rec)
		}
	}
	for name, rec := range p.Records {
		keep(name, rec)
	}
	next := current.Next(jobs)
	next.Released, next.Values, next.Conditions = p.Released, l.files.Values, l.holds.lasting(b.seal)
	next.Destroyed = map[string]job.Override{}
	for name, o := range current.Destroyed {
		if _, decided := in.Destroyed[name]; !decided {
			next.Destroyed[name] = o
		}
	}
	maps.Copy(next.Destroyed, p.Destroyed)
	next.Nodes, next.Spent, next.Notifications = p.Nodes, p.Spent, l.alerts.next
	return next
}

// forgets reports whether the plan has a provider forget the job.
func forgets(p *plan.Plan, rec *job.Record) bool {
	return slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return c.UID == rec.UID && isForget(&c) })
}

// journal appends events in their order: a world may have formed since the plan was made.
func (b *book) journal(l *Loop) {
	d := &l.turn.decided
	b.note(slices.Concat(d.Plan.Notices, l.resizes(&d.Input, &d.Plan))...)
	slices.SortStableFunc(b.unwritten, func(x, y job.Notice) int { return x.Time.Compare(y.Time) })
	b.ledger = append(b.ledger, d.Plan.Ledger...)
	writes := b.append(l)
	if l.turn.notices = slices.Clone(b.unwritten); !writes {
		l.act()
	}
}

// append appends what is unwritten to the journal, and reports whether there is something.
func (b *book) append(l *Loop) bool {
	l.word(b.unwritten)
	l.turn.phase = journaling
	if len(b.unwritten) == 0 && len(b.ledger) == 0 {
		return false
	}
	l.do(Journal{l.number(), slices.Clone(b.unwritten), slices.Clone(b.ledger)})
	return true
}

// word gives notices the sentence that the journal keeps beside their reason.
func (l *Loop) word(notices []job.Notice) {
	for i := range notices {
		if n := &notices[i]; n.Message == "" {
			n.Message = l.setup.Words.Sentence(n.Reason)
		}
	}
}

// journalled handles the outcome of a write to the journal.
func (b *book) journalled(l *Loop, e Journal, err error) {
	if err != nil {
		err = fmt.Errorf("journal: %w", err)
	} else {
		b.unwritten, b.ledger = b.unwritten[len(e.Notices):], b.ledger[len(e.Ledger):]
	}
	switch {
	case l.end.stage == waiting:
		if err == nil {
			l.tellNotices(e.Notices)
		}
		l.finish(l.end.plan, cmp.Or(l.end.err, err))
	case err != nil:
		l.holds.Clear(aboutStore, NotStored)
		l.failed(aboutJournal, NotJournaled, err)
	default:
		l.act()
	}
}

// chronicle journals the last decision with its complete input.
func (b *book) chronicle(l *Loop) {
	if b.decision == nil {
		return
	}
	if b.retried {
		l.do(Drop{Chronicle{Number: b.newest}.ID()})
	}
	b.newest, b.retried = l.number(), false
	l.do(Chronicle{b.newest, *b.decision})
	b.decision = nil
}

// chronicled handles the outcome of journaling a decision. Only the newest is retried, since each contains its complete input.
func (b *book) chronicled(l *Loop, e Chronicle, err error) {
	if e.Number != b.newest {
		return
	}
	l.holds.raiseIf(l, err, aboutJournal, NotChronicled)
	if b.retried = err != nil && !l.end.stopped(); b.retried {
		l.again(e, l.now.Add(Rescan))
	}
}

// resized returns a reason for each elastic role whose number of slots differs between two worlds.
func resized(spec *job.Job, before, now *job.World) (parts []job.Reason) {
	for i := range spec.Roles {
		r := &spec.Roles[i]
		members := func(w *job.World) (n int) {
			for _, m := range w.Members {
				if m.Slot.Role == r.Name {
					n++
				}
			}
			return n
		}
		if had, has := members(before), members(now); r.Scaling != nil && had != has {
			parts = append(parts, job.Because(RoleResized, "role", r.Name, "from", strconv.Itoa(had), "to", strconv.Itoa(has),
				"min", strconv.Itoa(r.Scaling.Min), "max", strconv.Itoa(r.Scaling.Max)))
		}
	}
	return parts
}

// worldNotice reports a world that has formed, or one that was found training and is now managed: the job's record
// was lost, or the job is imported.
func worldNotice(address string, w *job.World) job.Notice {
	processes, master := 0, ""
	for _, m := range w.Members {
		processes += m.Processes
	}
	if w.MasterPort > 0 { // a member that was found may not report it
		master = fmt.Sprintf("%s:%d", w.MasterAddr, w.MasterPort)
	}
	code := WorldFormed
	if w.Adopted {
		code = WorldAdopted
	}
	return job.Notice{Time: w.Formed, Type: string(code), Address: address, Reason: job.Because(code, "generation", strconv.Itoa(w.Generation),
		"slots", strconv.Itoa(len(w.Members)), "processes", strconv.Itoa(processes), "master", master)}
}
