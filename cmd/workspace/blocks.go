package workspace

import (
	"fmt"
	"maps"
	"slices"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
)

// BlocksOf converts the moved, removed and import blocks of the files for the planner.
func BlocksOf(cfg *lang.Config) plan.Blocks {
	b := plan.Blocks{Directory: cfg.Settings.Directory, Moved: map[string]string{}, Forget: map[string]bool{}}
	for _, m := range cfg.Moved {
		b.Moved[m.From] = m.To
	}
	for _, r := range cfg.Removed {
		addRemoved(&b, r)
	}
	for _, i := range cfg.Imports {
		b.Imports = append(b.Imports, plan.Import{To: i.To, ID: i.ID})
	}
	return b
}

// addRemoved adds a removed block to b. One with destroy = true adds nothing: jobs that are not declared are destroyed anyway.
func addRemoved(b *plan.Blocks, r lang.Removed) {
	for _, was := range r.Was {
		addRemoved(b, was)
	}
	switch {
	case r.Destroy:
	case r.Module != "":
		b.ForgetWithin = append(b.ForgetWithin, plan.Module{Address: r.Address, Begins: r.Module})
	default:
		b.Forget[r.Job] = true
		b.ForgetDeclared = append(b.ForgetDeclared, r.Address)
	}
}

// Lost returns the names of the jobs in before that are no longer in the files, and that no moved or removed block
// mentions. before has their addresses by name.
func Lost(before map[string]string, now *lang.Config) (lost []string) {
	declared, said := AddressesOf(now.Jobs), BlocksOf(now)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, is := declared[name]; !is && said.Moved[name] == "" && !said.Forgets(name, before[name]) {
			lost = append(lost, name)
		}
	}
	return lost
}

// AddressesOf returns the addresses of jobs as declared, by name.
func AddressesOf(jobs []job.Job) map[string]string {
	addresses := map[string]string{}
	for i := range jobs {
		addresses[jobs[i].Name] = jobs[i].Address
	}
	return addresses
}

// DeclaredAs returns the addresses under which recorded jobs were declared, by name.
func DeclaredAs(records job.Records) map[string]string {
	addresses := map[string]string{}
	for name, rec := range records {
		addresses[name] = rec.Spec.Address
	}
	return addresses
}

// Misnamed finds the first removed block with destroy = false that matches no job, while other jobs are destroyed: with a
// wrong address, the job that it should keep is among them. there has the existing jobs' addresses by name.
func Misnamed(cfg *lang.Config, there map[string]string, ended []string) (detail string, at job.Source) {
	if len(ended) == 0 || cfg.Invalid {
		return "", at
	}
	for _, r := range cfg.Removed {
		b := plan.Blocks{Forget: map[string]bool{}}
		addRemoved(&b, r)
		if r.Destroy || slices.ContainsFunc(slices.Collect(maps.Keys(there)), func(name string) bool { return b.Forgets(name, there[name]) }) {
			continue
		}
		return fmt.Sprintf("The removed block at %s:%d keeps %s running, but nothing has that address. Destroyed, because no longer in the files: %s. "+
			"If the block was meant to keep it, correct the address. If the block is no longer needed, remove it.", r.Source.File, r.Source.Line, r.Address, SeveralJobs(ended)), r.Source
	}
	return "", at
}

// SeveralJobs names the first job and counts the others.
func SeveralJobs(names []string) string {
	text := "job." + names[0]
	if more := len(names) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
