package lang

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/eltrain/eltrain/job"
)

var update = flag.Bool("update", false, "write what the golden tests give to their files")

// localConfig is a test double for a provider's configuration type.
type localConfig struct {
	Nodes []localNode `hcl:"node,block" doc:"A node."`
	Dir   string      `hcl:"dir,optional" default:".eltrain" doc:"Where logs go."`
}

type localNode struct {
	Name     string `hcl:"name,label" doc:"The node's name."`
	capacity `hcl:",inline"`
	Labels   map[string]string `hcl:"labels,optional" doc:"Labels."`
}

type capacity struct {
	CPU     job.CPU        `hcl:"cpu,required" doc:"Cores."`
	Memory  job.Bytes      `hcl:"memory,optional" default:"1GiB" doc:"Memory."`
	Devices map[string]int `hcl:"devices,optional" doc:"Devices."`
}

type kubernetesConfig struct {
	Context   string `hcl:"context,optional" doc:"The context."`
	Namespace string `hcl:"namespace,optional" default:"default" doc:"The namespace."`
}

func options() Options {
	return Options{
		Version: "0.1.0",
		Providers: map[string]reflect.Type{
			"local":      reflect.TypeFor[localConfig](),
			"kubernetes": reflect.TypeFor[kubernetesConfig](),
		},
	}
}

// parseText parses one file.
func parseText(t *testing.T, src string) (*Config, hcl.Diagnostics) {
	t.Helper()
	return Parse(map[string][]byte{"job.hcl": []byte(src)}, options())
}

// mustParse parses one valid file.
func mustParse(t *testing.T, src string) *Config {
	t.Helper()
	cfg, diags := parseText(t, src)
	if len(diags) > 0 {
		t.Fatalf("unexpected diagnostics:\n%s", render(cfg, diags))
	}
	return cfg
}

// mustFail parses one invalid file and returns its diagnostics as text.
func mustFail(t *testing.T, src string) string {
	t.Helper()
	cfg, diags := parseText(t, src)
	if !diags.HasErrors() {
		t.Fatalf("no error in:\n%s", src)
	}
	return render(cfg, diags)
}

// inJob puts lines into an otherwise valid job.
func inJob(lines string) string {
	return "job \"j\" {\n  role \"worker\" {\n    command = [\"true\"]\n  }\n" + lines + "\n}\n"
}

// inRole puts lines into the role of an otherwise valid job.
func inRole(lines string) string {
	return "job \"j\" {\n  role \"worker\" {\n    command = [\"true\"]\n" + lines + "\n  }\n}\n"
}

func render(cfg *Config, diags hcl.Diagnostics) string {
	var b bytes.Buffer
	w := hcl.NewDiagnosticTextWriter(&b, cfg.Files, 120, false)
	for _, d := range diags {
		if d.Subject == nil || d.Detail == "" {
			fmt.Fprintf(&b, "BAD DIAGNOSTIC without place or detail: %s\n", d.Summary)
			continue
		}
		if err := w.WriteDiagnostic(d); err != nil {
			fmt.Fprintf(&b, "cannot be shown: %v\n", err)
		}
	}
	return b.String()
}

// TestGolden loads each directory of testdata: golden.txt holds the diagnostics; golden.json holds the declared
// jobs, if there are no errors.
func TestGolden(t *testing.T) {
	dirs, err := filepath.Glob("testdata/*/*.hcl")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, file := range dirs {
		dir := filepath.Dir(file)
		if seen[dir] || strings.HasPrefix(dir, "testdata/fuzz") {
			continue
		}
		seen[dir] = true
		t.Run(filepath.Base(dir), func(t *testing.T) {
			cfg, diags := Load(dir, options())
			text := render(cfg, diags)
			if strings.Contains(text, "BAD DIAGNOSTIC") {
				t.Error(text)
			}
			golden(t, filepath.Join(dir, "golden.txt"), text)
			if diags.HasErrors() {
				return
			}
			declared, err := json.MarshalIndent(struct {
				Settings  Settings
				Providers []ProviderConfig
				Jobs      []job.Job
				Outputs   map[string]string `json:",omitempty"`
				Moved     []Moved           `json:",omitempty"`
				Removed   []Removed         `json:",omitempty"`
				Imports   []Import          `json:",omitempty"`
			}{cfg.Settings, cfg.Providers, cfg.Jobs, outputTexts(t, cfg), cfg.Moved, cfg.Removed, cfg.Imports}, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join(dir, "golden.json"), string(declared)+"\n")
		})
	}
	if len(seen) < 3 {
		t.Fatalf("only %d cases found", len(seen))
	}
}

// outputTexts returns a directory's outputs as JSON, by name.
func outputTexts(t *testing.T, cfg *Config) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, o := range cfg.Outputs {
		plain, _ := o.Value.UnmarkDeep()
		text, err := ctyjson.Marshal(plain, plain.Type())
		if err != nil {
			t.Fatalf("output %s: %v", o.Name, err)
		}
		texts[o.Name] = string(text)
	}
	return texts
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test ./lang -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// A directory without declarations must not be taken for "no jobs wanted": a master would end all jobs.
func TestNoConfigurationIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		told  string
	}{
		"no file":           {nil, "There is no .hcl file"},
		"variables only":    {map[string]string{"eltrain.vars": "x = 1\n"}, "There is no .hcl file"},
		"cut to nothing":    {map[string]string{"job.hcl": "", "nodes.hcl": ""}, "are empty"},
		"comments only":     {map[string]string{"job.hcl": "# soon\n"}, "are empty"},
		"a job is gone":     {map[string]string{"job.hcl": "", "nodes.hcl": "locals {}\n"}, ""},
		"too broken to say": {map[string]string{"job.hcl": "job \"x\" {"}, "Unclosed configuration block"},
	} {
		files := map[string][]byte{}
		for name, text := range c.files {
			files[name] = []byte(text)
		}
		_, diags := Parse(files, options())
		if diags.HasErrors() != (c.told != "") || !strings.Contains(diags.Error(), c.told) {
			t.Errorf("%s: %v", name, diags)
		}
		if c.told != "" && len(diags) != 1 && name != "variables only" {
			t.Errorf("%s: it is reported %d times: %v", name, len(diags), diags)
		}
	}
}

// Files that are given take part as those of the directory do, also in one that has none.
func TestGivenFiles(t *testing.T) {
	given := map[string][]byte{"given.hcl": []byte("job \"j\" {\n  role \"worker\" {\n    command = [\"true\"]\n  }\n}\n")}
	dir := t.TempDir()
	if cfg, diags := Load(dir, Options{Given: given}); diags.HasErrors() || len(cfg.Jobs) != 1 {
		t.Errorf("alone: %d jobs, %v", len(cfg.Jobs), diags)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.hcl"), given["given.hcl"], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, diags := Load(dir, Options{Given: given}); !diags.HasErrors() || !strings.Contains(diags.Error(), `"j"`) {
		t.Errorf("beside a job of the same name: %v", diags)
	}
}
