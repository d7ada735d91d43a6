package plan

import (
	"slices"

	"github.com/eltrain/eltrain/job"
)

// ready reports whether roles that depend on this one may start: its min are up. Ranked slots are up once they are registered,
// since they run only in a world that the dependents may be part of.
func (w *work) ready(role string) bool {
	up, known := w.upCache[role]
	if !known {
		up = w.countReady(role)
		w.upCache[role] = up
	}
	return up
}

func (w *work) countReady(role string) bool {
	r := w.spec.Role(role)
	if r == nil {
		return true
	}
	up := 0
	for _, s := range w.index[role] {
		if w.up(s) || r.Ranked && (s.Phase == job.Registered || s.Phase == job.Suspect) {
			up++
		}
	}
	return up >= w.sizes(r).Min
}

// up reports whether a slot trains or has trained to its end; of a job that is idle, whether it could.
func (w *work) up(s *job.Slot) bool {
	return s.Phase == job.Running || s.Phase == job.Succeeded || s.Phase == job.Registered && w.idle()
}

// startWave is how many waves of other roles have to start before this one.
func (w *work) startWave(r *job.Role) int {
	wave := 0
	for _, dep := range r.DependsOn {
		if d := w.spec.Role(dep); d != nil && !w.ready(dep) {
			wave = max(wave, w.startWave(d)+1)
		}
	}
	return wave
}

// stopWave is the reverse, when the whole job stops, or when roles shrink together: roles that nothing depends on stop first.
func (w *work) stopWave(s *job.Slot) int {
	if !w.ending && (s.Return || !w.paired(s.Address.Role)) {
		return 0
	}
	return w.stopWaveOf(s.Address.Role)
}

func (w *work) stopWaveOf(role string) int {
	wave := 0
	for i := range w.spec.Roles {
		r := &w.spec.Roles[i]
		if slices.Contains(r.DependsOn, role) && w.anyRunning(r.Name) {
			wave = max(wave, w.stopWaveOf(r.Name)+1)
		}
	}
	return wave
}

func (w *work) anyRunning(role string) bool {
	any, known := w.stopCache[role]
	if known {
		return any
	}
	for _, s := range w.index[role] {
		any = any || s.Phase == job.Canceling && len(w.running(s)) > 0
	}
	w.stopCache[role] = any
	return any
}
