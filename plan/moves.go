package plan

import (
	"maps"
	"slices"

	"github.com/eltrain/eltrain/job"
)

// followMoves applies moved blocks: it renames jobs in the records and in the snapshot, and the rest of the pass uses the new
// names only. What runs keeps the name that it was launched under; see job.Record.Launched.
//
// If a job of the new name already exists, the move is ambiguous. Both jobs continue as they are, and a Wait says so: nothing
// is destroyed because of a mistake in a name.
func (p *pass) followMoves() {
	for _, from := range slices.Sorted(maps.Keys(p.in.Moved)) {
		old, to := p.in.Records[from], p.in.Moved[from]
		switch {
		case old == nil:
		case p.in.Records[to] != nil:
			p.kept[from] = true
			p.out.Waits = append(p.out.Waits, Wait{Job: from, Never: true, Reasons: []job.Reason{job.Because(MoveBlocked, "job", from, "to", to)}})
		default:
			p.rename(from, to)
		}
	}
}

// rename renames a recorded job. The input is shared with others, so what changes is copied.
func (p *pass) rename(from, to string) {
	old := p.in.Records[from]
	records := maps.Clone(p.in.Records)
	delete(records, from)
	records[to] = old.Renamed(from, to)
	p.in.Records = records
	if p.in.Rerun[from] {
		rerun := maps.Clone(p.in.Rerun)
		rerun[to] = true
		p.in.Rerun = rerun
	}
	if world, seen := p.in.Snapshot.Worlds[from]; seen {
		worlds := maps.Clone(p.in.Snapshot.Worlds)
		delete(worlds, from)
		worlds[to] = world.Of(to)
		p.in.Snapshot.Worlds = worlds
	}
	p.relabel(old.UID, to)
	p.movedFrom[to] = from
	p.out.Dirty = true
}

// relabel renames a job's incarnations in the snapshot.
func (p *pass) relabel(uid, name string) {
	p.in.Snapshot.Incarnations = p.in.Snapshot.Incarnations.Changed(uid, func(inc *job.Incarnation) { inc.Slot.Job = name })
}

// launchName is the name under which a new job is launched, "" for its own: a job that was moved away from the name, or
// forgotten, may still run under it.
func (p *pass) launchName(name, uid string) string {
	if !p.nameInUse(name, uid) {
		return ""
	}
	return suffixedName(name, uid)
}

// suffixedName is the launch name of a job whose own name is in use. It depends only on name and UID, so that what runs under it is
// found again without the state.
func suffixedName(name, uid string) string {
	const most, part = 63, 8 // bytes: of a name (see job.ValidName), and of a UID to distinguish two jobs
	return name[:min(len(name), most-part-1)] + "-" + uid[:min(len(uid), part)]
}

func (p *pass) nameInUse(name, uid string) bool {
	for other, rec := range p.in.Records {
		if rec.UID != uid && other != name && rec.LaunchedAs(other) == name {
			return true
		}
	}
	for other, released := range p.released {
		if other != uid && released.Name == name {
			return true
		}
	}
	return false
}

// emitJob writes the change of the job itself: its settings, its name, its import.
func (p *pass) emitJob(w *work) {
	c := Change{Action: Update, Job: w.name, UID: w.rec.UID, Fields: w.changed, From: p.movedFrom[w.name], Import: w.imported}
	if len(w.changed) == 0 || w.rec.Phase == "" || w.rec.Phase.Ended() {
		c.Action, c.Fields = NoOp, nil
		if c.From == "" && c.Import == "" {
			return
		}
	}
	p.out.Changes = append(p.out.Changes, c)
}
