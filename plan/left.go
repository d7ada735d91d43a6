package plan

import (
	"maps"
	"slices"

	"github.com/eltrain/eltrain/job"
)

// Left are the jobs that are no longer declared and continue only because of Keep, each with that as its reason.
func Left(in *Input) []Wait {
	if !in.Keep || in.Destroy || in.Refresh {
		return nil
	}
	var left []Wait
	forgotten := in.forgetting()
	for _, name := range slices.Sorted(maps.Keys(in.Records)) {
		if in.declared(name) >= 0 || forgotten[name] || !in.Scope.Touches(name) {
			continue
		}
		left = append(left, Wait{Job: name, Reasons: []job.Reason{job.Because(NotPruned, "job", name)}})
	}
	return left
}
