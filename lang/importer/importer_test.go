package importer

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	"pgregory.net/rapid"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
)

var update = flag.Bool("update", false, "write what the golden tests give to their files")

// kubernetesConfig stands in for the provider's own type.
type kubernetesConfig struct {
	Namespace string `hcl:"namespace,optional" doc:"The namespace."`
}

// volcanoConfig stands in for the other provider's.
type volcanoConfig struct {
	Namespace string `hcl:"namespace,optional" doc:"The namespace."`
	Queue     string `hcl:"queue,optional" doc:"The queue."`
}

// mustBeValid holds what was written against the language and its canonical format.
func mustBeValid(t rapid.TB, src []byte) []job.Job {
	t.Helper()
	o := lang.Options{Providers: map[string]reflect.Type{
		"kubernetes": reflect.TypeFor[kubernetesConfig](), "volcano": reflect.TypeFor[volcanoConfig](),
	}}
	cfg, diags := lang.Parse(map[string][]byte{"job.hcl": src}, o)
	if len(diags) > 0 {
		t.Fatalf("validate: %v\n%s", diags, src)
	}
	clean, diags := lang.Format(src, "job.hcl")
	if diags.HasErrors() || !bytes.Equal(clean, src) {
		t.Fatalf("fmt would change it: %v\n%s", diags, cmp.Diff(string(src), string(clean)))
	}
	return cfg.Jobs
}

// told are diagnostics as "line: summary: detail".
func told(diags hcl.Diagnostics) string {
	var b strings.Builder
	for _, d := range diags {
		kind := "warning"
		if d.Severity == hcl.DiagError {
			kind = "error"
		}
		fmt.Fprintf(&b, "%d: %s: %s: %s\n", d.Subject.Start.Line, kind, d.Summary, d.Detail)
	}
	return b.String()
}

// TestGolden imports each directory of testdata: out.hcl is what is written, warnings.txt what is told.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*/in.yaml")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d cases: %v", len(files), err)
	}
	for _, file := range files {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r := Manifests("in.yaml", bytes.NewReader(src), Checks{})
			golden(t, filepath.Join(dir, "out.hcl"), string(r.HCL))
			golden(t, filepath.Join(dir, "warnings.txt"), told(r.Diagnostics))
			mustBeValid(t, r.HCL)
		})
	}
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
		t.Fatalf("%v (go test ./lang/importer -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
