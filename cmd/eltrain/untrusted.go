package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/eltrain/eltrain/kube"
	"github.com/eltrain/eltrain/lang"
	pods "github.com/eltrain/eltrain/providers/kubernetes"
	"github.com/eltrain/eltrain/providers/volcano"
)

// trust is how far a command trusts the files: those of a pull request are not yet reviewed, and it runs with the
// pipeline's secrets.
type trust struct {
	untrusted *bool // nil is not given
	roots     []string
}

func (a *trust) declare(fs *flags) {
	fs.BoolFunc("untrusted", "The files may name no file outside of the repository, and no kubeconfig with plugins. Default where CI is set.", func(text string) error {
		on, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("write true or false")
		}
		a.untrusted = &on
		return nil
	})
	fs.Func("root", "With -untrusted, the file `PATH`, or what is below it, may be named as well. Can be repeated.", func(path string) error {
		if path == "" {
			return errors.New("write -root=PATH")
		}
		a.roots = append(a.roots, path)
		return nil
	})
}

// distrust confines the files as the options say.
func (s *session) distrust(a trust) error {
	ci := s.getenv("CI")
	if a.untrusted == nil && (ci == "" || ci == "false") || a.untrusted != nil && !*a.untrusted {
		return nil
	}
	for _, path := range append([]string{workTree(s.home())}, a.roots...) {
		path, err := resolvedPath(path) // a state need not exist yet
		if err != nil {
			return fmt.Errorf("-untrusted: %w", err)
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		s.within = append(s.within, path)
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
func (s *session) misplaced(cfg *lang.Config) (diags hcl.Diagnostics) {
	if len(s.within) == 0 {
		return nil
	}
	o := s.options(nil)
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
