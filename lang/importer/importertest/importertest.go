// Package importertest draws inputs for the importer: jobs of each kind, composed as their operators document them, and
// command lines of launchers, with valid and invalid values.
package importertest

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// gen draws a part of a manifest.
type gen func(*rapid.T) any

// absent is drawn for a field to be omitted.
type absent struct{}

func oneOf(values ...any) gen {
	return func(t *rapid.T) any { return rapid.SampledFrom(values).Draw(t, "value") }
}

// someOf draws an object with most of the fields.
func someOf(fields map[string]gen) gen {
	return func(t *rapid.T) any {
		out := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if rapid.IntRange(0, 3).Draw(t, name) == 0 {
				continue
			}
			if v := fields[name](t); v != (absent{}) {
				out[name] = v
			}
		}
		return out
	}
}

// whole draws an object with all fields of always, and those that most draws.
func whole(always map[string]gen, most gen) gen {
	return func(t *rapid.T) any {
		out := most(t).(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(always)) {
			out[name] = always[name](t)
		}
		return out
	}
}

func listOf(most int, element gen) gen {
	return func(t *rapid.T) any {
		out := make([]any, rapid.IntRange(0, most).Draw(t, "length"))
		for i := range out {
			out[i] = element(t)
		}
		return out
	}
}

// odd occasionally draws an invalid value instead.
func odd(fits gen) gen {
	misfit := oneOf(nil, "", "x", "${x} %{y}", -1, 0, 1.5, true, []any{}, []any{"a", nil}, map[string]any{}, map[string]any{"a": map[string]any{"b": 1}}, "ä\u0001\n\"'", 100_001)
	return func(t *rapid.T) any {
		if rapid.IntRange(0, 19).Draw(t, "odd") == 0 {
			return misfit(t)
		}
		return fits(t)
	}
}

var (
	number    = odd(oneOf(1, 2, 3, 4, 8, 16, "4"))
	anyText   = odd(oneOf("a", "b-c", "a.b/c", "9", "$(A)"))
	anyLabels = someOf(map[string]gen{"a": anyText, "for": anyText, "x.y/z": anyText})
)

// flagOptions and valueOptions are the options of torchrun and dlrover-run.
var (
	flagOptions = strings.Fields("module no-python run-path standalone use-env virtual-local-rank network-check comm-perf-test exclude-straggler " +
		"node-group-check auto-config auto-tunning save-at-breakpoint numa-affinity")
	valueOptions = strings.Fields("nnodes nproc-per-node max-restarts node-unit rdzv-conf role rdzv-backend rdzv-endpoint rdzv-id node-rank master-addr " +
		"master-port local-addr monitor-interval training-port start-method event-log-handler log-dir redirects tee local-ranks-filter logs-specs " +
		"duplicate-stdout-filters duplicate-stderr-filters signals-to-handle numa-binding precheck accelerator membind-policy ucp-device-type")
)

// LauncherLine draws the words of torchrun's or dlrover-run's command line.
func LauncherLine(t *rapid.T) []string {
	program := [][]string{{"torchrun"}, {"dlrover-run"}, {"/opt/bin/torchrun"}, {"python3", "-m", "torch.distributed.run"}, {"python", "-u", "-m", "torch.distributed.launch"},
		{"exec", "torchrun"}, {"env", "A=1", "dlrover-run"}, {"accelerate", "launch"}}
	words := slices.Clone(rapid.SampledFrom(program).Draw(t, "program"))
	for range rapid.IntRange(0, 5).Draw(t, "options") {
		option := rapid.SampledFrom(slices.Concat(flagOptions, valueOptions)).Draw(t, "option")
		name := "--" + option
		if rapid.Bool().Draw(t, "underscores") {
			name = strings.ReplaceAll(name, "-", "_")
			name = "--" + strings.TrimLeft(name, "_")
		}
		if rapid.IntRange(0, 9).Draw(t, "unknown") == 0 {
			name += "-not"
		}
		value := rapid.SampledFrom([]string{"1", "2", "2:8", "2:$NODE_NUM", "$NODE_NUM", "${N:-4}", "$(NODE_NUM)", "gpu", "auto", "8:2", "0", "x", "", "join_timeout=9,last_call_timeout=1", "last_call_timeout=900"}).Draw(t, "value")
		switch {
		case slices.Contains(flagOptions, option):
			words = append(words, name)
		case rapid.Bool().Draw(t, "attached"):
			words = append(words, name+"="+value)
		default:
			words = append(words, name, value)
		}
	}
	programs := [][]string{{"train.py"}, {"train.py", "--lr", "0.1"}, {"train.py", "$(JOB_COMPLETION_INDEX)", "$(VC_TASK_INDEX)$$$(N)", "$(RANK)"}, {"-m", "pkg.train"}, {"--", "train.py", "--x=$NODE_RANK"}, {"--no-python", "./train"}, {"-m"}, {}}
	return append(words, rapid.SampledFrom(programs).Draw(t, "training program")...)
}

// command draws a container's command: a launcher, a script with one, or any program.
func command(t *rapid.T) any {
	line := LauncherLine(t)
	switch rapid.IntRange(0, 5).Draw(t, "form") {
	case 0:
		return []any{"python3", "train.py"}
	case 1:
		return []any{}
	case 2, 3:
		before := rapid.SampledFrom([]string{"", "cd src && ", "set -ex; export B=${C:-d}\n", "pip install -e . && ", "if true; then "}).Draw(t, "before")
		after := rapid.SampledFrom([]string{"", " # end", " 2>&1 | tee log", "; fi"}).Draw(t, "after")
		return []any{"bash", "-c", before + strings.Join(line, " ") + after}
	}
	return words(line)
}

func words(line []string) []any {
	out := make([]any, len(line))
	for i, w := range line {
		out[i] = w
	}
	return out
}

var container = whole(map[string]gen{"name": oneOf("main", "pytorch", "trainer", "sidecar", "node")}, someOf(map[string]gen{
	"image": oneOf("registry.example/x:1", "$(IMAGE)"), "command": odd(command), "args": odd(oneOf([]any{"--lr=1"}, []any{"torchrun", "--nnodes=2:4", "a.py"}, []any{})), "workingDir": anyText,
	"env": odd(listOf(3, someOf(map[string]gen{
		"name": oneOf("NODE_NUM", "PET_NNODES", "PET_NPROC_PER_NODE", "N", "a.b", "MASTER_ADDR"), "value": odd(oneOf("2", "2:4", "x$(N)", "$$", "$$(N)")),
		"valueFrom": someOf(map[string]gen{"fieldRef": someOf(map[string]gen{"fieldPath": anyText})}),
	}))),
	"resources":    odd(someOf(map[string]gen{"limits": resources, "requests": resources})),
	"volumeMounts": odd(listOf(2, someOf(map[string]gen{"name": oneOf("shm", "data"), "mountPath": oneOf("/dev/shm", "/data"), "readOnly": oneOf(true)}))),
	"ports":        odd(listOf(1, someOf(map[string]gen{"containerPort": number}))), "securityContext": anyLabels, "unknownField": anyText,
	"terminationMessagePath": anyText, "imagePullPolicy": odd(oneOf("Always")), "lifecycle": anyLabels,
}))

var resources = odd(someOf(map[string]gen{"cpu": odd(oneOf("500m", 4, "2")), "memory": odd(oneOf("1Gi", "2G", 1024)), "nvidia.com/gpu": number, "ephemeral-storage": oneOf("1Gi")}))

var podTemplate = odd(someOf(map[string]gen{
	"metadata": someOf(map[string]gen{"labels": anyLabels, "annotations": anyLabels, "name": anyText}),
	"spec": whole(map[string]gen{"containers": listOf(2, container)}, someOf(map[string]gen{
		"initContainers": listOf(1, container), "nodeSelector": anyLabels, "restartPolicy": oneOf("Never", "OnFailure", "Always", "x"), "terminationGracePeriodSeconds": number,
		"volumes":     odd(listOf(2, someOf(map[string]gen{"name": oneOf("shm", "data"), "emptyDir": someOf(map[string]gen{"medium": oneOf("Memory"), "sizeLimit": odd(oneOf("1Gi"))})}))),
		"tolerations": listOf(1, anyLabels), "hostNetwork": oneOf(true), "priorityClassName": anyText, "unknownField": anyText,
		"activeDeadlineSeconds": number, "serviceAccountName": anyText, "schedulerName": anyText, "hostname": anyText,
		"affinity": odd(someOf(map[string]gen{"nodeAffinity": anyLabels, "podAffinity": anyText})),
	})),
}))

// manifest draws an object of a kind, as YAML.
func manifest(apiVersion, kind string, spec gen) func(*rapid.T) []byte {
	return func(t *rapid.T) []byte {
		doc := someOf(map[string]gen{
			"metadata": odd(someOf(map[string]gen{"name": anyText, "generateName": anyText, "namespace": anyText, "labels": anyLabels, "annotations": anyLabels, "uid": anyText})),
			"status":   anyLabels,
		})(t).(map[string]any)
		doc["apiVersion"], doc["kind"], doc["spec"] = apiVersion, kind, spec(t)
		src, err := yaml.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		return src
	}
}

var replicaSpec = odd(whole(map[string]gen{"template": podTemplate}, someOf(map[string]gen{
	"replicas": number, "restartPolicy": oneOf("Never", "OnFailure", "ExitCode"), "restartCount": number, "minReplicas": number, "maxReplicas": number, "autoScale": oneOf(true), "priority": anyText,
})))

// Jobs draws manifests, by kind.
var Jobs = map[string]func(*rapid.T) []byte{
	"ElasticJob": manifest("elastic.iml.github.io/v1alpha1", "ElasticJob", whole(
		map[string]gen{"replicaSpecs": odd(someOf(map[string]gen{"worker": replicaSpec, "ps": replicaSpec, "evaluator": replicaSpec, "dlrover-master": replicaSpec, "9 x": replicaSpec}))},
		someOf(map[string]gen{"distributionStrategy": anyText, "optimizeMode": anyText, "resourceLimits": resources, "envs": odd(listOf(2, someOf(map[string]gen{"name": oneOf("NODE_NUM", "A"), "value": oneOf("2")}))), "suspend": oneOf(true, false), "unknownField": anyText}),
	)),
	"PyTorchJob": manifest("kubeflow.org/v1", "PyTorchJob", whole(
		map[string]gen{"pytorchReplicaSpecs": odd(someOf(map[string]gen{"Master": replicaSpec, "Worker": replicaSpec, "Other": replicaSpec}))},
		someOf(map[string]gen{
			"nprocPerNode":  odd(oneOf("auto", "2", 2)),
			"runPolicy":     someOf(map[string]gen{"backoffLimit": number, "cleanPodPolicy": anyText, "activeDeadlineSeconds": number, "schedulingPolicy": anyLabels, "suspend": oneOf(true)}),
			"elasticPolicy": odd(someOf(map[string]gen{"minReplicas": number, "maxReplicas": number, "nProcPerNode": number, "maxRestarts": number, "rdzvBackend": anyText, "rdzvConf": listOf(2, anyLabels), "standalone": oneOf(true), "metrics": listOf(1, anyLabels)})),
		}),
	)),
	"TrainJob": manifest("trainer.kubeflow.org/v1alpha1", "TrainJob", someOf(map[string]gen{
		"runtimeRef": anyLabels, "initializer": anyLabels, "suspend": oneOf(true), "labels": anyLabels,
		"trainer": odd(someOf(map[string]gen{"numNodes": number, "numProcPerNode": odd(oneOf(2, "auto", "gpu")), "image": anyText, "command": odd(command), "args": oneOf([]any{"--x"}), "env": listOf(1, someOf(map[string]gen{"name": anyText, "value": anyText})), "resourcesPerNode": someOf(map[string]gen{"limits": resources, "requests": resources})})),
		"podTemplateOverrides": odd(listOf(2, someOf(map[string]gen{
			"targetJobs": odd(listOf(1, someOf(map[string]gen{"name": oneOf("node", "dataset-initializer")}))),
			"spec":       someOf(map[string]gen{"nodeSelector": anyLabels, "serviceAccountName": anyText, "containers": listOf(1, container), "volumes": listOf(1, anyLabels)}),
		}))),
	})),
	"Volcano Job": manifest("batch.volcano.sh/v1alpha1", "Job", whole(
		map[string]gen{"tasks": odd(listOf(3, someOf(map[string]gen{
			"name": odd(oneOf("master", "worker", "ps")), "replicas": number, "minAvailable": number, "maxRetry": number, "template": podTemplate,
			"dependsOn": odd(someOf(map[string]gen{"name": odd(listOf(2, oneOf("master", "worker", "nobody"))), "iteration": oneOf("any")})),
			"policies":  odd(listOf(1, someOf(map[string]gen{"event": oneOf("PodFailed", "*"), "action": oneOf("AbortJob", "RestartJob")}))),
		})))},
		someOf(map[string]gen{"minAvailable": number, "queue": anyText, "maxRetry": number, "plugins": odd(someOf(map[string]gen{"env": oneOf([]any{}), "svc": listOf(1, anyText), "pytorch": listOf(1, anyText)})), "priorityClassName": anyText, "ttlSecondsAfterFinished": number, "policies": listOf(1, anyLabels)}),
	)),
	"Indexed Job": manifest("batch/v1", "Job", whole(
		map[string]gen{"template": podTemplate, "completionMode": oneOf("Indexed", "Indexed", "Indexed", "NonIndexed")},
		someOf(map[string]gen{"completions": number, "parallelism": number, "backoffLimit": number, "backoffLimitPerIndex": number, "suspend": oneOf(true), "podFailurePolicy": anyLabels, "successPolicy": anyLabels, "manualSelector": oneOf(true)}),
	)),
}
