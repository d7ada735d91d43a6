package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/cmd/view"
)

// twoNodes is a job that fits either of two nodes.
const twoNodes = `provider "local" {
  node "n1" {
    cpu    = 0.2
    memory = "1GiB"
  }
  node "n2" {
    cpu    = 0.2
    memory = "1GiB"
  }
}
` + twoWorkers

// nodesOf returns what eltrain nodes shows, by node.
func nodesOf(t *testing.T, dir string) map[string]view.NodeStatus {
	t.Helper()
	var m view.NodesModel
	if err := json.Unmarshal([]byte(eltrain(t, dir, "nodes", "-json").check(t, exitDone).out), &m); err != nil {
		t.Fatal(err)
	}
	byName := map[string]view.NodeStatus{}
	for _, n := range m.Nodes {
		byName[n.Name] = n
	}
	return byName
}

// An operator empties a node beside a watch, and all that shows nodes says who did it and why.
func TestAWatchDrainsANode(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoNodes})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	w := startWatch(t, dir)
	world := func(generation string) func() bool {
		return func() bool { return strings.Contains(eltrain(t, dir, "status").out, generation+", 2 processes") }
	}
	eventually(t, "it runs", world("generation 1"))
	used, other := "n1", "n2"
	if len(nodesOf(t, dir)["n1"].Slots) == 0 {
		used, other = "n2", "n1"
	}
	if n := nodesOf(t, dir)[used]; len(n.Slots) != 2 || n.Free.CPU != 0 || n.Capacity.CPU != 0.2 || !n.Usable || n.Slots[0].Holds.CPU != 0.1 {
		t.Errorf("with all slots there: %+v", n)
	}
	eltrain(t, dir, "nodes", "n3").check(t, exitError, `There is no node "n3"`, "n1, n2")
	eltrain(t, dir, "drain", "n3").check(t, exitError, "refused: there is no node n3, only n1, n2")
	eltrain(t, dir, "drain").check(t, exitError, "A node is missing")

	eltrain(t, dir, "cordon", "-until=1h", other).check(t, exitDone, "cordon "+other+": done")
	eltrain(t, dir, "drain", "-detach", "-reason=a disk is replaced", used).check(t, exitDone)
	eventually(t, "it waits", func() bool {
		return strings.Contains(eltrain(t, dir, "requests").out, "accepted: Node "+used+" is drained, and no other node has room for the 2 slots there")
	})
	eltrain(t, dir, "nodes").check(t, exitDone, "job.tiny.worker[0-1]", "Drained by")
	eltrain(t, dir, "status").check(t, exitDone, "node."+used+": Drained by", "a disk is replaced", "node."+other+": Cordoned by", ", until ")
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "Cordoned:", "node."+used+": Drained by", "a disk is replaced", "eltrain uncordon "+used)
	eltrain(t, dir, "uncordon", other).check(t, exitDone, "uncordon "+other+": done")
	eventually(t, "it moved", world("generation 2"))
	eltrain(t, dir, "drain", used).check(t, exitDone, "drain "+used+": done")
	empty := nodesOf(t, dir)[used]
	if len(empty.Slots) != 0 || empty.Free.CPU != 0.2 || empty.Usable || empty.Cordon == nil || !empty.Cordon.Drain {
		t.Errorf("drained: %+v", empty)
	}
	if n := nodesOf(t, dir)[other]; len(n.Slots) != 2 || !n.Usable {
		t.Errorf("the other node: %+v", n)
	}
	eltrain(t, dir, "nodes", used).check(t, exitDone, used+"  local  not used", "Drained by")
	eltrain(t, dir, "events").check(t, exitDone, "asked to drain it: a disk is replaced", "drains node "+used+": a disk is replaced", "drain, as")

	// It outlasts the watch.
	w.cmd.Process.Signal(os.Interrupt)
	w.code(t)
	if n := nodesOf(t, dir)[used]; n.Usable || n.Cordon == nil {
		t.Errorf("after the watch: %+v", n)
	}
}

// Without a master the command leads itself. It moves what is on the node, and changes nothing else.
func TestANodeIsDrainedWithoutAMaster(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoNodes})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	rewrite(t, dir, strings.Replace(twoNodes, "step $RANK", "step $RANK again", 1))
	used, other := "n1", "n2"
	if len(nodesOf(t, dir)["n1"].Slots) == 0 {
		used, other = "n2", "n1"
	}
	eltrain(t, dir, "cordon", other).check(t, exitDone, "cordon "+other+": done")
	eltrain(t, dir, "drain", used).check(t, exitError, "accepted: Node "+used+" is drained, and no other node has room")
	eltrain(t, dir, "uncordon", other).check(t, exitDone, "uncordon "+other+": done")
	if n := nodesOf(t, dir)[used]; len(n.Slots) != 2 {
		t.Errorf("an uncordon moved slots: %+v", n)
	}
	eltrain(t, dir, "drain", used).check(t, exitDone, "drain "+used+": done")
	if n := nodesOf(t, dir)[other]; len(n.Slots) != 2 {
		t.Errorf("the slots are not there: %+v", n)
	}
	eltrain(t, dir, "status").check(t, exitDone, "generation 2, 2 processes")
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitChanges, "step $RANK again")
}
