package apply

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// book is what is recorded, and what is being recorded: one write at a time.
type book struct {
	state  state.State
	names  names // of state
	epoch  uint64
	unsure bool // the last write failed: it may be stored anyway

	busy      bool         // a write or a reread is in flight
	decided   bool         // that write is of a turn's decision
	worlds    []Forming    // that write is of these worlds
	forming   []Forming    // worlds that wait for the next
	seal      *job.Sealer  // nil if nothing is sensitive
	unwritten []job.Notice // that the journal does not have yet
	newest    int          // number of the newest Chronicle
}

func newBook(s Setup) book {
	b := book{epoch: s.Epoch, seal: s.Files.Seal}
	if s.State.Jobs == nil {
		s.State.Jobs = job.Records{}
	}
	b.set(s.State)
	return b
}

// set makes a state the newest, with sensitive values sealed.
func (b *book) set(s state.State) {
	s.Jobs, s.Conditions = b.seal.Records(s.Jobs), sealed(s.Conditions, b.seal)
	b.state, b.names = s, namesOf(s.Jobs)
}

// note queues notices: they are journalled and reported with the next stored turn.
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

// form records worlds and notes them. It returns those of jobs that are not recorded.
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

// recognize handles a reread after a failed write, which may have been stored anyway.
func (b *book) recognize(stored state.State) {
	known := b.state
	ours := stored.Lineage == known.Lineage || known.Lineage == ""
	if ours && stored.Serial == known.Serial+1 && stored.Epoch == b.epoch {
		known.Lineage, known.Serial = stored.Lineage, stored.Serial
	}
	if stored.Serial == 0 {
		known.Serial = 0 // it was removed: its content is known here and is rewritten
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

// write starts the write that is due, or first rereads after a failed one.
func (b *book) write(l *Loop) {
	if b.unsure {
		l.do(Reread{l.number()})
		return
	}
	if b.decided {
		l.do(Store{b.decision(l)})
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

// reread handles the stored state, and continues with the write that waits for it.
func (b *book) reread(l *Loop, o Outcome) {
	stored, read := o.Result.(state.State)
	if o.Err != nil || !read {
		b.failed(l, fmt.Errorf("read the state again: %w", o.Err))
		return
	}
	b.recognize(stored)
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

// failed ends the write in flight, which failed.
func (b *book) failed(l *Loop, err error) {
	worlds, decided := b.worlds, b.decided
	b.busy, b.worlds, b.decided = false, nil, false
	for _, f := range worlds {
		l.inform(Recorded{f.Number, err})
	}
	if decided {
		l.failed(err)
	}
}

// store writes the plan's decision before any of it is done. It writes nothing if nothing changes.
func (b *book) store(l *Loop) {
	if b.busy {
		return
	}
	d := &l.turn.decided
	l.holds.fail(l, &d.Plan)
	l.turn.phase, l.turn.storing = storing, l.now
	if !d.Plan.Dirty && maps.EqualFunc(l.files.Outputs, b.state.Outputs, state.Output.Equal) && l.holds.stored(b) {
		b.journal(l)
		return
	}
	b.busy, b.decided = true, true
	b.write(l)
}

// decision is the state after the plan's decision.
func (b *book) decision(l *Loop) state.State {
	in, p, current := &l.turn.decided.Input, &l.turn.decided.Plan, b.state
	jobs := maps.Clone(current.Jobs)
	for name, rec := range in.Records {
		if delete(jobs, name); forgets(p, rec) {
			jobs[name] = told(p, name, rec)
		}
	}
	stored := make(map[string]*job.Record, len(current.Jobs))
	for _, rec := range current.Jobs {
		stored[rec.UID] = rec // under another name, if the plan moves it
	}
	for name, rec := range p.Records {
		// A world may have formed since the plan was made.
		if now := stored[rec.UID]; now != nil && now.World.Generation > rec.World.Generation {
			formed := *rec // of a job that the plan left alone it is the stored one, which others read
			formed.World = now.World.Of(name)
			rec, p.Records[name] = &formed, &formed
		}
		jobs[name] = rec
	}
	next := current.Next(jobs)
	next.Released, next.Outputs, next.Conditions = p.Released, l.files.Outputs, l.holds.lasting(b.seal)
	return next
}

// told is a record with the incidents that a plan tells of as told: one that drops the record does not say so in it.
func told(p *plan.Plan, name string, rec *job.Record) *job.Record {
	said := *rec
	said.Incidents = slices.Clone(rec.Incidents)
	for i := range said.Incidents {
		x := &said.Incidents[i]
		if slices.ContainsFunc(p.Notices, func(n job.Notice) bool {
			return n.Incident != nil && n.Address == "job."+name && n.Incident.Time.Equal(x.Time)
		}) {
			x.Told, x.Added = true, time.Time{}
		}
	}
	return &said
}

// forgets reports whether the plan has something of the job left to be forgotten by its provider. Its record is kept
// until then: where others share the infrastructure, nobody but the record knows whose the remains are.
func forgets(p *plan.Plan, rec *job.Record) bool {
	return slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return c.UID == rec.UID && isForget(&c) })
}

// journal appends events in their order: a world may have formed since the plan was made.
func (b *book) journal(l *Loop) {
	d := &l.turn.decided
	b.unwritten = slices.Concat(b.unwritten, d.Plan.Notices, l.removals(&d.Input, &d.Plan))
	slices.SortStableFunc(b.unwritten, func(x, y job.Notice) int { return x.Time.Compare(y.Time) })
	for i := range b.unwritten {
		if n := &b.unwritten[i]; n.Message == "" {
			n.Message = l.setup.Words.Sentence(n.Reason)
		}
	}
	d.Plan.Notices = slices.Clone(b.unwritten)
	l.turn.phase = journaling
	if len(b.unwritten) == 0 {
		l.act()
		return
	}
	l.do(Journal{l.number(), d.Plan.Notices})
}

// journalled handles the outcome of a journal write.
func (b *book) journalled(l *Loop, e Journal, err error) {
	if err != nil {
		l.failed(fmt.Errorf("journal: %w", err))
		return
	}
	b.unwritten = b.unwritten[len(e.Notices):]
	l.act()
}

// chronicle journals a decision with all that it was made from.
func (b *book) chronicle(l *Loop, d Decision) {
	b.newest = l.number()
	l.do(Chronicle{b.newest, d})
}

// chronicled takes in whether a decision could be journalled. The newest is tried again, and no other: each is as large as all
// that it was made from.
func (b *book) chronicled(l *Loop, e Chronicle, err error) {
	l.holds.raiseIf(l, err, aboutJournal, NotChronicled)
	if err != nil && e.Number == b.newest && !l.end.stopped() {
		l.again(e, l.now.Add(Rescan))
	}
}

// resized are the elastic roles that have more or fewer slots in a world than in the one before.
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

// worldNotice reports a world that was formed, or that was found training and is managed from now on. The latter
// happens when the record of a job was lost, or when it is imported.
func worldNotice(address string, w *job.World) job.Notice {
	processes, master := 0, ""
	for _, m := range w.Members {
		processes += m.Processes
	}
	if w.MasterPort > 0 { // a member that was found may have no word on it
		master = fmt.Sprintf("%s:%d", w.MasterAddr, w.MasterPort)
	}
	code := WorldFormed
	if w.Adopted {
		code = WorldAdopted
	}
	return job.Notice{Time: w.Formed, Type: string(code), Address: address, Reason: job.Because(code, "generation", strconv.Itoa(w.Generation),
		"slots", strconv.Itoa(len(w.Members)), "processes", strconv.Itoa(processes), "master", master)}
}
