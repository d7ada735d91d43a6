package workspace

import (
	"maps"
	"slices"
	"testing"

	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
)

// Only removed blocks with destroy = false concern the planner: a job by name and address, a module by address and the prefix of
// its jobs' names, and the same for what they were before a move.
func TestRemovedBlocksReachThePlanner(t *testing.T) {
	b := BlocksOf(&lang.Config{Removed: []lang.Removed{{Job: "a", Address: "job.a", Was: []lang.Removed{{Job: "o", Address: "job.o"}, {Module: "p-", Address: "module.p"}}}, {Job: "b", Address: "job.b", Destroy: true}, {Module: "m-", Address: "module.m"}, {Module: "n-", Destroy: true}}})
	if !maps.Equal(b.Forget, map[string]bool{"a": true, "o": true}) || !slices.Equal(b.ForgetDeclared, []string{"job.o", "job.a"}) || !slices.Equal(b.ForgetWithin, []plan.Module{{Address: "module.p", Begins: "p-"}, {Address: "module.m", Begins: "m-"}}) {
		t.Errorf("forgotten are %v, %v and all within %v", b.Forget, b.ForgetDeclared, b.ForgetWithin)
	}
}
