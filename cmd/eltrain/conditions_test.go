package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
)

// growing is a job of one slot that grows to two, with conditions on that.
func growing(conditions, rest string) string {
	return `job "elastic" {
  role "worker" {
    replicas   = 1
    command    = ["sleep", "300"]
    stop_grace = "1s"
    scaling {
      min = 1
      max = 2
    }
    resources {
      cpu = 0.1
    }
  }
  rendezvous {
    settle = "60s" # who comes late on a busy machine is waited for
  }
  lifecycle {
` + conditions + `
  }
}
` + rest
}

const (
	one = `    postcondition {
      condition     = self.role.worker.replicas == 1
      error_message = "It has ${self.role.worker.replicas} workers."
    }`
	check = `check "size" {
  assert {
    condition     = job.elastic.role.worker.replicas == 1
    error_message = "${job.elastic.role.worker.replicas} are too many."
  }
}
`
)

// grow runs a watch until n slots of the elastic job in dir run.
func grow(t *testing.T, dir string, n int) {
	t.Helper()
	watch(t, dir, func(func() string) {
		running := func() (k int) {
			for _, s := range slotsOf(t, dir) {
				if s.Phase == string(job.Running) {
					k++
				}
			}
			return k
		}
		for deadline := time.Now().Add(hang.Bound); running() != n; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the watch never has %d slots running: %s", n, eltrain(t, dir, "status").out)
			}
		}
	})
}

// Conditions are checked for the declared job when it is planned, and for the running job after an apply: a precondition
// stops the plan, a postcondition makes the apply an error, a check only warns.
func TestConditions(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": growing(strings.Replace(one, "postcondition", "precondition", 1), "")})
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitError, "self")
	rewrite(t, dir, "variable \"n\" {\n  default = 2\n}\n"+growing(`    precondition {
      condition     = var.n == 1
      error_message = "n has to be 1."
    }`, ""))
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitError, "Error: Job precondition failed", "n has to be 1.")
	eltrain(t, dir, "status").check(t, exitDone, "No jobs.")

	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	rewrite(t, dir, growing("", check))
	eltrain(t, dir, "plan").check(t, exitDone, "will be created")
	if o := eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Apply complete!"); strings.Contains(o.err, "Warning: Check") {
		t.Errorf("a check warns of what holds:\n%s", o.err)
	}
	grow(t, dir, 2)
	o := eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Warning: Check block assertion failed", "2 are too many.", "Apply complete!")
	if strings.Contains(o.err, "Error") {
		t.Errorf("a check stopped something:\n%s", o.err)
	}
	rewrite(t, dir, growing(one, check))
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitError, "Error: Job postcondition failed", "It has 2 workers.", "main.hcl line")
	out := watch(t, dir, func(said func() string) {
		eventually(t, "it reports the postcondition", func() bool { return strings.Contains(said(), "It has 2 workers.") })
		time.Sleep(time.Second) // a turn or two: a condition that lasts is reported once
	})
	if n := strings.Count(out, "It has 2 workers."); n != 1 {
		t.Errorf("the watch reported the postcondition %d times:\n%s", n, out)
	}
}

// A plan shows changes of outputs, an apply stores them, and show shows them.
func TestOutputs(t *testing.T) {
	file := func(value string) string {
		return "output \"size\" {\n  value = " + value + "\n}\noutput \"token\" {\n  value = \"hunter2hunter2\"\n  sensitive = true\n}\n"
	}
	dir := directoryWith(t, map[string]string{"main.hcl": file("[1, 2]")})
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitChanges, "Changes to Outputs:", "  + size  = [", "  + token = (sensitive value)", "without changing anything that is running")
	o := eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Apply complete! Resources: 0 added", "\nOutputs:\n\nsize = [", "token = <sensitive>")
	if strings.Contains(o.out, "hunter2") || strings.Contains(read(t, dir+"/eltrain.state"), "hunter2") {
		t.Error("a sensitive output is shown or stored")
	}
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "No changes.")
	var shown tfjson.State
	if err := json.Unmarshal([]byte(eltrain(t, dir, "show", "-json").out), &shown); err != nil {
		t.Fatal(err)
	}
	if out := shown.Values.Outputs["size"]; out == nil || len(out.Value.([]any)) != 2 {
		t.Errorf("the state shows %+v", shown.Values.Outputs)
	}
	rewrite(t, dir, file("\"big\""))
	eltrain(t, dir, "plan", "-out=p").check(t, exitDone, "  ~ size = [", `-> "big"`)
	var p tfjson.Plan
	if err := json.Unmarshal([]byte(eltrain(t, dir, "show", "-json", "p").out), &p); err != nil {
		t.Fatal(err)
	}
	if c := p.OutputChanges["size"]; c == nil || !c.Actions.Update() || c.After != "big" {
		t.Errorf("the plan has %+v", c)
	}
	eltrain(t, dir, "apply", "p").check(t, exitDone, `size = "big"`)
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone, "  - size  = \"big\" -> null", "Destroy complete!")
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitChanges, "  + size  = \"big\"")
}

// As in Terraform, a destroy ignores preconditions; prevent_destroy in the files still counts.
func TestAFailingPreconditionStopsNoDestroy(t *testing.T) {
	t.Parallel()
	files := func(n, prevent string) string {
		return "variable \"n\" {\n  default = " + n + "\n}\n" + growing(`    prevent_destroy = `+prevent+`
    precondition {
      condition     = var.n == 1
      error_message = "n has to be 1."
    }`, "")
	}
	dir := directoryWith(t, map[string]string{"main.hcl": files("1", "true")})
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	t.Cleanup(func() {
		rewrite(t, dir, files("1", "false"))
		eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone)
	})
	rewrite(t, dir, files("2", "true"))
	eltrain(t, dir, "plan", "-destroy").check(t, exitError, "Instance cannot be destroyed", "disable lifecycle.prevent_destroy or reduce the scope")
	rewrite(t, dir, files("2", "false"))
	eltrain(t, dir, "plan").check(t, exitError, "n has to be 1.")
	eltrain(t, dir, "plan", "-destroy").check(t, exitDone, "job.elastic.worker")
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone, "Destroy complete!")
}

// For an elastic job that has grown, "Apply complete" comes once the world of the new size trains.
func TestAnElasticJobHasGrownWhenApplyIsComplete(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": growing("", "")})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	rewrite(t, dir, strings.NewReplacer("replicas   = 1", "replicas   = 4", "max = 2", "max = 4").Replace(growing("", "")))
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Plan: 3 to add", "Apply complete!")
	slots := slotsOf(t, dir)
	for address, s := range slots {
		if s.Phase != string(job.Running) {
			t.Errorf("%s is %s", address, s.Phase)
		}
	}
	if len(slots) != 4 {
		t.Errorf("there are %d slots", len(slots))
	}
}

// The results of checks are in all formats of a plan, and in a saved one, and are reported again when it is applied.
func TestChecksAreInEveryFaceOfAPlan(t *testing.T) {
	t.Parallel()
	const says = "1 is not enough."
	files := growing("", `check "enough" {
  assert {
    condition     = job.elastic.role.worker.replicas > 1
    error_message = "${job.elastic.role.worker.replicas} is not enough."
  }
}
output "n" {
  value = 1
  precondition {
    condition     = true
    error_message = "Never."
  }
}
`)
	dir := directoryWith(t, map[string]string{"main.hcl": files})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "plan", "-out=p").check(t, exitDone, "Failed checks:\n  - check.enough: "+says, "Warning: Check block assertion failed")
	eltrain(t, dir, "show", "p").check(t, exitDone, "check.enough: "+says)
	var both bytes.Buffer // as on a terminal
	cmd := commandIn(dir, "plan", "-target=job.elastic")
	cmd.Stdout, cmd.Stderr = &both, &both
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
	at := func(text string) int { return strings.Index(both.String(), text) }
	if plan, check, target := at("Plan: 1 to add"), at("Warning: Check block"), at("Warning: Resource targeting"); plan < 0 || check < plan || target < plan {
		t.Errorf("the warnings do not stand below the plan together:\n%s", both.String())
	}
	for _, o := range []outcome{eltrain(t, dir, "plan", "-markdown"), eltrain(t, dir, "show", "-markdown", "p")} {
		o.check(t, exitDone, "**Failed checks**", "- check.enough: "+says)
	}
	statuses := func(plan string) (got []string) {
		var p tfjson.Plan
		if err := json.Unmarshal([]byte(eltrain(t, dir, "show", "-json", plan).check(t, exitDone).out), &p); err != nil {
			t.Fatal(err)
		}
		for _, c := range p.Checks {
			got = append(got, c.Address.ToDisplay+" "+string(c.Status))
			for _, problem := range c.Instances[0].Problems {
				got = append(got, problem.Message)
			}
		}
		return got
	}
	if got, want := statuses("p"), []string{"output.n pass", "check.enough fail", says}; !slices.Equal(got, want) {
		t.Errorf("the checks are %q", got)
	}
	eltrain(t, dir, "apply", "p").check(t, exitDone, "Warning: Check block assertion failed", says, "Apply complete!")
	eltrain(t, dir, "plan", "-destroy", "-out=end").check(t, exitDone)
	if got, want := statuses("end"), []string{"output.n unknown", "check.enough unknown"}; !slices.Equal(got, want) {
		t.Errorf("the checks of a destroy are %q", got)
	}
}
