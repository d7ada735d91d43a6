package workspace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/eltrain/eltrain/cmd/planfile"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/kube"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers/local"
)

// ownerOf names a state uniquely among those that share a cluster: "kubernetes ml/team-a", or
// "file HOST:/home/me/jobs/eltrain.state".
func ownerOf(settings lang.State) (string, error) {
	if settings.Type == "kubernetes" {
		access := kube.Access{Kubeconfig: settings.Kubeconfig, Context: settings.Context, Namespace: settings.Namespace}
		_, namespace, err := access.Client(0)
		return "kubernetes " + namespace + "/" + settings.Name, err
	}
	path, err := filepath.Abs(cmp.Or(settings.Path, DefaultState))
	if err != nil {
		return "", fmt.Errorf("find the state: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name this machine: %w", err)
	}
	return "file " + host + ":" + path, nil
}

// HomeOf names where a state is kept, the same from any working directory.
func HomeOf(settings lang.State) (string, error) {
	if settings.Type == "kubernetes" {
		return ownerOf(settings)
	}
	path, err := resolvedPath(cmp.Or(settings.Path, DefaultState))
	if err != nil {
		return "", fmt.Errorf("find the state: %w", err)
	}
	return "file " + path, nil
}

// resolvedPath returns an absolute path without symbolic links in its directory. The file need not exist.
func resolvedPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path))
	}
	return path, nil
}

// PlaceOf names where a plan's local jobs run: the job directory and that of run-time files, without symbolic links. It is ""
// for a plan without local jobs, which can be carried out elsewhere.
func PlaceOf(in *plan.Input) (string, error) {
	here := slices.ContainsFunc(in.Jobs, func(j job.Job) bool { return j.Provider == local.Name })
	for _, rec := range in.Records {
		here = here || rec.Spec.Provider == local.Name
	}
	if !here {
		return "", nil
	}
	dir, err := filepath.Abs(JobDirectory)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", fmt.Errorf("find the job directory: %w", err)
	}
	runs := RunDirectory
	if !filepath.IsAbs(runs) {
		runs = filepath.Join(dir, runs)
	}
	if runs, err = resolvedPath(runs); err != nil {
		return "", fmt.Errorf("find the directory of run-time files: %w", err)
	}
	return dir + ", with run-time files in " + runs, nil
}

// EncodeProviders returns the providers' blocks as a saved plan has them.
func EncodeProviders(all []lang.ProviderConfig) (encoded []planfile.Provider, err error) {
	for _, p := range all {
		text, err := json.Marshal(p.Value)
		if err != nil {
			return nil, fmt.Errorf("the block of provider %q: %w", p.Name, err)
		}
		encoded = append(encoded, planfile.Provider{Name: p.Name, Config: text})
	}
	return encoded, nil
}

// DecodeProviders is the inverse of EncodeProviders.
func DecodeProviders(encoded []planfile.Provider) (all []lang.ProviderConfig, err error) {
	known := ProviderTypes()
	for _, p := range encoded {
		t := known[p.Name]
		switch {
		case t == nil:
			return nil, fmt.Errorf("provider %q is unknown here", p.Name)
		case slices.ContainsFunc(all, func(c lang.ProviderConfig) bool { return c.Name == p.Name }):
			return nil, fmt.Errorf("provider %q has two blocks", p.Name)
		}
		value := reflect.New(t)
		if err := json.Unmarshal(p.Config, value.Interface()); err != nil {
			return nil, fmt.Errorf("the block of provider %q: %w", p.Name, err)
		}
		all = append(all, lang.ProviderConfig{Name: p.Name, Value: value.Elem().Interface()})
	}
	return all, nil
}
