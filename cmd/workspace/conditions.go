package workspace

import (
	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
)

// resized returns the numbers of running slots, by job and role, of the jobs whose size differs from the declared one. Only on
// these are the files' conditions checked: other failures were reported when the files were read.
func resized(cfg *lang.Config, records job.Records) map[string]map[string]int {
	slots := map[string]map[string]int{}
	for i := range cfg.Jobs {
		j := &cfg.Jobs[i]
		rec := records[j.Name]
		if rec == nil || rec.Phase != job.JobRunning && rec.Phase != job.JobDegraded {
			continue
		}
		for k := range j.Roles {
			if n, known := rec.Counts[j.Roles[k].Name]; known && n != j.Roles[k].Replicas {
				slots[j.Name] = rec.Counts
			}
		}
	}
	return slots
}

// Unmet returns the files' conditions that running jobs do not satisfy.
func Unmet(cfg *lang.Config, records job.Records) hcl.Diagnostics {
	slots := resized(cfg, records)
	if len(slots) == 0 || cfg.Invalid {
		return nil
	}
	return cfg.CheckObserved(slots)
}

// unmetOn returns the conditions that the given numbers of slots do not satisfy as warnings, without the values in them: a
// watch reports a condition once, not each time that these differ.
func unmetOn(cfg *lang.Config, slots map[string]map[string]int) []view.Diagnostic {
	var plain hcl.Diagnostics
	for _, d := range cfg.CheckObserved(slots) {
		plain = append(plain, &hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: d.Summary, Detail: d.Detail, Subject: d.Subject})
	}
	return view.DiagnoseHCL(plain, cfg.Files)
}
