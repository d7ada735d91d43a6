package workspace

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/eltrain/eltrain/kube"
	"github.com/eltrain/eltrain/lang"
	pods "github.com/eltrain/eltrain/providers/kubernetes"
	"github.com/eltrain/eltrain/providers/volcano"
)

// Confine does not trust the files to name others outside of the repository that contains them, and of roots.
func (d *Directory) Confine(roots ...string) error {
	for _, path := range append([]string{workTree(d.Path)}, roots...) {
		path, err := resolvedPath(path) // a state need not exist yet
		if err != nil {
			return err
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		d.Within = append(d.Within, path)
	}
	return nil
}

// workTree returns the top directory of the git repository that contains dir, or dir itself outside of any.
func workTree(dir string) string {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return dir
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			return at
		}
		if filepath.Dir(at) == at {
			return dir
		}
	}
}

// trustPlugins is what to do about a kubeconfig that is refused.
const trustPlugins = "Name it in the environment instead, as KUBECONFIG, or use -untrusted=false for files that were reviewed."

// misplaced returns an error for each file that the settings and providers name and that these files are not trusted with.
func (d *Directory) misplaced(cfg *lang.Config) (diags hcl.Diagnostics) {
	if len(d.Within) == 0 {
		return nil
	}
	o := d.options(nil)
	refuse := func(at *hcl.Range, detail string) {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Untrusted files", Detail: detail, Subject: at})
	}
	check := func(argument, path string, at *hcl.Range) bool {
		err := o.Inside(path)
		if err != nil {
			refuse(at, argument+": "+err.Error()+".")
		}
		return err == nil
	}
	kubeconfig := func(path string, at *hcl.Range) {
		if path == "" || !check("kubeconfig", kube.Home(path), at) {
			return
		}
		commands, files, err := kube.Foreign(kube.Home(path))
		if err != nil {
			return // using it returns the error
		}
		for _, command := range commands {
			refuse(at, fmt.Sprintf("The kubeconfig %s, which these files name, runs %q, a plugin. %s", path, command, trustPlugins))
		}
		for _, file := range files {
			check("kubeconfig "+path, file, at)
		}
	}
	state := cfg.Settings.State
	if state.Path != "" {
		check("path", state.Path, writtenIn(cfg, "path", "eltrain", "state"))
	}
	kubeconfig(state.Kubeconfig, writtenIn(cfg, "kubeconfig", "eltrain", "state"))
	for _, p := range cfg.Providers {
		at := writtenIn(cfg, "kubeconfig", "provider "+p.Name)
		switch c := p.Value.(type) {
		case pods.Config:
			kubeconfig(c.Kubeconfig, at)
		case volcano.Config:
			kubeconfig(c.Kubeconfig, at)
		}
	}
	return diags
}

// writtenIn returns the range of an argument in the blocks that the words name, from the outermost to the innermost: a type, and
// perhaps the label after it. It is nil if the argument is not written there.
func writtenIn(cfg *lang.Config, argument string, blocks ...string) *hcl.Range {
	for _, file := range cfg.Files {
		body, _ := file.Body.(*hclsyntax.Body)
		if at := find(body, argument, blocks); at != nil {
			return at
		}
	}
	return nil
}

func find(body *hclsyntax.Body, argument string, blocks []string) *hcl.Range {
	switch {
	case body == nil:
		return nil
	case len(blocks) == 0 && body.Attributes[argument] != nil:
		return body.Attributes[argument].SrcRange.Ptr()
	case len(blocks) == 0:
		return nil
	}
	for _, b := range body.Blocks {
		if b.Type != blocks[0] && (len(b.Labels) == 0 || b.Type+" "+b.Labels[0] != blocks[0]) {
			continue
		}
		if at := find(b.Body, argument, blocks[1:]); at != nil {
			return at
		}
	}
	return nil
}
