package volcano

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/testbed"
)

// walk is a platform engineer who does what docs/volcano.md says, to the letter.
type walk struct {
	*site.Demo
	page       string // what of it is still ahead
	kubectl    string // the testbed's
	kubeconfig string // of the cluster's administrator
}

// block goes on to the next code block of a language and gives its text, without the indent of the list that it is in.
func (w *walk) block(language string) string {
	w.T.Helper()
	found := regexp.MustCompile("(?ms)^( *)```" + language + "\n(.*?)^ *```$").FindStringSubmatchIndex(w.page)
	if found == nil {
		w.T.Fatalf("docs/volcano.md has no further %s", language)
	}
	indent, text := w.page[found[2]:found[3]], w.page[found[4]:found[5]]
	w.page = w.page[found[1]:]
	return regexp.MustCompile("(?m)^"+indent).ReplaceAllString(text, "")
}

// shell does a block of commands, NODE being one of the demo's, and gives what they say.
func (w *walk) shell(node string) string {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(w.T.Context(), site.Bound)
	defer cancel()
	commands := strings.ReplaceAll(w.block("sh"), "NODE", node)
	cmd := exec.CommandContext(ctx, "sh", "-e", "-c", commands)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.kubeconfig, "PATH="+filepath.Dir(w.kubectl)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.T.Fatalf("%s\n%v\n%s", commands, err, out)
	}
	return string(out)
}

// admin makes the administrator's kubeconfig one for the demo's namespace.
func (w *walk) admin(c *testbed.Cluster) {
	config, err := clientcmd.LoadFromFile(c.AdminKubeconfig())
	w.OK(err)
	config.Contexts[config.CurrentContext].Namespace = w.Namespace
	w.kubeconfig = filepath.Join(w.T.TempDir(), "admin.kubeconfig")
	w.OK(clientcmd.WriteToFile(*config, w.kubeconfig))
}

// The first gang, as docs/volcano.md has it: every command of it, on a cluster with Volcano as its chart installs it.
func TestThePageLeadsToAGang(t *testing.T) {
	t.Parallel()
	site.Needed(t)
	binaries, err := testbed.Binaries()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "volcano.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, first, there := strings.Cut(string(page), "## The first gang\n")
	if !there {
		t.Fatal("docs/volcano.md has no first gang")
	}
	own := newCharted(t)
	w := &walk{Demo: site.NewDemo(t, own, programs, site.Local("volcano", 4)), page: first, kubectl: filepath.Join(binaries, testbed.Kubectl)}
	w.admin(own)
	const long = 5 * site.Steps
	w.SetSteps(long)

	// 1. Volcano, and a queue.
	site.Has(t, w.shell(""), "podgroups.scheduling.volcano.sh", "default")
	queue := filepath.Join(t.TempDir(), "queue.yaml")
	w.OK(os.WriteFile(queue, []byte(w.block("yaml")), 0o644))
	if out, err := exec.CommandContext(t.Context(), w.kubectl, "--kubeconfig="+w.kubeconfig, "apply", "-f", queue).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// 2. The job: NewDemo has done what it says of the files; of the variables it lacks the queue.
	for _, line := range strings.Split(strings.TrimSpace(w.block("")), "\n") {
		name, _, _ := strings.Cut(line, " ")
		if !strings.Contains(w.Read("eltrain.vars"), name+" = ") {
			w.Write("eltrain.vars", w.Read("eltrain.vars")+line+"\n")
		}
	}
	// 3. The plan says what this scheduler does not do.
	plan, said := w.Must("plan"), w.block("")
	for _, line := range strings.Split(strings.TrimSpace(said), "\n") {
		site.Has(t, plan, strings.TrimSuffix(strings.TrimSpace(line), " ..."))
	}
	// 4. Three of four, and the fourth when there is room for it.
	m := w.Watch()
	three := w.AwaitWorld(3, 1)
	w.block("")
	m.Heard("job.mnist: generation 1: 3 slots, 3 processes, rank 0 at ")
	w.Await("the fourth, and what it waits for", func(j site.Job) bool {
		return j.Says("Unschedulable: pod group is not ready, 1 Pending, 2 minAvailable, 3 Running")
	})
	site.Has(t, w.shell(""), "mnist-", "queue.scheduling.volcano.sh/research patched")
	four := w.AwaitWorld(4, three.Generation+1)
	// 5. Break it.
	leaver := four.Worker(3)
	w.shell(leaver.Node)
	w.Await("without the node that is drained, and with another pod for the one that was deleted", func(j site.Job) bool {
		return j.WorldSize == 3 && j.On(leaver.Node) == (site.Slot{}) && j.Worker(1).Incarnation > 1
	})
	site.Until(t, "the PodGroup is there again", func() bool { return podGroupIn(w.Demo, own) != nil })
	own.Uncordon(t, leaver.Node)
	w.AwaitWorld(4, four.Generation+1)
	w.GoesOnRight(long)
}
