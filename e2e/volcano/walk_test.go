package volcano

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/soak"
)

// The first gang, as in docs/volcano.md: every command of the page, on a cluster with Volcano as its chart installs it.
func TestThePageLeadsToAGang(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	podsite.RequireCluster(t)
	page := podsite.OpenPage(t, filepath.Join("..", "..", "docs", "volcano.md"), "## The first gang")
	own := newCharted(t)
	w := podsite.NewDemo(t, own, programs, podsite.Local("volcano", 4))
	shell := func(node string) string { return w.Shell("", strings.ReplaceAll(page.Block("sh"), "NODE", node)) }
	const long = 5 * site.Steps
	w.SetSteps(long)
	w.SetLease(site.Lenient)

	// 1. Volcano, and a queue.
	site.Has(t, shell(""), "podgroups.scheduling.volcano.sh", "default")
	dir := t.TempDir()
	w.OK(os.WriteFile(filepath.Join(dir, "queue.yaml"), []byte(page.Block("yaml")), 0o644))
	w.Shell(dir, "kubectl apply -f queue.yaml")
	// 2. The job: NewDemo has written the files as the page says, and the variables except the queue.
	for _, line := range strings.Split(strings.TrimSpace(page.Block("")), "\n") {
		name, _, _ := strings.Cut(line, " ")
		if !strings.Contains(w.Read("eltrain.vars"), name+" = ") {
			w.Write("eltrain.vars", w.Read("eltrain.vars")+line+"\n")
		}
	}
	// 3. The plan says what this scheduler does not do.
	plan, said := w.Must("plan"), page.Block("")
	for _, line := range strings.Split(strings.TrimSpace(said), "\n") {
		site.Has(t, plan, strings.TrimSuffix(strings.TrimSpace(line), " ..."))
	}
	// 4. Three of four, and the fourth once there is room for it.
	m := w.Watch()
	three := w.AwaitWorld(3, 1)
	page.Block("")
	m.AwaitOutput(fmt.Sprintf("job.mnist: generation %d: 3 slots, 3 processes, rank 0 at ", three.Generation))
	w.Await("the fourth, and what it waits for", func(j site.Job) bool {
		return j.Says("Unschedulable: pod group is not ready, 1 Pending, 2 minAvailable, 3 Running")
	})
	site.Has(t, shell(""), "mnist-", "queue.scheduling.volcano.sh/research patched")
	four := w.AwaitWorld(4, three.Generation+1)
	// 5. Break it.
	leaver := four.Worker(3)
	shell(leaver.Node)
	w.Await("no slot on the drained node, and a new pod for the deleted one", func(j site.Job) bool {
		return j.WorldSize == 3 && j.On(leaver.Node).Address == "" && j.Worker(1).Incarnation > 1
	})
	site.Until(t, "the PodGroup is there again", func() bool { return podGroupIn(w, own) != nil })
	own.Uncordon(t, leaver.Node)
	w.AwaitWorld(4, four.Generation+1)
	w.ContinuesRight(long)
}
