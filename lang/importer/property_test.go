package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// harmless matches the fields that are ignored without a warning: what the cluster wrote, and what eltrain's service
// replaces. The documentation has the same list.
var harmless = regexp.MustCompile(`(^|\.)(apiVersion|kind|status|spec\.selector)($|[.[])` +
	`|metadata\.(uid|resourceVersion|generation|creationTimestamp|managedFields|selfLink)|last-applied-configuration` +
	`|labels\["batch\.kubernetes\.io/` +
	`|elasticPolicy\.(rdzvBackend|rdzvPort|rdzvHost|rdzvId|standalone)` +
	`|pytorchReplicaSpecs\.Worker\.template\.spec\.containers\[0\]\.env\[1\]`) // PET_MONITOR_INTERVAL, with a launcher

// leaf is a value that was inserted into a manifest.
type leaf struct{ path, text string }

// mutator inserts unique texts into a document.
type mutator struct {
	t      *rapid.T
	leaves []leaf
}

func (m *mutator) next(path string) string {
	text := fmt.Sprintf("leaf%dx", len(m.leaves))
	m.leaves = append(m.leaves, leaf{path, text})
	return text
}

// visit changes some values of a node, and adds some that no manifest has.
func (m *mutator) visit(n *yaml.Node, path string) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].ShortTag() != "!!merge" {
				m.visit(n.Content[i+1], fieldPath(path, n.Content[i].Value))
			}
		}
		if path != "" && m.chance(6) {
			key := fmt.Sprintf("extra%d", len(m.leaves))
			n.Content = append(n.Content, text(key), text(m.next(fieldPath(path, key))))
		}
	case yaml.SequenceNode:
		for i, c := range n.Content {
			m.visit(c, fmt.Sprintf("%s[%d]", path, i))
		}
	case yaml.ScalarNode:
		if !harmless.MatchString(path) && path != "kind" && n.Anchor == "" && m.chance(8) {
			*n = *text(m.next(path))
		}
	}
}

func (m *mutator) chance(in int) bool { return rapid.IntRange(1, in).Draw(m.t, "chance") == in }

func text(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
}

// TestNothingIsDroppedInSilence changes known manifests at random places. Every inserted text must be in the
// output, or a warning must name it or a value that contains it.
func TestNothingIsDroppedInSilence(t *testing.T) {
	docs := goldenDocuments(t)
	rapid.Check(t, func(t *rapid.T) {
		var doc yaml.Node
		if err := yaml.Unmarshal(rapid.SampledFrom(docs).Draw(t, "manifest"), &doc); err != nil {
			t.Fatal(err)
		}
		m := &mutator{t: t}
		m.visit(doc.Content[0], "")
		src, err := yaml.Marshal(&doc)
		if err != nil {
			t.Fatal(err)
		}
		r := Manifests("in.yaml", bytes.NewReader(src), Checks{})
		checkResult(t, r)
		for _, l := range m.leaves {
			if !strings.Contains(string(r.HCL), l.text) && !harmless.MatchString(l.path) && !r.names(l) {
				t.Fatalf("%s = %s is dropped in silence\n%s\n%s\n%s", l.path, l.text, src, r.HCL, reported(r.Diagnostics))
			}
		}
	})
}

// names reports whether a diagnostic is about a value, a value that contains it, or the whole document.
func (r Result) names(l leaf) bool {
	// A master like the workers becomes one of them, and diagnostics about its template name theirs.
	theirs := strings.Replace(l.path, ".Master.template", ".Worker.template", 1)
	for _, d := range r.Diagnostics {
		path, _, ok := strings.Cut(d.Detail, ": ")
		if ok && (within(l.path, path) || within(theirs, path)) || strings.Contains(d.Detail, l.text) ||
			d.Summary == "Nothing to run" || d.Summary == "Not a job" || d.Summary == "No job to import" {
			return true
		}
	}
	return false
}

func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// goldenDocuments returns the documents of the golden cases that are jobs.
func goldenDocuments(t testing.TB) [][]byte {
	files, err := filepath.Glob("testdata/*/in.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	var out [][]byte
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		dec := yaml.NewDecoder(bytes.NewReader(src))
		for {
			var doc yaml.Node
			if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if doc.Content[0].Kind != yaml.MappingNode {
				continue
			}
			one, err := yaml.Marshal(&doc)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(one), "containers:") || strings.Contains(string(one), "trainer:") {
				out = append(out, one)
			}
		}
	}
	return out
}

// FuzzManifests checks that no input panics or takes long, that diagnostics have a position and a text, and that the
// output is always valid and in canonical format.
func FuzzManifests(f *testing.F) {
	for _, doc := range goldenDocuments(f) {
		f.Add(doc)
	}
	f.Add([]byte("a: &a [*a, <<: *a]\n"))
	f.Add([]byte(least))
	f.Add([]byte(strings.Replace(least, "[x]", `[x, $(JOB_COMPLETION_INDEX), "a$$$(JOB_COMPLETION_INDEX)%{", "$$(A) $$$$", $(A), "$(", "\\0"], env: [{name: A, value: "$$"}, {name: B, value: "$(A)$(C)\\0"}]`, 1)))
	f.Add([]byte("{apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {pytorchReplicaSpecs: {Worker: {}}}}"))
	f.Fuzz(func(t *testing.T, src []byte) {
		start := time.Now()
		r := Manifests("in.yaml", bytes.NewReader(src), Checks{})
		if took := time.Since(start); took > 2*time.Minute {
			t.Errorf("took %s", took)
		}
		checkResult(t, r)
	})
}

// FuzzCommandLine does the same for the words of a command line, and for a script.
func FuzzCommandLine(f *testing.F) {
	f.Add("torchrun --nnodes=2:8 --rdzv-conf=timeout=1 -m a.b $X \"a b\" 'c' && cd x; exec y | z")
	f.Add("cd $(JOB_COMPLETION_INDEX) && export A=$(JOB_COMPLETION_INDEX) RANK=1 && torchrun --nnodes=$(JOB_COMPLETION_INDEX) --rdzv-conf=$(JOB_COMPLETION_INDEX) x.py $(JOB_COMPLETION_INDEX)$$")
	f.Add("cd a && export B=${C:-d} && dlrover-run --node_unit 3 --nnodes=2:$(N) `x` $((1+2)) x.py > y 2>&1 # z")
	f.Fuzz(func(t *testing.T, line string) {
		checkResult(t, CommandLine(strings.Fields(line)))
		checkResult(t, Manifests("in.yaml", strings.NewReader(strings.Replace(least, "[x]", "[sh, -c, "+quoteYAML(line)+"]", 1)), Checks{}))
	})
}

func checkResult(t rapid.TB, r Result) {
	t.Helper()
	for _, d := range r.Diagnostics {
		if d.Subject == nil || d.Summary == "" || d.Detail == "" || d.Subject.Start.Byte > len(r.Files[d.Subject.Filename].Bytes) {
			t.Errorf("diagnostic without position or text: %#v", d)
		}
	}
	if (r.Jobs == 0) != (len(r.HCL) == 0) || r.Jobs == 0 && !r.Diagnostics.HasErrors() {
		t.Errorf("%d jobs in %d bytes, %d diagnostics", r.Jobs, len(r.HCL), len(r.Diagnostics))
	}
	if r.Jobs > 0 {
		if jobs := mustBeValid(t, r.HCL); len(jobs) != r.Jobs {
			t.Errorf("%d jobs are %d", r.Jobs, len(jobs))
		}
	}
}
