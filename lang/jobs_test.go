package lang

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eltrain/eltrain/job"
)

// TestDefaults checks the schema's defaults of a job without optional blocks.
func TestDefaults(t *testing.T) {
	j := mustParse(t, inJob("")).Jobs[0]
	want := job.Job{
		Name: "j", Address: "job.j", Provider: "local",
		Roles: []job.Role{{
			Name: "worker", Replicas: 1, Processes: 1, Ranked: true, StopGrace: 30e9,
			Program: job.Program{Command: []string{"true"}, WorkingDir: "."},
		}},
		Rendezvous: job.Rendezvous{Settle: 5e9, Timeout: 600e9},
		Detect:     job.Detect{Lease: 15e9},
		Heal:       job.Heal{Budget: job.Budget{Restarts: 10, Window: 24 * 3600e9}},
		Source:     job.Source{File: "job.hcl", Line: 1},
	}
	if diff := cmp.Diff(want, j); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// full sets every argument of a job to a value other than its default.
const full = `
job "full" {
  provider = "kubernetes"
  priority = 7
  suspend  = true
  preempt  = true

  preemptible = true
  limits {
    cpu     = 100
    memory  = "1TiB"
    devices = { "nvidia.com/gpu" = 64 }
  }
  role "worker" {
    replicas    = 4
    processes   = 2
    ranked      = false
    image       = "img"
    command     = ["run", "${slot.index}"]
    working_dir = "src"
    env         = { A = "1" }
    source      = ["jobs_test.go"]
    depends_on  = [role.ps]
    stop_grace  = "1m"
    pod         = { spec = { priority = 3, names = ["a"], on = true, half = 0.5, none = null } }
    scaling {
      min  = 2
      max  = 8
      step = 2

      enabled             = true
      dry_run             = true
      evaluation_interval = "20s"
      tolerance           = 0.2
      max_scale_up        = 4
      max_scale_down      = 2
      freeze              = "15m"
      explore             = 1
      batch               = "global"
      on_check_error      = "ignore"
      cooldown {
        up   = "9m"
        down = "4m"
      }
      stabilization_window {
        up   = "1m"
        down = "3m"
      }
      fallback {
        failures = 2
        replicas = 4
      }
      policy "tokens" {
        source "training" {
          metric = "tokens_per_second"
          ranks  = "sum"
          window = "3m"
        }
        strategy "target-value" {
          target = 1000.5
          rising = false
        }
      }
      policy "rank" {
        source "training" {
          metric = "loss"
          rank   = 1
        }
        strategy "threshold" {
          above   = 1
          below   = 2
          percent = -10
          within  = 3
        }
      }
      policy "idle" {
        source "prometheus" {
          address = "http://prometheus:9090"
          query   = "avg(up)"
          offset  = "1m"
          headers = { Authorization = "Bearer x" }
          timeout = "3s"
        }
        strategy "threshold" {
          below = 30
          delta = -2
        }
      }
      policy "queue" {
        source "http" {
          address = "http://queue:80/length"
          field   = "queue.length"
        }
        strategy "pass-through" {}
      }
      policy "spot" {
        source "capacity" {
          metric = "price"
          label  = "node.labels.price"
        }
        strategy "threshold" {
          above = 3
          delta = -2
        }
      }
      policy "own" {
        source "exec" {
          command = ["./size.sh"]
        }
        strategy "pass-through" {}
      }
      policy "nights" {
        schedule {
          start    = "0 20 * * 1-5"
          duration = "11h"
          timezone = "Europe/Berlin"
        }
        strategy "fixed-value" {
          replicas = 8
        }
      }
    }
    update { max_unavailable = 2 }
    resources {
      cpu     = 1.5
      memory  = "3GiB"
      devices = { "nvidia.com/gpu" = 2 }
      shm     = "1GiB"
    }
    accelerators { command = ["gpus"] }
  }
  role "ps" {
    command = ["ps"]
    scaling {
      min   = 1
      max   = 8
      sizes = [1, 4]
    }
  }
  progress {
    pattern = "(?P<step>x)"
  }
  checkpoint {
    dir     = "ckpt"
    signal  = "SIGUSR2"
    pattern = "saved (?P<step>x)"
  }
  rendezvous {
    settle  = "1s"
    timeout = "20s"
  }
  topology {
    rank_by = ["node.labels.rack"]
    group "tensor" {
      size = 1
    }
    group "dp" {}
  }
  detect {
    lease = "3s"
    hang {
      floor   = "10s"
      ceiling = "1h"
    }
    check {
      when    = "always"
      timeout = "10s"
      command = ["check-node"]
    }
  }
  heal {
    budget {
      restarts = 1
      window   = "2h"
    }
    exit_codes = { 3 = "fail" }
    signatures = "[]"
    on "oom" {
      memory = "x2"
      limit  = 5
    }
    on "pending_timeout" {
      after = "6h"
    }
    on "network" {
      action  = "replace"
      window  = "2h"
      backoff = "10s"
    }
  }
  lifecycle {
    prevent_destroy = true
    ignore_changes  = [priority]
  }
  deadline = "2026-12-01T08:00:00Z"
  stop_when {
    metric = "loss"
    ranks  = "max"
    above  = 0
    below  = 1.8
    for    = "200 steps"
    as     = "failed"
  }
}
provider "kubernetes" {}
`

// TestEveryFieldDecodes walks the declared types. It fails for a field that the language cannot decode, or that
// the full example omits.
func TestEveryFieldDecodes(t *testing.T) {
	j := mustParse(t, full).Jobs[0]
	defaults := mustParse(t, inJob("")).Jobs[0]
	seen := map[string]bool{} // "Type.field" that differ from their default somewhere
	all := map[string]bool{}
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		for _, f := range job.Fields(v.Type()) {
			key := v.Type().Name() + "." + f.Name
			all[key] = true
			got := v.FieldByIndex(f.Index)
			if f.Kind != job.Block {
				plain := reflect.New(f.Type).Elem()
				if f.Kind != job.References && f.Kind != job.Paths && f.Kind != job.Label {
					setDefault(plain, f)
				}
				if !reflect.DeepEqual(plain.Interface(), got.Interface()) {
					seen[key] = true
				}
				continue
			}
			switch got.Kind() {
			case reflect.Slice:
				for i := range got.Len() {
					walk(got.Index(i))
				}
				seen[key] = seen[key] || got.Len() > 0
			case reflect.Pointer:
				if !got.IsNil() {
					seen[key] = true
					walk(got.Elem())
				}
			default:
				seen[key] = true
				walk(got)
			}
		}
	}
	walk(reflect.ValueOf(mustParse(t, inJob(`progress { recognizers = "[]" }`)).Jobs[0])) // not together with pattern
	walk(reflect.ValueOf(mustParse(t, inJob(`role "x" {
		command = ["x"]
		accelerators { dcgm = "http://localhost:9400/metrics" }
	}`)).Jobs[0])) // not together with command
	walk(reflect.ValueOf(mustParse(t, inJob(`role "x" {
		command = ["x"]
		scaling {
			min = 1
			max = 2
			policy "worth-it" {
				strategy "efficiency" {
					min_efficiency = 0.8
					payback        = "20m"
				}
			}
		}
	}`)).Jobs[0])) // not of an unranked role
	walk(reflect.ValueOf(j))
	for key := range all {
		if !seen[key] {
			t.Errorf("the full example does not set %s, or it was not decoded", key)
		}
	}
	// Every declared type must be reached, or its fields were not checked.
	if reached := len(all); reached < 40 {
		t.Errorf("only %d fields were found", reached)
	}
	if len(job.Diff(defaults, j)) == 0 {
		t.Error("the full example does not differ from the defaults")
	}
	want := map[string]any{"spec": map[string]any{"priority": int64(3), "names": []any{"a"}, "on": true, "half": 0.5, "none": nil}}
	if diff := cmp.Diff(want, j.Roles[0].Pod); diff != "" {
		t.Errorf("pod: -want +got:\n%s", diff)
	}
}

func TestSlotIsLate(t *testing.T) {
	j := mustParse(t, `
job "j" {
  role "w" {
    replicas = 2
    command  = ["run", "--shard=${slot.index}", slot.address]
    env      = { WHO = "${slot.job}/${slot.role}", SAME = "x" }
    image    = "img"
    scaling {
      min = 1
      max = 3
    }
  }
  role "plain" {
    command = ["x"]
  }
}`).Jobs[0]
	w := &j.Roles[0]
	if len(w.PerSlot) != 3 {
		t.Fatalf("PerSlot has %d programs, want one for each slot up to max = 3", len(w.PerSlot))
	}
	for i := range 3 {
		p := w.For(i)
		want := job.Program{
			Image: "img", WorkingDir: ".",
			Command: []string{"run", fmt.Sprintf("--shard=%d", i), fmt.Sprintf("job.j.w[%d]", i)},
			Env:     map[string]string{"WHO": "j/w", "SAME": "x"},
		}
		if diff := cmp.Diff(want, p); diff != "" {
			t.Errorf("slot %d: -want +got:\n%s", i, diff)
		}
	}
	if diff := cmp.Diff(w.PerSlot[0], w.Program); diff != "" {
		t.Errorf("Program is not index 0's: %s", diff)
	}
	if j.Roles[1].PerSlot != nil {
		t.Error("a role that does not refer to slot has PerSlot")
	}
}

func TestSlotErrors(t *testing.T) {
	tests := map[string]struct{ src, want string }{
		"elsewhere":         {inRole(`replicas = slot.index`), "slot not available here"},
		"in resources":      {inRole("resources {\n      cpu = slot.index + 1\n    }"), "slot not available here"},
		"other role's late": {inRole(`env = { A = slot.index }`) + "", ""},
		"referred to":       {"job \"j\" {\n  role \"a\" {\n    command = [slot.address]\n  }\n  role \"b\" {\n    command = role.a.command\n  }\n}\n", "differs from slot to slot"},
		"value":             {inRole(`working_dir = ["${slot.index}"]`), "working_dir"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.want == "" {
				mustParse(t, tt.src)
				return
			}
			if text := mustFail(t, tt.src); !strings.Contains(text, tt.want) {
				t.Errorf("want %q in:\n%s", tt.want, text)
			}
		})
	}
}

// TestTwoGraphs is the example of design.md: a role's size depends on the workers, but the workers start later.
func TestTwoGraphs(t *testing.T) {
	j := mustParse(t, `
job "j" {
  role "worker" {
    replicas   = 9
    command    = ["w", "--cpu=${role.worker.resources.cpu}", "--grace=${role.ps.stop_grace}"]
    depends_on = [role.ps]
    resources {
      cpu = 2
    }
  }
  role "ps" {
    replicas = ceil(role.worker.replicas / 4)
    command  = ["p", try(role.worker.scaling.min, "fixed"), jsonencode(role.worker.resources)]
  }
  limits {
    cpu = role.worker.replicas * role.worker.resources.cpu
  }
}`).Jobs[0]
	if got := j.Role("ps").Replicas; got != 3 {
		t.Errorf("ps.replicas = %d, want 3", got)
	}
	if diff := cmp.Diff([]string{"w", "--cpu=2", "--grace=30s"}, j.Role("worker").Command); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"p", "fixed", `{"cpu":2,"devices":null,"memory":null,"shm":null}`}, j.Role("ps").Command); diff != "" {
		t.Error(diff)
	}
	if got := *j.Limits.CPU; got != 18000 {
		t.Errorf("limits.cpu = %d, want 18000", got)
	}
	if got := j.Role("worker").DependsOn; !slices.Equal(got, []string{"ps"}) {
		t.Errorf("depends_on = %q", got)
	}
}

func TestElasticRoleStartsAtMin(t *testing.T) {
	j := mustParse(t, inRole("scaling {\n      min = 3\n      max = 8\n      step = 2\n    }")).Jobs[0]
	if got := j.Roles[0].Replicas; got != 4 {
		t.Errorf("replicas = %d, want 4, the smallest legal size", got)
	}
}

func TestDynamicBlocks(t *testing.T) {
	cfg := mustParse(t, `
locals {
  nodes = { n1 = 2, n2 = 4 }
  roles = [{ name = "a", n = 1, elastic = true }, { name = "b", n = 2, elastic = false }]
}
provider "local" {
  dynamic "node" {
    for_each = local.nodes
    labels   = [node.key]
    content {
      cpu = node.value
    }
  }
}
job "j" {
  dynamic "role" {
    for_each = local.roles
    iterator = r
    labels   = [r.value.name]
    content {
      replicas = r.value.n
      command  = ["run", r.value.name, slot.index, role.a.stop_grace]
      dynamic "scaling" {
        for_each = r.value.elastic ? [r.value.n] : []
        content {
          min = scaling.value
          max = scaling.value + r.value.n
        }
      }
    }
  }
  heal {
    dynamic "on" {
      for_each = ["oom"]
      labels   = [on.value]
      content {
        memory = "x1.5"
      }
    }
  }
}`)
	nodes := cfg.Providers[0].Value.(localConfig).Nodes
	if len(nodes) != 2 || nodes[1].Name != "n2" || nodes[1].CPU != 4000 {
		t.Errorf("nodes = %+v", nodes)
	}
	j := cfg.Jobs[0]
	if len(j.Roles) != 2 || j.Roles[0].Scaling == nil || j.Roles[0].Scaling.Max != 2 || j.Roles[1].Scaling != nil {
		t.Fatalf("roles = %+v", j.Roles)
	}
	if got := j.Roles[1].For(1).Command; !slices.Equal(got, []string{"run", "b", "1", "30s"}) {
		t.Errorf("command = %q", got)
	}
	if len(j.Heal.On) != 1 || j.Heal.On[0].Cause != "oom" {
		t.Errorf("on = %+v", j.Heal.On)
	}
}

func TestFilesOfADirectory(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("b.hcl", "job \"b\" {\n  role \"w\" {\n    command = [templatefile(\"t.tmpl\", { names = [\"x\", \"y\"] }), local.l, file(\"t.txt\")]\n  }\n}\n")
	write("a.hcl", "locals { l = \"local\" }\n"+inJob(""))
	write("t.tmpl", "%{ for n in names }<${n}>%{ endfor }")
	write("t.txt", "text")
	write(".#a.hcl", "an editor's lock is no configuration {")
	write("a.hcl~", "nor is its backup {")
	if err := os.MkdirAll(filepath.Join(dir, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	write("below/c.hcl", "not read {")
	cfg, diags := Load(dir, options())
	if len(diags) > 0 {
		t.Fatal(render(cfg, diags))
	}
	if len(cfg.Jobs) != 2 || cfg.Jobs[0].Name != "j" || cfg.Jobs[1].Name != "b" {
		t.Fatalf("jobs in the files' order: %+v", cfg.Jobs)
	}
	if got := cfg.Jobs[1].Roles[0].Command; !slices.Equal(got, []string{"<x><y>", "local", "text"}) {
		t.Errorf("command = %q", got)
	}

	// One bad file does not hide errors in the others.
	write("a.hcl", "job {")
	write("b.hcl", inRole("replicas = 0"))
	cfg, diags = Load(dir, options())
	text := render(cfg, diags)
	for _, want := range []string{"a.hcl", "Invalid number of replicas"} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in:\n%s", want, text)
		}
	}
}

func TestNothingToRead(t *testing.T) {
	for name, dir := range map[string]string{"empty": t.TempDir(), "missing": filepath.Join(t.TempDir(), "x")} {
		cfg, diags := Load(dir, options())
		if !diags.HasErrors() {
			t.Errorf("%s directory: no error, and %d jobs: a master would end all jobs", name, len(cfg.Jobs))
		}
	}
	o := options()
	o.Assignments = []Assignment{{File: "nowhere.vars"}}
	if _, diags := Load("testdata/sketch", o); !diags.HasErrors() {
		t.Error("a missing -var-file is not an error")
	}
}

func TestProviderNeedsDeclaration(t *testing.T) {
	text := mustFail(t, inJob(`provider = "kubernetes"`))
	if !strings.Contains(text, `Add a block: provider "kubernetes" {}`) {
		t.Error(text)
	}
	mustParse(t, inJob(`provider = "local"`))
}

// TestDeterministic checks that the same input gives the same output, with errors in the same order.
func TestDeterministic(t *testing.T) {
	for _, dir := range []string{"testdata/errors_names", "testdata/errors_rules", "testdata/errors_values", "testdata/sketch"} {
		var first string
		for i := range 10 {
			cfg, diags := Load(dir, options())
			declared, err := json.Marshal(cfg.Jobs)
			if err != nil {
				t.Fatal(err)
			}
			text := render(cfg, diags) + string(declared)
			if i == 0 {
				first = text
			}
			if text != first {
				t.Fatalf("%s: the output differs:\n%s", dir, cmp.Diff(first, text))
			}
		}
	}
}
