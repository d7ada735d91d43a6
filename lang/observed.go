package lang

import (
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/job"
)

// postconditions are those of one job, with what they were first evaluated in.
type postconditions struct {
	job    job.Job
	tree   *tree // what of the job is known
	blocks []conditionBlock
	scope  scope
	ctx    *hcl.EvalContext
	owner  *loader
}

// CheckObserved holds the postconditions and checks against the jobs as they run: slots gives by job and role how many
// slots there are, which takes the place of replicas. Jobs that are not in it are taken as declared, and their
// postconditions are not evaluated again. Errors are of postconditions, warnings of checks. It wants a Config of Load or
// Parse that had no errors, and one caller at a time.
func (c *Config) CheckObserved(slots map[string]map[string]int) hcl.Diagnostics {
	l := c.loader
	if l == nil {
		return nil // it was made of a saved plan: what held then was checked then
	}
	l.meter.reset()
	l.diags, l.observed = nil, slots
	defer func() { l.observed = nil }()
	for i := range l.postconditions {
		if p := &l.postconditions[i]; slots[p.job.Name] != nil {
			p.owner.requirePost(p)
		}
	}
	l.everyModule((*loader).checks)
	return l.finish()
}

// requirePost evaluates a job's postconditions. self is the job as it is declared, or observed.
func (l *loader) requirePost(p *postconditions) []verdict {
	ctx := p.ctx.NewChild()
	ctx.Variables = map[string]cty.Value{"self": l.jobObject(declaration{&p.job, p.tree})}
	return l.require("Job postcondition failed", p.blocks, p.scope, ctx)
}

// asObserved is a job with the number of slots that it has where that is known.
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
