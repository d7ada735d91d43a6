package plan

import (
	"slices"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/signature"
)

// What an incident quotes of a slot's output: the traceback of the exception that ended the process, or else the last lines.
const (
	tailShown = 5       // lines
	maxTrace  = 8 << 10 // bytes of a traceback: a record has the last incidents of a job
)

// tailKept is how many lines of an exit's output a slot's record keeps.
const tailKept = 20

// diagnose finds the cause of a process's end that is known by its exit, in what it printed, with the signature that tells it. A code
// that the job itself has a verdict on needs no other cause.
func (w *work) diagnose(cause job.Cause, e *job.Exit) (job.Cause, signature.Match) {
	if e == nil || cause != job.ProcessFailed && cause != job.ProcessKilled || w.spec.Heal.Verdict(cause, e.Code) != "" {
		return cause, signature.Match{}
	}
	if w.signatures == nil {
		w.signatures = signature.For(w.spec.Heal.Signatures)
	}
	m, known := w.signatures.Classify(e)
	if known && m.Cause != job.ProcessFailed {
		cause = m.Cause
	}
	return cause, m
}

// quoted is what an incident quotes of an exit's output.
func quoted(e *job.Exit, m signature.Match) []string {
	if len(m.Trace) == 0 {
		return e.Tail[max(0, len(e.Tail)-tailShown):]
	}
	size := 0
	for i, line := range slices.Backward(m.Trace) {
		if size += len(line); size > maxTrace {
			return m.Trace[i+1:]
		}
	}
	return m.Trace
}

// kept is an exit as a slot's record keeps it.
func kept(e *job.Exit) *job.Exit {
	if e == nil || len(e.Tail) <= tailKept {
		return e
	}
	shorter := *e
	shorter.Tail = slices.Clone(e.Tail[len(e.Tail)-tailKept:])
	return &shorter
}

// hintFor is what the newest incident says can be changed about a slot's failure; "" if nothing.
func (w *work) hintFor(s *job.Slot) string {
	n := len(w.rec.Incidents)
	if n == 0 {
		return ""
	}
	for _, fact := range w.rec.Incidents[n-1].Evidence {
		if fact.Code == Signature && fact.Args["slot"] == s.Address.Short() {
			return fact.Args["hint"]
		}
	}
	return ""
}
