package lang

import (
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/job"
)

// postconditions are those of one job, with the scope and context of their first evaluation.
type postconditions struct {
	job    job.Job
	tree   *tree // has what is unknown of the job
	blocks []conditionBlock
	scope  scope
	ctx    *hcl.EvalContext
	owner  *loader
}

// CheckObserved evaluates postconditions and check blocks on the running jobs: slots has the number of slots by job and
// role, which replaces replicas. Other jobs are taken as declared, and their postconditions are not evaluated again.
// Postconditions give errors, checks give warnings. The Config must come from Load or Parse without errors, and must not be
// used concurrently.
func (c *Config) CheckObserved(slots map[string]map[string]int) hcl.Diagnostics {
	l := c.loader
	if l == nil {
		return nil // from a saved plan, whose conditions were checked when it was made
	}
	l.meter.reset()
	l.diags, l.observed = nil, slots
	defer func() { l.observed = nil }()
	for i := range l.postconditions {
		if p := &l.postconditions[i]; slots[p.job.Name] != nil {
			p.owner.requirePost(p)
		}
	}
	l.eachModule((*loader).checks)
	return l.finish()
}

// requirePost evaluates a job's postconditions. self is the job as declared or, in CheckObserved, as observed.
func (l *loader) requirePost(p *postconditions) []verdict {
	ctx := p.ctx.NewChild()
	ctx.Variables = map[string]cty.Value{"self": l.jobObject(declaration{&p.job, p.tree})}
	return l.require("Job postcondition failed", p.blocks, p.scope, ctx)
}

// asObserved returns the job with the observed numbers of slots, as far as known.
func (l *loader) asObserved(j *job.Job) *job.Job {
	counts := l.observed[j.Name]
	if counts == nil {
		return j
	}
	seen := *j
	seen.Roles = slices.Clone(j.Roles)
	for i := range seen.Roles {
		if n, known := counts[seen.Roles[i].Name]; known {
			seen.Roles[i].Replicas = n
		}
	}
	return &seen
}
