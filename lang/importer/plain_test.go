package importer

import (
	"strings"
	"testing"

	"github.com/eltrain/eltrain/lang"
)

// A program that runs as it is becomes a job that differs from the language's defaults only in what was asked for.
func TestPlainPrograms(t *testing.T) {
	none := 0
	for _, c := range []struct {
		plain Plain
		want  string
	}{
		{Plain{Min: 1, Max: 1, Command: []string{"python", "-u", "lib/train.py", "--lr", "3"}}, "job \"train\" {\n  role \"worker\" {\n    command = [\"python\", \"-u\", \"lib/train.py\", \"--lr\", \"3\"]\n  }\n}\n"},
		{Plain{Min: 3, Max: 3, Processes: 2, Command: []string{"./run.sh", "a"}}, "job \"run\" {\n  role \"worker\" {\n    replicas  = 3\n    processes = 2\n    command   = [\"./run.sh\", \"a\"]\n  }\n}\n"},
		{Plain{Min: 2, Max: 4, Command: []string{"sh", "-c", "echo ${x}"}}, "job \"sh\" {\n  role \"worker\" {\n    replicas = 2\n    command  = [\"sh\", \"-c\", \"echo $${x}\"]\n    scaling {\n      min = 2\n      max = 4\n    }\n  }\n}\n"},
		{Plain{Name: "mine", Min: 1, Max: 1, Restarts: &none, Command: []string{"true"}}, "job \"mine\" {\n  role \"worker\" {\n    command = [\"true\"]\n  }\n  heal {\n    budget {\n      restarts = 0\n    }\n  }\n}\n"},
	} {
		r := c.plain.Job()
		_, text, _ := strings.Cut(string(r.HCL), "\n")
		if strings.Join(strings.Fields(text), " ") != strings.Join(strings.Fields(c.want), " ") || len(r.Diagnostics) > 0 {
			t.Errorf("%v: %v\n%s\nwant\n%s", c.plain.Command, r.Diagnostics, text, c.want)
		}
		cfg, diags := lang.Parse(map[string][]byte{"a.hcl": r.HCL}, lang.Options{})
		if diags.HasErrors() || len(cfg.Jobs) != 1 || strings.Join(cfg.Jobs[0].Roles[0].Command, "|") != strings.Join(c.plain.Command, "|") {
			t.Errorf("%v is read as %+v: %v", c.plain.Command, cfg.Jobs, diags)
		}
	}
	if r := (Plain{Min: 1, Max: maxSlots + 1, Command: []string{"true"}}).Job(); r.Jobs > 0 || !r.Diagnostics.HasErrors() {
		t.Errorf("too many slots give %d jobs, %v", r.Jobs, r.Diagnostics)
	}
}

func TestLaunchersAreKnown(t *testing.T) {
	for words, want := range map[string]bool{
		"torchrun --nnodes=2 a.py": true, "python3 -m torch.distributed.run a.py": true, "/opt/bin/dlrover-run a.py": true, "A=1 torchrun a.py": true,
		"python a.py": false, "python -m train": false, "sh -c torchrun": false, "true": false,
	} {
		if got := IsLauncher(strings.Fields(words)); got != want {
			t.Errorf("%s: %v", words, got)
		}
	}
}
