package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/eltrain/eltrain/lang/importer/importertest"
)

const manifest = `apiVersion: batch/v1
kind: Job
metadata: {name: demo, namespace: ml}
spec:
  completionMode: Indexed
  completions: 2
  ttlSecondsAfterFinished: 60
  template:
    spec:
      containers: [{name: c, image: "registry.example/c:1", command: [torchrun, --nnodes=2, train.py]}]
`

func TestParseImport(t *testing.T) {
	const hint = "A command line is imported with"
	for _, c := range []struct{ args, err string }{
		{"job.yaml", ""},
		{"-", ""},
		{"-out=x.hcl job.yaml", ""},
		{"-- torchrun -out=1 train.py", ""},
		{"-out x.hcl -- torchrun train.py", ""},
		{"", "a file is missing"},
		{"--", "a command line is missing"},
		{"job.yaml -- torchrun train.py", "one argument too many"},
		{"a.yaml b.yaml", `"b.yaml" is not expected`},
		{"-outt=x job.yaml", `Did you mean "-out"?`},
		{"torchrun", ""}, // a file may be called so
		{"torchrun --nnodes=2 t.py", "-nnodes. A command line is imported with:\n\n  eltrain import -- torchrun …"},
		{"-out=x.hcl dlrover-run t.py", hint},
		{"/opt/bin/python3.11 -m torch.distributed.run t.py", hint},
	} {
		_, err := parsed[importArgs](&newScreenless("").session, 1, strings.Fields(c.args))
		if err != nil && !strings.Contains(c.err, hint) && strings.Contains(err.Error(), hint) {
			t.Errorf("import %s: %v", c.args, err)
		}
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("import %s: %v, want %q", c.args, err, c.err)
		}
	}
}

// validate accepts imported jobs and fmt leaves them unchanged. Warnings go to standard error.
func TestImportedJobsAreValid(t *testing.T) {
	for name, args := range map[string][]string{
		"manifest": {"import", "-"},
		"command":  {"import", "--", "torchrun", "--nnodes=2:4", "--log-dir=x", "train.py"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			s := newScreenless(manifest)
			if code := s.run(args); code != exitDone {
				t.Fatalf("import ends with %d: %s", code, s.err.String())
			}
			if !strings.Contains(s.err.String(), "Warning: Not imported") {
				t.Errorf("there is no warning about what was not imported: %s", s.err.String())
			}
			valid(t, s.out.Bytes())
		})
	}
}

// refusedManifest has fields that the provider's overlay refuses, or that no pod template has, in an otherwise valid pod.
const refusedManifest = `apiVersion: batch/v1
kind: Job
metadata: {name: demo, namespace: Not_A_Namespace}
spec:
  completionMode: Indexed
  completions: 2
  template:
    metadata:
      labels: {app: x, 5: 6}
    spec:
      activeDeadlineSeconds: 60
      affinity: 7
      nodeSelector: {accelerator: a100}
      containers:
      - name: c
        image: registry.example/c:1
        command: [python3, train.py]
        terminationMessagePath: /dev/x
        imagePullPolicy: Always
        unknownOfContainer: 1
        env: [{name: POD_IP, value: 10.0.0.1}, {name: KEEP, value: "1"}]
      - name: log-shipper
        image: registry.example/l:1
      - {name: istio-proxy}
      initContainers:
      - {name: prepare, image: "registry.example/p:1", unknownOfInit: 1}
`

// A field that the provider refuses is a warning with the field and its line, and everything around it is imported.
func TestWhatTheProviderRefusesIsAWarning(t *testing.T) {
	t.Chdir(t.TempDir())
	s := newScreenless(refusedManifest)
	if code := s.run([]string{"import", "-"}); code != exitDone {
		t.Fatalf("import ends with %d: %s", code, s.err.String())
	}
	told := s.err.String()
	for i, line := range strings.Split(refusedManifest, "\n") {
		for text, path := range map[string]string{
			"Not_A_Namespace":        "metadata.namespace",
			"5: 6":                   `spec.template.metadata.labels["5"]`,
			"activeDeadlineSeconds:": "spec.template.spec.activeDeadlineSeconds",
			"affinity:":              "spec.template.spec.affinity",
			"terminationMessagePath": "spec.template.spec.containers[0].terminationMessagePath",
			"unknownOfContainer":     "spec.template.spec.containers[0].unknownOfContainer",
			"POD_IP":                 "spec.template.spec.containers[0].env[0]",
			"- name: log-shipper":    "spec.template.spec.containers[1]",
			"istio-proxy":            "spec.template.spec.containers[2]",
			"unknownOfInit":          "spec.template.spec.initContainers[0].unknownOfInit",
		} {
			if strings.Contains(line, text) && (!strings.Contains(told, fmt.Sprintf("<stdin> line %d:", i+1)) || !strings.Contains(told, path+": ")) {
				t.Errorf("there is no warning about %s in line %d", path, i+1)
			}
		}
	}
	if t.Failed() || strings.Contains(told, "Go struct") || !strings.Contains(told, "sidecar") {
		t.Fatal(told)
	}
	for _, kept := range []string{`app = "x"`, `accelerator = "a100"`, `imagePullPolicy = "Always"`, `KEEP = "1"`, `name = "prepare"`} {
		if !strings.Contains(strings.Join(strings.Fields(s.out.String()), " "), kept) {
			t.Errorf("%s is lost: %s", kept, s.out.String())
		}
	}
	valid(t, s.out.Bytes())
}

// valid checks that validate accepts a file and fmt leaves it unchanged. The working directory is the test's own.
func valid(t rapid.TB, src []byte) {
	t.Helper()
	if err := os.WriteFile("job.hcl", src, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, check := range [][]string{{"validate"}, {"fmt", "-check"}} {
		s := newScreenless("")
		if code := s.run(check); code != exitDone {
			t.Errorf("%v ends with %d: %s%s\n%s", check, code, s.out.String(), s.err.String(), src)
		}
	}
}

// Imported jobs of every kind are valid, for the provider that runs them too.
func TestImportsOfEachKindAreValid(t *testing.T) {
	for kind, draw := range importertest.Jobs {
		t.Run(kind, func(t *testing.T) {
			t.Chdir(t.TempDir())
			rapid.Check(t, func(t *rapid.T) {
				src := draw(t)
				t.Logf("%s", src)
				s := newScreenless(string(src))
				if code := s.run([]string{"import", "-"}); s.out.Len() == 0 && code != exitError {
					t.Fatalf("import ends with %d: %s", code, s.err.String())
				}
				if s.out.Len() > 0 {
					valid(t, s.out.Bytes())
				}
			})
		})
	}
}

func TestImportIntoAFileOverwritesNone(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.yaml"), filepath.Join(dir, "job.hcl")
	if err := os.WriteFile(in, []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newScreenless("")
	if code := s.run([]string{"import", in, "-out=" + out}); code != exitDone || s.out.Len() > 0 {
		t.Fatalf("import ends with %d: %s%s", code, s.out.String(), s.err.String())
	}
	before, err := os.ReadFile(out)
	if err != nil || !strings.Contains(string(before), `job "demo"`) {
		t.Fatalf("%s is written: %v", before, err)
	}
	s = newScreenless("")
	if code := s.run([]string{"import", "-out=" + out, "--", "torchrun", "train.py"}); code != exitError || !strings.Contains(s.err.String(), "already exists") {
		t.Errorf("import ends with %d: %s", code, s.err.String())
	}
	if after, _ := os.ReadFile(out); string(after) != string(before) {
		t.Errorf("it was overwritten with %s", after)
	}
}

func TestImportOfNothingFails(t *testing.T) {
	for name, input := range map[string]string{
		"other kinds": "apiVersion: v1\nkind: Service\nmetadata: {name: x}\n",
		"not YAML":    "a: [\n",
		"empty":       "",
	} {
		s := newScreenless(input)
		if code := s.run([]string{"import", "-"}); code != exitError || s.out.Len() > 0 || !strings.Contains(s.err.String(), "Error:") {
			t.Errorf("%s: import ends with %d: %s%s", name, code, s.out.String(), s.err.String())
		}
	}
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.yaml")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{dir, empty} {
		s := newScreenless("")
		if code := s.run([]string{"import", file}); code != exitError || !strings.Contains(s.err.String(), "  on "+file+"\n\n") {
			t.Errorf("import of %s ends with %d, and shows a line that is not there: %s", file, code, s.err.String())
		}
	}
	s := newScreenless("")
	if code := s.run([]string{"import", filepath.Join(t.TempDir(), "nothing.yaml")}); code != exitError || !strings.Contains(s.err.String(), "no such file") {
		t.Errorf("a file that is not there: %d, %s", code, s.err.String())
	}
	t.Chdir(t.TempDir())
	s = newScreenless("")
	if code := s.run([]string{"import", "torchrun"}); code != exitError || !strings.Contains(s.err.String(), "no such file or directory. A command line is imported with:\n\n  eltrain import -- torchrun") {
		t.Errorf("a launcher without --: %d, %s", code, s.err.String())
	}
	// Of two jobs, one cannot be imported: the other is written, and the error is reported.
	s = newScreenless(manifest + "---\n" + strings.Replace(manifest, "completions: 2", "completions: 0", 1))
	if code := s.run([]string{"import", "-"}); code != exitError || !strings.Contains(s.out.String(), `job "demo"`) {
		t.Errorf("half of a file: %d, %s%s", code, s.out.String(), s.err.String())
	}
}
