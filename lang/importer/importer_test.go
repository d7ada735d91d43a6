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

// kubernetesConfig is a test double for the provider's configuration type.
type kubernetesConfig struct {
	Namespace string `hcl:"namespace,optional" doc:"The namespace."`
}

// volcanoConfig is the same for the volcano provider.
type volcanoConfig struct {
	Namespace string `hcl:"namespace,optional" doc:"The namespace."`
	Queue     string `hcl:"queue,optional" doc:"The queue."`
}

// mustBeValid checks that src is valid and in canonical format, and returns its jobs.
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

// reported formats diagnostics as "line: summary: detail".
func reported(diags hcl.Diagnostics) string {
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

// TestGolden imports each directory of testdata: out.hcl holds the result, warnings.txt the diagnostics.
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
			golden(t, filepath.Join(dir, "warnings.txt"), reported(r.Diagnostics))
			mustBeValid(t, r.HCL)
		})
	}
}

// What is mounted in memory at /dev/shm is the role's shm, with the size that Kubernetes gives it. Its volume does not stay behind.
func TestMemoryAtDevShmIsSharedMemory(t *testing.T) {
	const pod = `{spec: {containers: [{name: c, image: i, command: [x], resources: {limits: {memory: 4Gi}}, volumeMounts: [{name: d, mountPath: /dev/shm}]}], volumes: [{name: d, emptyDir: {%s}}]}}`
	for dir, want := range map[string]job.Bytes{
		"medium: Memory, sizeLimit: 2Gi": 2 << 30, "medium: Memory": 4 << 30,
		"medium: Memory, sizelimit: 2Gi": 0, "sizeLimit: 2Gi": 0, // not in memory, or no field of Kubernetes
	} {
		in := strings.Replace(least, "{spec: {containers: [{name: c, image: i, command: [x]}]}}", fmt.Sprintf(pod, dir), 1)
		result := Manifests("in.yaml", strings.NewReader(in), Checks{})
		role := mustBeValid(t, result.HCL)[0].Roles[0]
		if role.Resources.Shm != want || (role.Pod == nil) != (want > 0) || result.Diagnostics.HasErrors() {
			t.Errorf("emptyDir {%s}: shm is %v, pod %v; %s", dir, role.Resources.Shm, role.Pod, reported(result.Diagnostics))
		}
	}
}

// Without any limit there is no size to import. The volume is left out with a warning.
func TestUnlimitedMemoryAtDevShmIsAWarning(t *testing.T) {
	const pod = `{spec: {containers: [{name: c, image: i, command: [x], volumeMounts: [{name: d, mountPath: /dev/shm}]}], volumes: [{name: d, emptyDir: {%s}}]}}`
	for dir, warned := range map[string]bool{"medium: Memory": true, "medium: Memory, sizeLimit: 0": true, "medium: Memory, sizeLimit: 2Gi": false} {
		in := strings.Replace(least, "{spec: {containers: [{name: c, image: i, command: [x]}]}}", fmt.Sprintf(pod, dir), 1)
		result := Manifests("in.yaml", strings.NewReader(in), Checks{})
		role := mustBeValid(t, result.HCL)[0].Roles[0]
		told := reported(result.Diagnostics)
		if strings.Contains(told, `volumes[0]: Shared memory without a size`) != warned || strings.Contains(told, `resources { shm = "8GiB" }`) != warned {
			t.Errorf("emptyDir {%s}: %s", dir, told)
		}
		if role.Pod != nil || (role.Resources.Shm == 0) != warned || result.Diagnostics.HasErrors() {
			t.Errorf("emptyDir {%s}: shm is %v, pod %v; %s", dir, role.Resources.Shm, role.Pod, told)
		}
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
