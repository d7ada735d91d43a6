package plan

import "fmt"

// leave takes a job out of the pass whose slots run at another site than the one that its provider shows now: nothing is
// known of them, so nothing about them is decided. Its record stays as it is, and a Wait says what to do.
func (p *pass) leave(name string, declared bool) bool {
	rec := p.in.Records[name]
	if rec == nil || rec.Site == "" {
		return false
	}
	site := p.in.Capabilities[rec.Spec.Provider].Site
	if site == "" || site == rec.Site {
		return false
	}
	p.elsewhere[name] = true
	p.out.Records[name] = rec
	what := "Point the provider back there"
	if declared {
		what += ", or destroy the job there first"
	} else {
		what += " to have the job destroyed"
	}
	what += "; or, where that is no more, as a namespace that was deleted, take it out of the state with eltrain state rm"
	p.out.Waits = append(p.out.Waits, Wait{Job: name, Never: true, Reasons: []string{
		fmt.Sprintf("It was launched at %s, and its provider %q is at %s now: it is left as it is. %s.", rec.Site, rec.Spec.Provider, site, what)}})
	return true
}

// settleSite records where the job is launched, from its first launch on.
func (p *pass) settleSite(w *work) {
	site := p.in.Capabilities[w.spec.Provider].Site
	if w.rec.Site != "" || site == "" || !w.begun() {
		return
	}
	w.rec.Site = site
	p.out.Dirty = true
}

// begun tells whether anything of the job was ever to be launched.
func (w *work) begun() bool {
	for _, s := range w.slots {
		if s.Incarnation > 0 {
			return true
		}
	}
	return false
}
