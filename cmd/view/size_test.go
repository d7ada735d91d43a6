package view

import "testing"

// An edit of an elastic role's replicas changes nothing, so the plan says what to edit instead.
func TestSizeSaysWhatToEditInsteadOfReplicas(t *testing.T) {
	for want, s := range map[string]RoleSize{
		"job.a.worker: 4 slots, scaled within 2..8. replicas = 3 is only where it starts, and does not change it now. For fewer, lower scaling.max.":                                         {Address: "job.a.worker", Replicas: 3, Before: 4, Now: 4, Min: 2, Max: 8},
		"job.a.worker: 2 slots, scaled within 2..8. replicas = 4 is only where it starts, and does not change it now. It grows when there is room; for more in any case, raise scaling.min.": {Address: "job.a.worker", Replicas: 4, Before: 2, Now: 2, Min: 2, Max: 8},
	} {
		if got := s.sentence(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
