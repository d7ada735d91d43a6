package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	tfjson "github.com/hashicorp/terraform-json"

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

// Conditions hold of what is declared when it is planned, and of what runs after it was applied: a precondition stops
// the plan, a postcondition makes the apply an error, a check only warns.
func TestConditions(t *testing.T) {
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
	o := eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Warning: Check block assertion failed", "2 are too many.", "Apply complete!")
	if strings.Contains(o.err, "Error") {
		t.Errorf("a check stopped something:\n%s", o.err)
	}
	rewrite(t, dir, growing(one, check))
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitError, "Error: Job postcondition failed", "It has 2 workers.", "main.hcl line")
	out := watch(t, dir, func() {
		for deadline := time.Now().Add(20 * time.Second); !strings.Contains(eltrain(t, dir, "status").out, "(pid "); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("status never tells of the master")
			}
		}
		time.Sleep(time.Second) // a turn or two: what holds on is told once
	})
	if n := strings.Count(out, "It has 2 workers."); n != 1 {
		t.Errorf("the watch told of the postcondition %d times:\n%s", n, out)
	}
}

// Outputs are shown with what becomes of them, remembered when they are applied, and shown again.
func TestOutputs(t *testing.T) {
	file := func(value string) string {
		return "output \"size\" {\n  value = " + value + "\n}\noutput \"token\" {\n  value = \"hunter2hunter2\"\n  sensitive = true\n}\n"
	}
	dir := directoryWith(t, map[string]string{"main.hcl": file("[1, 2]")})
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitChanges, "Changes to Outputs:", "  + size  = [", "  + token = (sensitive value)", "without changing anything that runs")
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

// Terraform does not ask preconditions when it destroys: what the files say of prevent_destroy counts as ever.
func TestAFailingPreconditionStopsNoDestroy(t *testing.T) {
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

// "Apply complete" is said of an elastic job that has grown once the world of the new size trains.
func TestAnElasticJobHasGrownWhenApplyIsComplete(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": growing("", "")})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	rewrite(t, dir, strings.Replace(growing("", ""), "max = 2", "max = 4", 1))
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Plan: 2 to add", "Apply complete!")
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
