package importer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// enumeration is a field with a known set of values.
type enumeration struct {
	kind   string // of boundless
	at     string // the text that the field is inserted after
	field  string // @ is the value
	path   string // path in warnings
	values []string
	// anyway are the values that match eltrain's own behavior: they are ignored without a warning.
	anyway []string
}

const (
	inSpec      = "spec:\n"
	inElastic   = "{worker: {"
	inPyTorch   = "{Worker: {"
	inTask      = "[{name: worker, "
	inTrainer   = "trainer: {"
	inContainer = "spec: {containers"
)

var bools = []string{"true", "false"}

// enumerations are the enumerated fields of all kinds, with the values that their types' own validation accepts.
var enumerations = []enumeration{
	{"ElasticJob", inSpec, "  distributionStrategy: @\n", "spec.distributionStrategy", []string{"ParameterServerStrategy", "AllreduceStrategy", "Local", "CustomStrategy"}, []string{"AllreduceStrategy", "Local"}},
	{"ElasticJob", inSpec, "  optimizeMode: @\n", "spec.optimizeMode", []string{"manunal", "single-job", "cluster"}, []string{"manunal"}},
	{"ElasticJob", inSpec, "  suspend: @\n", "spec.suspend", bools, []string{"false"}},
	{"ElasticJob", inElastic, "restartPolicy: @, ", "spec.replicaSpecs.worker.restartPolicy", restartPolicies, []string{"Always", "OnFailure", "ExitCode"}},
	{"ElasticJob", inElastic, "autoScale: @, ", "spec.replicaSpecs.worker.autoScale", bools, []string{"true"}},
	{"PyTorchJob", inPyTorch, "restartPolicy: @, ", "spec.pytorchReplicaSpecs.Worker.restartPolicy", restartPolicies, []string{"Always", "OnFailure", "ExitCode"}},
	{"PyTorchJob", inSpec, "  nprocPerNode: @\n", "spec.nprocPerNode", []string{"auto", "cpu", "gpu", "\"4\""}, nil},
	{"PyTorchJob", inSpec, "  elasticPolicy: {rdzvBackend: @}\n", "spec.elasticPolicy", []string{"c10d", "etcd", "etcd-v2", "static"}, []string{"c10d", "etcd", "etcd-v2", "static"}},
	{"PyTorchJob", inSpec, "  elasticPolicy: {maxRestarts: @}\n", "spec.elasticPolicy", []string{"0", "7"}, nil},
	{"PyTorchJob", inSpec, "  runPolicy: {cleanPodPolicy: @}\n", "spec.runPolicy.cleanPodPolicy", []string{"All", "Running", "None"}, nil},
	{"PyTorchJob", inSpec, "  runPolicy: {suspend: @}\n", "spec.runPolicy.suspend", bools, []string{"false"}},
	{"PyTorchJob", inSpec, "  runPolicy: {managedBy: @}\n", "spec.runPolicy.managedBy", []string{"kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"}, []string{"kubeflow.org/training-operator"}},
	{"TrainJob", inTrainer, "numProcPerNode: @, ", "spec.trainer.numProcPerNode", []string{"auto", "cpu", "gpu", "4"}, nil},
	{"TrainJob", inSpec, "  suspend: @\n", "spec.suspend", bools, []string{"false"}},
	{"TrainJob", inSpec, "  managedBy: @\n", "spec.managedBy", []string{"trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue"}, []string{"trainer.kubeflow.org/trainjob-controller"}},
	{"Volcano Job", inTask, "topologyPolicy: @, ", "spec.tasks[0].topologyPolicy", []string{"none", "best-effort", "restricted", "single-numa-node"}, nil},
	{"Volcano Job", inTask, "dependsOn: {iteration: @}, ", "spec.tasks[0].dependsOn.iteration", []string{"any", "all"}, []string{"all"}},
	{"Volcano Job", inSpec, "  networkTopology: {mode: @}\n", "spec.networkTopology", []string{"hard", "soft"}, nil},
	{"Volcano Job", inSpec, "  schedulerName: @\n", "spec.schedulerName", []string{"volcano", "default-scheduler"}, []string{"volcano"}},
	{"Volcano Job", inSpec, "  plugins: {@: []}\n", "spec.plugins", []string{"env", "svc", "ssh", "pytorch", "tensorflow", "mpi", "ray", "hcclrank"}, []string{"pytorch"}},
	{"Volcano Job", inSpec, "  plugins: {pytorch: [@]}\n", "spec.plugins.pytorch[0]", []string{"--master=w", "--master=worker", "--worker=worker", "--worker=w", "--port=23456", "--port=x"}, []string{"--master=worker", "--worker=worker", "--port=23456"}},
	{"Volcano Job", inSpec, "  plugins: {env: [@]}\n", "spec.plugins.env[0]", []string{"--any=x"}, nil},
	{"Indexed Job", inSpec, "  podReplacementPolicy: @\n", "spec.podReplacementPolicy", []string{"TerminatingOrFailed", "Failed"}, []string{"TerminatingOrFailed"}},
	{"Indexed Job", inSpec, "  suspend: @\n", "spec.suspend", bools, []string{"false"}},
	{"Indexed Job", inSpec, "  managedBy: @\n", "spec.managedBy", []string{"kubernetes.io/job-controller", "kueue.x-k8s.io/multikueue"}, []string{"kubernetes.io/job-controller"}},
	{"Indexed Job", inContainer[:len("spec: {")], "restartPolicy: @, ", "spec.template.spec.restartPolicy", []string{"OnFailure", "Never"}, []string{"OnFailure", "Never"}},
}

// The events and actions of a Volcano policy (bus/v1alpha1).
var (
	volcanoEvents  = []string{"*", "PodPending", "PodRunning", "PodFailed", "PodEvicted", "Unknown", "TaskCompleted", "TaskFailed", "OutOfSync", "CommandIssued", "JobUpdated"}
	volcanoActions = []string{"AbortJob", "RestartJob", "RestartTask", "RestartPod", "RestartPartition", "TerminateJob", "CompleteJob", "ResumeJob", "SyncJob", "EnqueueJob", "SyncQueue", "OpenQueue", "CloseQueue"}
)

// policiesOfVolcano returns all pairs of events and actions, for jobs and for tasks.
func policiesOfVolcano() []enumeration {
	var all []enumeration
	for _, event := range volcanoEvents {
		var anyway []string
		switch event {
		case "PodFailed", "PodEvicted":
			anyway = restarting
		case "TaskFailed":
			anyway = append(slices.Clone(restarting), ending...)
		}
		policy := fmt.Sprintf("policies: [{event: %q, action: @}]", event)
		all = append(all,
			enumeration{"Volcano Job", inSpec, "  " + policy + "\n", "spec.policies[0]", volcanoActions, anyway},
			enumeration{"Volcano Job", inTask, policy + ", ", "spec.tasks[0].policies[0]", volcanoActions, anyway})
	}
	return all
}

// Each value of a field is imported, or a warning names it, unless it matches eltrain's own behavior: then there must be no
// warning.
func TestEachKnownValueIsSaidOrTold(t *testing.T) {
	imported := func(manifest string) (hcl, text string) {
		r := Manifests("in.yaml", strings.NewReader(strings.Replace(manifest, "@", "command: [x]", 1)), Checks{})
		mustBeValid(t, r.HCL)
		return string(r.HCL), reported(r.Diagnostics)
	}
	for _, e := range append(policiesOfVolcano(), enumerations...) {
		without, toldWithout := imported(boundless[e.kind])
		for _, value := range e.values {
			field := strings.Replace(e.field, "@", value, 1)
			manifest := strings.Replace(boundless[e.kind], e.at, e.at+field, 1)
			if manifest == boundless[e.kind] {
				t.Fatalf("%s has no %q", e.kind, e.at)
			}
			hcl, text := imported(manifest)
			said, warned := hcl != without, strings.Contains(text, ": "+e.path)
			switch anyway := slices.Contains(e.anyway, value); {
			case anyway && (said || text != toldWithoutAt(toldWithout, field)):
				t.Errorf("%s, %s: it is what eltrain does anyway, and this comes of it:\n%s%s", e.kind, strings.TrimSpace(field), hcl, text)
			case !anyway && !said && !warned:
				t.Errorf("%s, %s is dropped in silence:\n%s", e.kind, strings.TrimSpace(field), text)
			}
		}
	}
}

// toldWithoutAt returns the diagnostics of a manifest without a field, with the line numbers of the one with it.
func toldWithoutAt(text, field string) string {
	if !strings.HasSuffix(field, "\n") {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		var n int
		var rest string
		if _, err := fmt.Sscanf(line, "%d:", &n); err != nil {
			return text
		}
		_, rest, _ = strings.Cut(line, ":")
		if n > 3 { // behind "spec:"
			n++
		}
		fmt.Fprintf(&b, "%d:%s", n, rest)
	}
	return b.String()
}

// Policies that end the job and retries share one budget, and those that have no effect are reported.
func TestBudgetsOfVolcanoJobs(t *testing.T) {
	task := func(name, more string) string {
		return fmt.Sprintf("    - {name: %s, replicas: 1, %stemplate: {spec: {containers: [{name: main, image: i, command: [x]}]}}}\n", name, more)
	}
	const abort, restart = "policies: [{event: PodFailed, action: AbortJob}]", "policies: [{event: PodFailed, action: RestartTask}]"
	for name, c := range map[string]struct {
		spec, a, b string
		restarts   int
		reported   []string // with the paths
		untold     string
	}{
		"a task that ends it beside one that is tried again": {"  maxRetry: 3\n", abort + ", maxRetry: 4, ", "", 3, []string{
			"One budget for all roles: spec.tasks[0].policies[0]: A failure of the role a would end the job", "Not imported: spec.tasks[0].maxRetry: A policy ends the job"}, "spec.maxRetry"},
		"tasks that all end it": {"  maxRetry: 3\n", abort + ", ", abort + ", ", 0, []string{"Not imported: spec.maxRetry: A policy ends the job"}, "One budget"},
		"a job that ends":       {"  " + abort + "\n", "", "", 0, nil, "spec."},
		"as Volcano writes it": {"  maxRetry: 3\n  " + abort + "\n", "maxRetry: 3, ", "maxRetry: 3, ", 0, []string{
			"Not imported: spec.tasks[0].maxRetry: A policy ends the job", "Not imported: spec.tasks[1].maxRetry: A policy ends the job", "Not imported: spec.maxRetry: A policy ends the job"}, "One budget"},
		"a task's own policy and number": {"  " + abort + "\n", restart + ", maxRetry: 3, ", "maxRetry: 3, ", 3, []string{
			"One budget for all roles: spec.policies[0]: A failure of the role b would end the job", "Not imported: spec.tasks[1].maxRetry: A policy ends the job"}, "role a "},
		"a task's own policy goes first": {"  maxRetry: 3\n  " + abort + "\n", restart + ", ", "", 3, []string{"One budget for all roles: spec.policies[0]: A failure of the role b would end the job"}, "role a "},
		"all tasks have their own":       {"  maxRetry: 3\n  " + abort + "\n", restart + ", ", restart + ", ", 3, nil, "spec."},
		"one is more patient":            {"", "maxRetry: 2, ", "maxRetry: 5, ", 5, []string{"One budget for all roles: spec.tasks[0].maxRetry: The role a may be restarted 2 times"}, "role b "},
		"ended when all is used up":      {"", "maxRetry: 2, policies: [{event: TaskFailed, action: AbortJob}], ", "", 2, nil, "spec."},
		"several events":                 {"", "policies: [{events: [PodFailed, TaskFailed], action: AbortJob}], ", "", 0, nil, "spec."},
		"not all of them are failures":   {"", "policies: [{events: [PodFailed, PodRunning], action: AbortJob}], maxRetry: 2, ", "", 2, []string{"Not imported: spec.tasks[0].policies[0]"}, "One budget"},
		"of one exit code":               {"", "policies: [{event: PodFailed, exitCode: 3, action: AbortJob}], maxRetry: 2, ", "", 2, []string{"Not imported: spec.tasks[0].policies[0]"}, "One budget"},
	} {
		t.Run(name, func(t *testing.T) {
			src := "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nspec:\n" + c.spec + "  tasks:\n" + task("a", c.a) + task("b", c.b)
			r := Manifests("in.yaml", strings.NewReader(src), Checks{})
			if got := mustBeValid(t, r.HCL)[0].Heal.Budget.Restarts; got != c.restarts {
				t.Errorf("there are %d restarts, want %d\n%s", got, c.restarts, r.HCL)
			}
			text := reported(r.Diagnostics)
			for _, want := range c.reported {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not reported:\n%s", want, text)
				}
			}
			if strings.Contains(text, c.untold) {
				t.Errorf("%q is reported:\n%s", c.untold, text)
			}
		})
	}
}

// The pods of all tasks form one world, and its rank 0 is in the first role.
func TestWorldsOfVolcanoJobs(t *testing.T) {
	task := func(name string, replicas int) string {
		return fmt.Sprintf("    - {name: %s, replicas: %d, template: {spec: {containers: [{name: main, image: i, command: [sh, -c, 'torchrun --nnodes=$WORLD_SIZE t.py']}]}}}\n", name, replicas)
	}
	master, worker := task("master", 1), task("worker", 2)
	for name, c := range map[string]struct{ plugin, tasks, reported string }{
		"master first":              {"[]", master + worker, ""},
		"as it is written":          {`["--master=master", "--worker=worker"]`, master + worker, ""},
		"master last":               {"[]", worker + master, "spec.plugins.pytorch: Rank 0 is in the first role, which is worker."},
		"no master":                 {"[]", worker, ""},
		"another one":               {`["--master=worker"]`, worker + master, ""},
		"another one that is last":  {`["--master=worker"]`, master + worker, "spec.plugins.pytorch[0]: Rank 0 is in the first role, which is master."},
		"the default one, and last": {`["--master=master"]`, worker + master, "spec.plugins.pytorch[0]: Rank 0 is in the first role, which is worker."},
	} {
		t.Run(name, func(t *testing.T) {
			src := "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: j}\nspec:\n  plugins: {pytorch: " + c.plugin + "}\n  tasks:\n" + c.tasks
			r := Manifests("in.yaml", strings.NewReader(src), Checks{})
			mustBeValid(t, r.HCL)
			text := reported(r.Diagnostics)
			if strings.Count(text, "\n") != min(len(c.reported), 1) || !strings.Contains(text, c.reported) {
				t.Errorf("the diagnostics are\n%s", text)
			}
		})
	}
}
