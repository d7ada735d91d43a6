package importer

import (
	"slices"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/job"
)

// TestCommandLines imports command lines and checks the resulting jobs and diagnostics.
func TestCommandLines(t *testing.T) {
	cases := []struct {
		words    string // split at spaces
		command  string
		set      func(*job.Job, *job.Role) // applied to a default job with that command
		reported string                    // parts of what is reported, separated by |
	}{
		{words: "torchrun train.py --lr 0.1", command: "python3 train.py --lr 0.1"},
		{words: "/opt/conda/bin/torchrun --standalone --nproc_per_node 4 train.py", command: "python3 train.py",
			set: func(_ *job.Job, r *job.Role) { r.Processes = 4 }},
		{words: "torchrun --nnodes=2:8 --nproc-per-node=8 --max-restarts=3 --rdzv-id=1 --rdzv-backend=c10d --rdzv-endpoint=h:29400 train.py", command: "python3 train.py",
			set: func(j *job.Job, r *job.Role) {
				r.Scaling, r.Replicas = &job.Scaling{Min: 2, Max: 8, Step: 1}, 2
				r.Processes, j.Heal.Budget.Restarts = 8, 3
			}},
		{words: "dlrover-run --nnodes=2:9 --node_unit=4 --network-check --exclude-straggler train.py", command: "python3 train.py",
			set:      func(_ *job.Job, r *job.Role) { r.Scaling, r.Replicas = &job.Scaling{Min: 2, Max: 9, Step: 4}, 4 },
			reported: "--network-check: eltrain does not test nodes|--exclude-straggler"},
		{words: "torchrun --nnodes 3 -m pkg.train --lr=1", command: "python3 -m pkg.train --lr=1",
			set: func(_ *job.Job, r *job.Role) { r.Replicas = 3 }},
		{words: "torchrun --no-python ./train --x", command: "./train --x"},
		{words: "torchrun --no_python --module ./train", command: "./train"},
		{words: "torchrun --nproc=2 --rdzv_conf timeout=900,last_call_timeout=7,keep_alive_interval=2,read_timeout=1,color=3 train.py", command: "python3 train.py",
			set: func(j *job.Job, r *job.Role) {
				r.Processes, j.Rendezvous = 2, job.Rendezvous{Settle: 7e9, Timeout: 900e9}
				j.Detect.Lease = 6e9
			}, reported: "color has no equivalent"},
		{words: "torchrun --rdzv-conf=last_call_timeout=900 train.py", command: "python3 train.py", reported: "never ends within"},
		{words: "torchrun -r 3 -t3 --log_dir=/l train.py -r 1", command: "python3 train.py -r 1", reported: "--redirects: eltrain keeps|--tee|--log-dir"},
		{words: "torchrun --role trainer train.py", command: "python3 train.py", set: func(_ *job.Job, r *job.Role) { r.Name = "trainer" }},
		{words: "torchrun --nproc_per_node=gpu train.py", command: "python3 train.py", reported: "one process per device"},
		{words: "torchrun --nnodes=8:2 --nproc-per-node=0 --max-restarts=x train.py", command: "python3 train.py", reported: `"8:2" is not a number of nodes|"0" is not a whole number|"x" is not a whole`},
		{words: "torchrun --new-option value train.py", command: "python3 train.py", reported: `--new-option is not a known option of torchrun or dlrover-run. The word after it, "value", is taken as its value.`},
		{words: "dlrover-run --new-option=value --network-check train.py", command: "python3 train.py", reported: "--new-option=value is not a known option|--network-check: eltrain does not test nodes"},
		{words: "torchrun -x --nnodes=2 train.py -x", command: "python3 train.py -x", set: func(_ *job.Job, r *job.Role) { r.Replicas = 2 }, reported: "-x is not a known option"},
		{words: "torchrun --new-option ./train", command: "python3 ./train", reported: "--new-option is not a known option"},
		{words: "torchrun --new-option train.py a", command: "python3 train.py a", reported: "--new-option is not a known option"},
		{words: "python3.11 -u -X dev -m torch.distributed.run --nnodes=2 train.py", command: "python3.11 -u -X dev train.py", set: func(_ *job.Job, r *job.Role) { r.Replicas = 2 }},
		{words: "python -m torch.distributed.launch --use_env --master_port=1 train.py", command: "python train.py"},
		{words: "numactl --membind=0 torchrun train.py", command: "numactl --membind=0 python3 train.py"},
		{words: "env A=1 torchrun train.py", command: "env A=1 python3 train.py"},
		{words: "OMP_NUM_THREADS=1 A= RANK=3 torchrun --nproc_per_node=2 t.py B=1", command: "python3 t.py B=1",
			set: func(_ *job.Job, r *job.Role) {
				r.Env, r.Processes = map[string]string{"OMP_NUM_THREADS": "1", "A": ""}, 2
			}, reported: "1: warning: Not imported: command[2]: eltrain sets RANK for each process"},
	}
	for _, c := range cases {
		r := CommandLine(strings.Fields(c.words))
		var want imported
		setDefaults(&want.Job)
		worker := job.Role{Name: "worker"}
		setDefaults(&worker)
		worker.Command = strings.Fields(c.command)
		if c.set != nil {
			c.set(&want.Job, &worker)
		}
		jobs := mustBeValid(t, r.HCL)
		if len(jobs) != 1 {
			t.Errorf("%s: %d jobs\n%s", c.words, len(jobs), reported(r.Diagnostics))
			continue
		}
		want.Roles = []job.Role{worker}
		want.Name = jobs[0].Name
		want.Source = jobs[0].Source
		if diff := job.Diff(want.Job, jobs[0]); len(diff) > 0 {
			t.Errorf("%s: %v\n%s", c.words, diff, r.HCL)
		}
		text := reported(r.Diagnostics)
		parts := strings.Split(c.reported, "|")
		if strings.Count(text, "\n") != len(slices.DeleteFunc(slices.Clone(parts), func(s string) bool { return s == "" })) {
			t.Errorf("%s: the diagnostics are\n%s", c.words, text)
		}
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("%s: the diagnostics are\n%swithout %q", c.words, text, part)
			}
		}
	}
}

func TestJobOfACommandLineIsCalledAfterItsScript(t *testing.T) {
	for words, want := range map[string]string{
		"torchrun src/fine tune.py":              "fine",
		"torchrun train_gpt.py":                  "train_gpt",
		"torchrun -m pkg.sub.run":                "run",
		"torchrun --no-python /bin/x.bin":        "x",
		"python -u -m torch.distributed.run .py": "train",
		"OMP_NUM_THREADS=1 torchrun t.py":        "t",
	} {
		r := CommandLine(strings.Fields(words))
		jobs := mustBeValid(t, r.HCL)
		if len(jobs) != 1 || jobs[0].Name != want {
			t.Errorf("%s: the job is called %v, not %s", words, jobs, want)
		}
	}
}

func TestNoLauncherIsAnError(t *testing.T) {
	for _, words := range []string{"python3 train.py", "", "pip install torchrun", "echo", "A=1", "A=1 python3 train.py"} {
		r := CommandLine(strings.Fields(words))
		if r.Jobs != 0 || len(r.HCL) != 0 || !r.Diagnostics.HasErrors() {
			t.Errorf("%q gives %d jobs: %s", words, r.Jobs, reported(r.Diagnostics))
		}
	}
}

// A launcher without a program is an error, which says what to write.
func TestLauncherWithoutAProgramIsAnError(t *testing.T) {
	for words, also := range map[string]string{
		"torchrun": "", "dlrover-run": "", "python3 -m torch.distributed.run": "", "torchrun --nnodes=2:8 --standalone": "",
		"torchrun -m": "", "torchrun --no-python": "", "torchrun --": "", "env A=1 torchrun": "",
		"torchrun --nnodes":                  "--nnodes needs a value",
		"torchrun --nnodes train.py":         "",
		"dlrover-run --unknown":              "--unknown is not a known option",
		"dlrover-run --node_unit=4 --nnodes": "--nnodes needs a value",
	} {
		r := CommandLine(strings.Fields(words))
		text := reported(r.Diagnostics)
		if r.Jobs != 0 || len(r.HCL) != 0 || !r.Diagnostics.HasErrors() || !strings.Contains(text, "No training program: The launcher has no script to run") || !strings.Contains(text, also) {
			t.Errorf("%q gives %d jobs; the diagnostics are\n%s", words, r.Jobs, text)
		}
	}
	// In a manifest it is a warning, because there is more to import.
	for _, command := range []string{"[torchrun]", "[torchrun, --no-python]", "[sh, -c, 'torchrun --nnodes=2']"} {
		r := Manifests("in.yaml", strings.NewReader(strings.Replace(least, "[x]", command, 1)), Checks{})
		if text := reported(r.Diagnostics); len(mustBeValid(t, r.HCL)) != 1 || !strings.Contains(text, "No training program") || !strings.Contains(string(r.HCL), missingProgram) {
			t.Errorf("%s gives %d jobs; the diagnostics are\n%s", command, r.Jobs, text)
		}
	}
}

// TestScripts imports scripts that a container runs with sh -c, or other commands, whose words are separated by " , ".
func TestScripts(t *testing.T) {
	const container = `
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec:
  completionMode: Indexed
  completions: 4
  template:
    spec:
      containers:
        - name: main
          image: registry.example/x:1
          workingDir: /w
          env:
            - {name: NNODES, value: "2:4"}
            - {name: PET_NPROC_PER_NODE, value: "3"}
          command: `
	cases := []struct {
		script   string
		want     string // the command's last word; or several, separated by " , "
		dir      string
		env      string
		reported string
	}{
		{script: "torchrun --nnodes=$NNODES train.py", want: "python3 , train.py"},
		{script: "torchrun --nnodes=${NNODES:-1} train.py", want: "python3 , train.py"},
		{script: "torchrun --nnodes=$(NNODES) 'a b.py' \"c\\\"d\"", want: "python3 , a b.py , c\"d"},
		{script: "set -euxo pipefail; cd src && A=1 exec torchrun --nnodes=2:4 train.py", want: "python3 , train.py", dir: "/w/src", env: "A=1"},
		{script: "export A=x B=y\ncd /s\ntorchrun \\\n  --nnodes=2:4 \\\n  train.py # end", want: "python3 , train.py", dir: "/s", env: "A=x B=y"},
		{script: "N=2:4; torchrun --nnodes=$N train.py", want: "python3 , train.py"},
		{script: "torchrun --nnodes=2:4 train.py $EXTRA", want: "python3 train.py $EXTRA"},
		{script: "torchrun --nnodes=2:4 train.py *.txt", want: "python3 train.py *.txt"},
		{script: "pip install -e . && torchrun --nnodes=2:4 train.py", want: "pip install -e . && python3 train.py", reported: "runs in every process"},
		{script: "torchrun --nnodes=2:4 train.py 2>&1 | tee log", want: "python3 train.py 2>&1 | tee log", reported: "runs in every process"},
		{script: "if true; then torchrun --nnodes=2:4 a.py; else torchrun b.py; fi", want: "if true; then python3 a.py; else python3 b.py; fi", reported: "Several launchers|runs in every process"},
		{script: "(cd x; torchrun --nnodes=2:4 a.py)", want: "(cd x; python3 a.py)", reported: "runs in every process"},
		{script: "echo torchrun", want: "echo torchrun"},
		{script: "torchrun 'a", want: "torchrun 'a", reported: "not closed"},
		{script: "bash run.sh", want: "bash run.sh", reported: "Its content is unknown here"},
		{script: "torchrun --nnodes=$MISSING train.py", want: "python3 , train.py", reported: "The value of $MISSING is unknown"},
		{script: "dlrover-run --nnodes=2:4 train.py $NODE_RANK", want: "python3 train.py $NODE_RANK", reported: "GROUP_RANK is the slot's rank"},
	}
	for _, c := range cases {
		r := Manifests("in.yaml", strings.NewReader(container+"[bash, -c, "+quoteYAML(c.script)+"]\n"), Checks{})
		jobs := mustBeValid(t, r.HCL)
		if len(jobs) != 1 {
			t.Fatalf("%q: %s", c.script, reported(r.Diagnostics))
		}
		got := jobs[0].Roles[0]
		command := got.Command
		if command[0] == "bash" && len(command) == 3 {
			command = command[2:]
		}
		if s := strings.Join(command, " , "); s != c.want {
			t.Errorf("%q:\n got %q\nwant %q", c.script, s, c.want)
		}
		dir := c.dir
		if dir == "" {
			dir = "/w"
		}
		if got.WorkingDir != dir {
			t.Errorf("%q: it runs in %s, not %s", c.script, got.WorkingDir, dir)
		}
		for pair := range strings.FieldsSeq(c.env) {
			name, value, _ := strings.Cut(pair, "=")
			if got.Env[name] != value {
				t.Errorf("%q: env is %v", c.script, got.Env)
			}
		}
		applyLaunch := strings.Contains(c.want, "python3")
		if applyLaunch && (got.Processes != 3 || got.Env["PET_NPROC_PER_NODE"] != "") {
			t.Errorf("%q: PET_NPROC_PER_NODE is not taken: %d, %v", c.script, got.Processes, got.Env)
		}
		if applyLaunch && !strings.Contains(c.script, "MISSING") && (got.Scaling == nil || got.Scaling.Min != 2 || got.Scaling.Max != 4) {
			t.Errorf("%q: bounds are %+v", c.script, got.Scaling)
		}
		text := reported(r.Diagnostics)
		if c.reported == "" && text != "" {
			t.Errorf("%q: the diagnostics are\n%s", c.script, text)
		}
		for part := range strings.SplitSeq(c.reported, "|") {
			if !strings.Contains(text, part) {
				t.Errorf("%q: the diagnostics are\n%swithout %q", c.script, text, part)
			}
		}
	}
}

// Kubernetes accepts a command and its arguments only as lists.
func TestCommandsThatAreTextsAreTold(t *testing.T) {
	for command, want := range map[string]string{
		"command: torchrun --nnodes=2 t.py":          "containers[0].command: Kubernetes rejects a string here",
		"command: [torchrun], args: --nnodes=2":      "containers[0].args: Kubernetes rejects a string here",
		"command: [torchrun], args: [t.py]":          "",
		"command: [torchrun], args: [t.py, '--a b']": "",
	} {
		r := Manifests("in.yaml", strings.NewReader(strings.Replace(least, "command: [x]", command, 1)), Checks{})
		mustBeValid(t, r.HCL)
		const summary = "A list is expected: "
		if text := reported(r.Diagnostics); !strings.Contains(text, want) || strings.Count(text, summary) != min(len(want), 1) {
			t.Errorf("%s: the diagnostics are\n%s", command, text)
		}
	}
}

func quoteYAML(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
