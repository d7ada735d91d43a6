package kubernetes

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/eltrain/eltrain/job"
)

// testdata/pods/*: a launch and a configuration in YAML, and the expected pod or error.
func TestPodsOfLaunches(t *testing.T) {
	datadriven.Walk(t, filepath.Join("testdata", "pods"), func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var in struct {
				Config Config           `json:"config"`
				Launch job.Launch       `json:"launch"`
				Gated  bool             `json:"gated"`
				Source *job.SourceFiles `json:"source"`
			}
			in.Launch = job.Launch{UID: testUID, Incarnation: 1, Processes: 1, Ranked: true, StopGrace: job.Duration(30 * time.Second), Fingerprint: "f1"}
			if err := yaml.UnmarshalStrict([]byte(d.Input), &in); err != nil {
				d.Fatalf(t, "%v", err)
			}
			of := podContext{
				namespace: "train", version: "1.2.3", anchor: anchor{"gpt-0b0e9", "anchor-uid"}, scheduling: Scheduling{Gated: in.Gated},
			}
			if in.Source != nil {
				in.Launch.Source, of.source = in.Source.Digest, volumeOf(testUID, in.Launch.Slot.Job, in.Source)
			}
			pod, err := in.Config.pod(in.Launch, of)
			if err != nil {
				return err.Error() + "\n"
			}
			switch d.Cmd {
			case "pod":
				return show(t, pod)
			case "spec":
				return show(t, pod.Spec)
			case "command":
				return show(t, pod.Spec.Containers[0].Command)
			case "env":
				return show(t, pod.Spec.Containers[0].Env)
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

func show(t *testing.T, v any) string {
	b, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// After Kubernetes' expansion of $(NAME), strings must be as the user wrote them.
func TestAUsersDollarsStay(t *testing.T) {
	for _, word := range []string{"$(hostname)", "echo $$", "$$(x)", "$", "a$", "$(POD_IP)", "^loss=(?P<loss>\\S+)$", "${HOME}"} {
		if got := expand(literal(word)); got != word {
			t.Errorf("%q arrives as %q", word, got)
		}
	}
}

// expand implements the rule for commands in the API reference: $(NAME) of a known variable is replaced, $$ is a dollar,
// everything else stays.
func expand(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], "$$"):
			out.WriteByte('$')
			i++
		case strings.HasPrefix(s[i:], "$("+envPodIP+")"):
			out.WriteString("10.0.0.1")
			i += len("$("+envPodIP+")") - 1
		default:
			out.WriteByte(s[i])
		}
	}
	return out.String()
}

// The agent must parse its command line back to the configuration.
func TestTheAgentReadsItsCommandLine(t *testing.T) {
	l := job.Launch{
		UID: testUID, Slot: job.Address{Job: "gpt", Role: "worker", Index: 3}, Incarnation: 2, Processes: 8, Ranked: true,
		Program: job.Program{Command: []string{"sh", "-c", "echo $$ $(date)"}, WorkingDir: "src"}, StopGrace: job.Duration(time.Minute), MaxRestarts: 7,
		Checkpoint:   &job.Checkpoint{Dir: "ckpt", Signal: "SIGUSR1", Pattern: `saved (?P<step>\d+)$`},
		Accelerators: &job.Accelerators{Command: []string{"sh", "-c", "echo $(X) $$"}, DCGM: "http://$(X)/"},
	}
	pod, err := Config{Image: "i"}.pod(l, podContext{})
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	for _, word := range pod.Spec.Containers[0].Command[1:] {
		args = append(args, expand(word))
	}
	c, err := job.ParseAgentArgs(args, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	want := agentConfig(l)
	want.Host, want.Command = "10.0.0.1", l.Program.Command
	want.CheckpointPattern, want.Accelerators, want.DCGM = l.Checkpoint.Pattern, l.Accelerators.Command, l.Accelerators.DCGM
	got, _ := json.Marshal(c)
	expected, _ := json.Marshal(want)
	if string(got) != string(expected) {
		t.Errorf("the agent reads\n%s\nwant\n%s", got, expected)
	}
}

func TestAPodsRequestsAreItsLimits(t *testing.T) {
	l := job.Launch{UID: testUID, Slot: job.Address{Job: "gpt", Role: "worker"}, Incarnation: 1,
		Reserved: job.Resources{CPU: 2500, Memory: 4 << 30, Devices: map[string]int{"nvidia.com/gpu": 8}}}
	pod, err := Config{Image: "i"}.pod(l, podContext{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
			if request.IsZero() || request.Cmp(limit) != 0 {
				t.Errorf("container %s requests %s of %s, limit %s: the pod's QoS class is not Guaranteed", c.Name, &request, name, &limit)
			}
		}
	}
	if gpus := pod.Spec.Containers[0].Resources.Limits["nvidia.com/gpu"]; gpus.Value() != 8 {
		t.Errorf("it gets %s GPUs", &gpus)
	}
}
