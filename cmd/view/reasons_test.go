package view

import "github.com/eltrain/eltrain/job"

// said are reasons in somebody's own words.
func said(texts ...string) []job.Reason {
	reasons := make([]job.Reason, len(texts))
	for i, text := range texts {
		reasons[i] = job.Because(job.Verbatim, "message", text)
	}
	return reasons
}
