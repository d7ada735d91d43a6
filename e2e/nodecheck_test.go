package e2e

import (
	"strings"
	"testing"

	"github.com/eltrain/eltrain/e2e/site"
)

// A check by a user's program keeps slots off nodes that are faulty: one that says so, after a gigabyte of output, and one on which the
// check hangs. The first is marked, and training begins on the others.
func TestNodesAreCheckedBeforeTraining(t *testing.T) {
	t.Parallel()
	s := newSite(t, map[string]string{"nodes.hcl": site.Nodes("n1", "n2", "n3", "n4"), "job.hcl": `
job "c" {
  role "worker" {
    replicas = 2
    command  = ["sleep", "600"]
    resources { cpu = 1 }
  }
  detect {
    check {
      when    = "always"
      timeout = "10s"
      command = ["sh", "-c", file("check.sh")]
    }
  }
}
`, "check.sh": `
case $ELTRAIN_NODE in
  n1) echo "disk sda: 17 bad sectors"; head -c 1073741824 /dev/zero; exit 1 ;;
  n2) echo "asks the controller"; trap '' TERM; while :; do sleep 60; done ;;
esac
echo good
`}).Of("c")
	s.Watch()
	j := s.Await("the job trains", func(j site.Job) bool { return j.Phase == "Running" && j.WorldSize == 2 })
	for _, node := range []string{"n3", "n4"} {
		if j.On(node).Phase != "Running" {
			t.Errorf("nothing runs on %s: %+v", node, j)
		}
	}
	incidents := 0
	for _, i := range j.Incidents {
		if i.Cause != "node_faulty" || i.Action != "replace" {
			t.Errorf("%+v", i)
		}
		incidents += len(i.Culprits)
	}
	if incidents != 2 {
		t.Errorf("%d nodes were found: %+v", incidents, j.Incidents)
	}
	site.Has(t, s.Must("nodes", "n1", "-no-color"), "Used last since", "the check of node n1 failed: its program: disk sda: 17 bad sectors")
	site.Has(t, s.Must("events", "-no-color"), "the check of node n2 did not end in 5.", "asks the controller")
	if out := s.Must("nodes", "n2", "-no-color"); strings.Contains(out, "Used last") {
		t.Errorf("a node is marked that was late once:\n%s", out)
	}
}

// A program that cannot be started is the job's fault, and no node's.
func TestCheckThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	s := newSite(t, map[string]string{"nodes.hcl": site.Nodes("n1", "n2"), "job.hcl": `
job "c" {
  role "worker" { command = ["sleep", "600"] }
  detect {
    check {
      when    = "always"
      command = ["no-such-check"]
    }
  }
}
`}).Of("c")
	out, code := s.Run("apply", "-auto-approve", "-no-color")
	if code == 0 {
		t.Errorf("apply ends with 0:\n%s", out)
	}
	site.Has(t, out, "no-such-check")
	if j := s.Status(); j.Phase != "Failed" || j.Last().Cause != "start_failed" {
		t.Errorf("%+v", j)
	}
	if nodes := s.Must("nodes", "-no-color"); strings.Contains(nodes, "Used last") {
		t.Errorf("a node is marked:\n%s", nodes)
	}
}
