package plan

import (
	"maps"
	"slices"

	"github.com/eltrain/eltrain/job"
)

// Left returns a Wait for each job that is no longer declared and continues only because of Keep.
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
