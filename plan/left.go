package plan

import (
	"fmt"
	"maps"
	"slices"
)

// Left are the jobs that are declared no more and go on only because of Keep, each with that as its reason.
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
		left = append(left, Wait{Job: name, Reasons: []string{fmt.Sprintf(
			"job.%s is not in the files any more, and is left only because of -prune=false: an apply without it removes it.", name)}})
	}
	return left
}
