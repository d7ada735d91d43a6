package main

import (
	"bytes"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
)

// unmet returns the files' conditions that running jobs do not satisfy. It checks only jobs whose size differs from the
// declared one: other failures were reported when the files were read.
func unmet(cfg *lang.Config, records job.Records) hcl.Diagnostics {
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
	if len(slots) == 0 || cfg.Invalid {
		return nil
	}
	return cfg.CheckObserved(slots)
}

// conditions returns the unmet conditions as warnings by summary. A watch continues in spite of them.
func (m *master) conditions(records job.Records) map[string]string {
	warnings := map[string]string{}
	for _, d := range unmet(m.inForce, records) {
		var text bytes.Buffer
		detail := &hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: d.Summary, Detail: d.Detail, Subject: d.Subject}
		view.WriteDiagnostics(view.Kept(&text), m.redactor.Diagnostics(view.DiagnoseHCL(hcl.Diagnostics{detail}, m.inForce.Files)))
		summary := d.Summary
		if d.Subject != nil {
			summary += ", " + d.Subject.String()
		}
		warnings[summary] = strings.TrimSpace(text.String())
	}
	return warnings
}
