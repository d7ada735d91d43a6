package lang

import (
	"strings"
	"testing"

	"github.com/eltrain/eltrain/job"
)

const declarable = `
variable "pattern" {
  default = "step (?P<step>\\d+)"
}
job "whole" {
  priority = -3
  limits {
    cpu = 400
    devices = { gpu = 0 }
  }
  role "1st" {
    command    = ["sh", "-c", "echo ${slot.index}"]
    env        = slot.index == 0 ? { A = "x" } : {}
    depends_on = [role["2nd"]]
    scaling {
      min   = 2
      max   = 9
      sizes = [2, 9]
    }
    resources {
      cpu    = 0.5
      memory = "1500000001B"
      devices = { gpu = 0 }
    }
    pod = { spec = { n = 3.5, x = null, l = [1, "a", { b = true }] } }
  }
  role "2nd" {
    replicas = 4
    ranked   = false
    command  = ["x"]
    stop_grace = "0s"
    scaling {
      min  = 1
      max  = 8
      step = 4
    }
  }
  progress {
    pattern = var.pattern
  }
  checkpoint {
    dir    = "c"
    signal = "SIGUSR1"
  }
  topology {
    rank_by = ["node.labels.rack"]
    group "tensor" {
      size = 1
    }
    group "dp" {}
  }
  heal {
    budget {
      restarts = 0
    }
    on "oom" {
      memory = "x1.5"
    }
  }
  lifecycle {
    prevent_destroy = true
    ignore_changes  = [priority, role["1st"].env["a.b\"c"], heal]
  }
}
job "small" {
  for_each = toset(["a", "b"])
  role "w" {
    command = ["x"]
    scaling {
      min = 3
      max = 5
    }
  }
  lifecycle {
    ignore_changes = all
  }
}
`

func declared(t *testing.T) []job.Job {
	t.Helper()
	cfg, diags := Parse(map[string][]byte{"main.hcl": []byte(declarable)}, Options{})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return cfg.Jobs
}

func TestDeclaredJobsAreDeclarable(t *testing.T) {
	jobs := declared(t)
	if len(jobs) != 3 {
		t.Fatalf("there are %d jobs", len(jobs))
	}
	jobs[2].Address = `module.x["y"].job.z`
	jobs[2].Name = "x-y-z"
	if err := CheckJobs(jobs); err != nil {
		t.Error(err)
	}
	if err := CheckJobs(nil); err != nil {
		t.Error(err)
	}
	s := new(job.Sealer)
	s.SetKey([]byte("key"))
	jobs[0].Secrets = []string{jobs[0].Progress.Pattern, "sh"}
	sealed := s.Jobs(jobs)
	if sealed[0].Progress.Pattern == jobs[0].Progress.Pattern {
		t.Fatal("the pattern is not sealed")
	}
	if err := CheckJobs(sealed); err != nil {
		t.Errorf("with seals: %v", err)
	}
}

func TestUndeclarableJobsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(jobs []job.Job, j *job.Job, r *job.Role) []job.Job
		want string
	}{
		"replicas": {func(_ []job.Job, _ *job.Job, r *job.Role) []job.Job {
			r.Replicas, r.Scaling, r.PerSlot = 1e9, nil, nil
			return nil
		}, "Too many slots"},
		"max":      {func(_ []job.Job, _ *job.Job, r *job.Role) []job.Job { r.Scaling.Max, r.PerSlot = 1e9, nil; return nil }, "Too many slots"},
		"together": {func(_ []job.Job, j *job.Job, _ *job.Role) []job.Job { j.Roles[1].Scaling.Max = MaxSlots; return nil }, "Too many slots"},
		"no slot": {func(_ []job.Job, _ *job.Job, r *job.Role) []job.Job {
			r.Replicas, r.Scaling, r.PerSlot = -5, nil, nil
			return nil
		}, "at least 1 slot, not -5"},
		"sizes":      {func(_ []job.Job, _ *job.Job, r *job.Role) []job.Job { r.Scaling.Sizes = []int{}; return nil }, "No legal size"},
		"min":        {func(_ []job.Job, _ *job.Job, r *job.Role) []job.Job { r.Scaling.Min = 0; return nil }, `"min"`},
		"processes":  {func(_ []job.Job, _ *job.Job, r *job.Role) []job.Job { r.Processes = 1 << 40; return nil }, "Invalid number of processes"},
		"twice":      {func(jobs []job.Job, j *job.Job, _ *job.Role) []job.Job { return append(jobs, *j) }, `Duplicate job "whole"`},
		"role twice": {func(_ []job.Job, j *job.Job, r *job.Role) []job.Job { j.Roles = append(j.Roles, *r); return nil }, `Duplicate role "1st"`},
		"no role": {func(_ []job.Job, j *job.Job, _ *job.Role) []job.Job {
			j.Roles, j.Lifecycle = nil, job.Lifecycle{}
			return nil
		}, "No role"},
		"name":      {func(_ []job.Job, j *job.Job, _ *job.Role) []job.Job { j.Name, j.Address = "../x", ""; return nil }, `"../x" cannot be a name`},
		"role name": {func(_ []job.Job, _ *job.Job, r *job.Role) []job.Job { r.Name = "a/b"; return nil }, `"a/b" cannot be a name`},
		"address":   {func(_ []job.Job, j *job.Job, _ *job.Role) []job.Job { j.Address = "job.other"; return nil }, `address "job.other"`},
		"command": {func(_ []job.Job, _ *job.Job, r *job.Role) []job.Job {
			r.Command, r.PerSlot = []string{}, nil
			return nil
		}, "Empty command"},
		"NUL": {func(_ []job.Job, _ *job.Job, r *job.Role) []job.Job {
			r.PerSlot[7].Command = []string{"a\x00"}
			return nil
		}, "NUL"},
		"a slot's": {func(_ []job.Job, _ *job.Job, r *job.Role) []job.Job { r.PerSlot[7].Command = nil; return nil }, `"command"`},
		"variable": {func(_ []job.Job, _ *job.Job, r *job.Role) []job.Job {
			r.PerSlot[7].Env = map[string]string{"RANK": "7"}
			return nil
		}, "eltrain sets"},
		"slots":   {func(_ []job.Job, _ *job.Job, r *job.Role) []job.Job { r.PerSlot = r.PerSlot[:3]; return nil }, "its programs"},
		"hidden":  {func(_ []job.Job, _ *job.Job, r *job.Role) []job.Job { r.PerSlot[0].Command = []string{"y"}; return nil }, "its programs"},
		"cpu":     {func(_ []job.Job, _ *job.Job, r *job.Role) []job.Job { r.Resources.CPU = -1000; return nil }, `"cpu"`},
		"devices": {func(_ []job.Job, _ *job.Job, r *job.Role) []job.Job { r.Resources.Devices["gpu"] = -1; return nil }, "Invalid number of devices"},
		"order":   {func(_ []job.Job, _ *job.Job, r *job.Role) []job.Job { r.DependsOn = []string{"none"}; return nil }, `no role "none"`},
		"cycle":   {func(_ []job.Job, _ *job.Job, r *job.Role) []job.Job { r.DependsOn = []string{r.Name}; return nil }, "Start order in a cycle"},
		"floor": {func(_ []job.Job, j *job.Job, _ *job.Role) []job.Job {
			j.Detect.Hang = &job.HangLimits{Ceiling: job.Duration(60e9)}
			return nil
		}, "Floor too short"},
		"check": {func(_ []job.Job, j *job.Job, _ *job.Role) []job.Job {
			j.Detect.Check = &job.NodeCheck{When: job.CheckAlways, Timeout: j.Rendezvous.Timeout}
			return nil
		}, "Timeout above the rendezvous timeout"},
		"lease":   {func(_ []job.Job, j *job.Job, _ *job.Role) []job.Job { j.Detect.Lease = 0; return nil }, "Lease too short"},
		"pattern": {func(_ []job.Job, j *job.Job, _ *job.Role) []job.Job { j.Progress.Pattern = "("; return nil }, "Invalid pattern"},
		"ignored": {func(_ []job.Job, j *job.Job, _ *job.Role) []job.Job {
			j.Lifecycle.IgnoreChanges = []string{"none"}
			return nil
		}, `no argument "none"`},
		"key": {func(_ []job.Job, j *job.Job, _ *job.Role) []job.Job {
			j.Lifecycle.IgnoreChanges = []string{`role.1st.env["a`}
			return nil
		}, "no argument"},
	} {
		jobs := declared(t)
		if more := c.edit(jobs, &jobs[0], &jobs[0].Roles[0]); more != nil {
			jobs = more
		}
		if err := CheckJobs(jobs); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
