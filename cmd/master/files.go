package master

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/providers/local"
)

func (m *Master) watchFiles() (*apply.FileWatcher, error) {
	m.cautionSwap()
	files, err := apply.WatchFiles(m.o.Directory.Path, m.o.Log)
	if paths := m.o.Directory.Watched(m.o.Workspace.Config.Further()); err == nil && paths != nil {
		m.further = paths[1:]
		files.Further(m.further)
	}
	return files, err
}

// cautionSwap warns about files that would be left behind if the job directory, a link, was pointed elsewhere.
func (m *Master) cautionSwap() {
	real, err := filepath.EvalSymlinks(m.o.Directory.Path)
	if err != nil || real == filepath.Clean(m.o.Directory.Path) {
		return
	}
	settings := m.o.Workspace.Config.Settings.State
	var left []string
	if !filepath.IsAbs(workspace.RunDirectory) {
		left = append(left, workspace.RunDirectory)
	}
	if path := cmp.Or(settings.Path, workspace.DefaultState); settings.Type != "kubernetes" && !filepath.IsAbs(path) {
		left = append(left, path)
	}
	if len(left) == 0 {
		return
	}
	m.o.Diagnose(view.Caution("The job directory is a symbolic link", fmt.Sprintf(
		"%s points to %s. When the link is replaced, as git-sync does, %s stay in the old directory and may be deleted with it. Keep them elsewhere: set ELTRAIN_DATA_DIR, and path in state \"file\" { }. See docs/gitops.md.",
		m.o.Directory.Path, real, strings.Join(left, " and "))))
}

// reload reads the files again, and watches those that they now refer to. After an error the configuration in force stays.
func (m *Master) reload(ctx context.Context, files *apply.FileWatcher) (apply.Files, error) {
	now, err := m.o.Files.Read(ctx)
	switch {
	case err != nil:
		return apply.Files{}, err
	case now.Unsteady != nil:
		return apply.Files{}, now.Unsteady
	case len(now.Paths) == 0: // the directory is gone: once it is back everything is read again
		now.Paths = append([]string{m.o.Directory.Path}, m.further...)
	}
	cfg, further := now.Config, now.Paths[1:]
	diags := append(now.Diagnostics, view.DiagnoseHCL(emptied(m.inForce, cfg), nil)...)
	lost := workspace.Lost(workspace.AddressesOf(m.inForce.Jobs), cfg)
	either := slices.Compact(slices.Sorted(slices.Values(slices.Concat(m.further, further))))
	if !view.HaveErrors(diags) && len(lost) > 0 {
		files.Further(either) // the missing jobs may be written to any of them
		if err := files.Still(now.Print, lost); err != nil {
			return apply.Files{}, err
		}
	}
	read := apply.Files{Commit: now.Commit, Caution: now.Caution}
	if view.HaveErrors(diags) {
		files.Further(either) // the correction may be written to any of them
		var text bytes.Buffer
		view.WriteDiagnostics(view.Kept(&text), m.o.Redactor.Diagnostics(diags))
		return read, &apply.UnusableError{Brief: m.o.Redactor.Hide(brief(cfg, diags)), Text: strings.TrimSpace(text.String())}
	}
	files.Further(further)
	read.Notify = cfg.Notified()
	read.Blocks, read.Values = workspace.BlocksOf(cfg), workspace.ValuesOf(cfg)
	if detail, _ := workspace.Misnamed(cfg, workspace.AddressesOf(m.inForce.Jobs), lost); detail != "" {
		read.Misnamed = job.Because(apply.RemovedMisnamed, "message", detail)
	}
	if read.Jobs, err = m.o.Workspace.Sealed(ctx, cfg.Jobs); err != nil {
		return read, err
	}
	if err := reconfigure(m.o.Workspace.Providers, workspace.Configurations(m.o.Workspace.Config), workspace.Configurations(cfg)); err != nil {
		return read, err
	}
	m.inForce, m.further = cfg, further
	m.hooks.set(cfg)
	return read, nil
}

// brief returns the first error in one sentence, with its place in the job directory.
func brief(cfg *lang.Config, diags []view.Diagnostic) string {
	dir := ""
	if len(cfg.Directories) > 0 {
		dir = cfg.Directories[0] + string(filepath.Separator)
	}
	for _, d := range diags {
		if !view.HaveErrors([]view.Diagnostic{d}) {
			continue
		}
		at := d.Place()
		if at != "" {
			at = " on " + strings.TrimPrefix(at, dir)
		}
		return fmt.Sprintf("%s%s: %s", d.Summary, at, strings.Join(strings.Fields(d.Detail), " "))
	}
	return ""
}

// emptied returns an error for each file of zero bytes that was not empty when it was last in force. A person who removes all
// blocks removes the file, or leaves a line in it; zero bytes are left by an editor or a disk that failed midway.
func emptied(before, now *lang.Config) (diags hcl.Diagnostics) {
	if len(before.Directories) == 0 || len(now.Directories) == 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(now.Sizes)) {
		within, err := filepath.Rel(now.Directories[0], name)
		if err != nil || now.Sizes[name] > 0 || before.Sizes[filepath.Join(before.Directories[0], within)] == 0 {
			continue
		}
		diags = append(diags, &hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: within + " is empty",
			Detail: "It was not empty when it was last applied: an editor or a full disk may have truncated it. To remove everything it declared, remove the file.",
		})
	}
	return diags
}

// reconfigure gives the open providers their new configurations; before has those that they were opened with. Only the local
// provider accepts a change. It gets it last, once no other provider had to refuse.
func reconfigure(open map[string]providers.Provider, before, configured map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		_, takes := open[name].(*local.Provider)
		switch {
		case open[name] == nil:
			return fmt.Errorf("provider %q: cannot be added while a master is running: restart the master", name)
		case !takes && !reflect.DeepEqual(before[name], configured[name]):
			return fmt.Errorf("provider %q: its block cannot change while a master is running: restart the master", name)
		}
	}
	for name, value := range configured {
		if p, takes := open[name].(*local.Provider); takes {
			if err := p.SetConfig(value.(local.Config)); err != nil {
				return fmt.Errorf("provider %q: %w", name, err)
			}
		}
	}
	return nil
}

// conditions returns the unmet conditions by summary. A watch continues in spite of them.
func (m *Master) conditions(ctx context.Context, records job.Records) (map[string]string, error) {
	unmet, err := m.o.Files.Check(ctx, m.inForce, records)
	warnings := map[string]string{}
	for _, d := range unmet {
		var text bytes.Buffer
		view.WriteDiagnostics(view.Kept(&text), m.o.Redactor.Diagnostics([]view.Diagnostic{d}))
		summary := d.Summary
		if at := d.Range; at != nil {
			begin, end := hcl.Pos{Line: at.Start.Line, Column: at.Start.Column}, hcl.Pos{Line: at.End.Line, Column: at.End.Column}
			summary += ", " + hcl.Range{Filename: at.Filename, Start: begin, End: end}.String()
		}
		warnings[summary] = strings.TrimSpace(text.String())
	}
	return warnings, err
}
