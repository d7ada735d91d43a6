package plan

import (
	"strconv"

	"github.com/eltrain/eltrain/job"
)

// skipOtherSite excludes a job from the pass if its slots run at another site than the one its provider shows now: nothing is known
// about them, so nothing is decided. Its record stays as it is, and a Wait says what to do.
func (p *pass) skipOtherSite(name string, declared bool) bool {
	rec := p.in.Records[name]
	if rec == nil || !rec.AtOtherSite(p.in.Capabilities[rec.Spec.Provider]) {
		return false
	}
	p.elsewhere[name] = true
	p.out.Records[name] = rec
	p.out.Waits = append(p.out.Waits, Wait{Job: name, Never: true, Reasons: []job.Reason{p.atOtherSite(rec, declared)}})
	return true
}

func (p *pass) atOtherSite(rec *job.Record, declared bool) job.Reason {
	return job.Because(AtOtherSite, "site", rec.Site, "provider", rec.Spec.Provider, "provider_site", p.in.Capabilities[rec.Spec.Provider].Site,
		"declared", strconv.FormatBool(declared))
}

// settleSite records the site where the job is launched, from its first launch on.
func (p *pass) settleSite(w *work) {
	site := p.in.Capabilities[w.spec.Provider].Site
	if w.rec.Site != "" || site == "" || !w.begun() {
		return
	}
	w.rec.Site = site
	p.out.Dirty = true
}

// begun reports whether any slot of the job has ever had an incarnation.
func (w *work) begun() bool {
	for _, s := range w.slots {
		if s.Incarnation > 0 {
			return true
		}
	}
	return false
}
