package importer

import (
	"fmt"
	"strings"
	"testing"
)

// A job of 8 pods of each kind without bounds in the manifest: only its command gives some. @ is the command and the
// variables of its container.
var boundless = map[string]string{
	"ElasticJob":  "apiVersion: elastic.iml.github.io/v1alpha1\nkind: ElasticJob\nspec:\n  replicaSpecs: {worker: {replicas: 8, template: {spec: {containers: [{name: main, image: i, @}]}}}}\n",
	"PyTorchJob":  "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec:\n  pytorchReplicaSpecs: {Worker: {replicas: 8, template: {spec: {containers: [{name: pytorch, image: i, @}]}}}}\n",
	"TrainJob":    "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nspec:\n  runtimeRef: {name: r}\n  trainer: {numNodes: 8, image: i, @}\n",
	"Volcano Job": "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nspec:\n  tasks: [{name: worker, replicas: 8, template: {spec: {containers: [{name: main, image: i, @}]}}}]\n",
	"Indexed Job": "apiVersion: batch/v1\nkind: Job\nspec:\n  completionMode: Indexed\n  completions: 8\n  template: {spec: {containers: [{name: main, image: i, @}]}}\n",
}

func TestElasticBoundsOfTheCommand(t *testing.T) {
	for kind, manifest := range boundless {
		for _, c := range []struct {
			command   string // after the launcher
			env       string // NODE_NUM; ElasticJob's operator sets it itself
			min, max  int    // equal: a role of fixed size
			restarts  int    // 0: not checked
			toldPart  string
			fromShell bool
		}{
			{command: "--nnodes=2:8", min: 2, max: 8},
			{command: "--nnodes 3:8", min: 3, max: 8, fromShell: true},
			{command: "--nnodes=2:$NODE_NUM", env: "8", min: 2, max: 8, fromShell: true},
			{command: "--nnodes=2:${NODE_NUM:-1}", env: "8", min: 2, max: 8, fromShell: true},
			{command: "--nnodes=2:$(NODE_NUM)", env: "8", min: 2, max: 8},
			{command: "--nnodes=$NODE_NUM", env: "8", min: 8, max: 8, fromShell: true},
			{command: "--nnodes=2:4", min: 2, max: 4, toldPart: "The command accepts 2 to 4 nodes, and there are 8 pods"},
			{command: "--nnodes=2:16", min: 2, max: 8, toldPart: "The command accepts 2 to 16 nodes, and there are 8 pods"},
			{command: "--nnodes=$ELSEWHERE", min: 8, max: 8, toldPart: "The value of $ELSEWHERE is unknown here", fromShell: true},
			{command: "--nnodes=2:8 --max_restarts=5", min: 2, max: 8, restarts: 5},
			{command: "--max-restarts 5", min: 8, max: 8, restarts: 5, fromShell: true},
		} {
			line := "torchrun " + c.command + " train.py"
			command := "command: [" + strings.ReplaceAll(quoteAll(line), " ", ", ") + "]"
			if c.fromShell {
				command = "command: [bash, -c, " + quoteYAML("cd /src && exec "+line) + "]"
			}
			if c.env != "" && kind != "ElasticJob" {
				command += fmt.Sprintf(", env: [{name: NODE_NUM, value: %q}]", c.env)
			}
			r := Manifests("in.yaml", strings.NewReader(strings.Replace(manifest, "@", command, 1)), Checks{})
			jobs := mustBeValid(t, r.HCL)
			if len(jobs) != 1 {
				t.Fatalf("%s %s: %s", kind, line, reported(r.Diagnostics))
			}
			role := jobs[0].Roles[0]
			if least, most := role.Bounds(); least != c.min || most != c.max {
				t.Errorf("%s %s: the bounds are %d to %d\n%s%s", kind, line, least, most, r.HCL, reported(r.Diagnostics))
			}
			if c.restarts > 0 && jobs[0].Heal.Budget.Restarts != c.restarts {
				t.Errorf("%s %s: there are %d restarts\n%s", kind, line, jobs[0].Heal.Budget.Restarts, r.HCL)
			}
			if text := reported(r.Diagnostics); !strings.Contains(text, c.toldPart) || c.toldPart == "" && strings.Contains(text, "nnodes") {
				t.Errorf("%s %s: the diagnostics are\n%s", kind, line, text)
			}
		}
	}
}

// quoteAll quotes each word of a line for YAML.
func quoteAll(line string) string {
	words := strings.Fields(line)
	for i, w := range words {
		words[i] = quoteYAML(w)
	}
	return strings.Join(words, " ")
}

// The manifest's own bounds take precedence over the command's, with a warning.
func TestElasticBoundsOfTheManifestGoFirst(t *testing.T) {
	src := strings.Replace(strings.Replace(boundless["PyTorchJob"], "spec:\n", "spec:\n  elasticPolicy: {minReplicas: 3, maxReplicas: 6, maxRestarts: 2}\n", 1),
		"@", "command: [torchrun, --nnodes=2:8, train.py]", 1)
	r := Manifests("in.yaml", strings.NewReader(src), Checks{})
	role := mustBeValid(t, r.HCL)[0].Roles[0]
	if least, most := role.Bounds(); least != 3 || most != 6 || !strings.Contains(reported(r.Diagnostics), "The manifest's bounds, 3 to 6, are used") {
		t.Errorf("the bounds are %d to %d\n%s", least, most, reported(r.Diagnostics))
	}
}
