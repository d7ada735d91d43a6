package faults

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eltrain/eltrain/e2e/site"
)

// docs/kubernetes.md, from the installation to a healed job and to nothing: deploy/ with its own sample job.
func TestTheSampleJobIsHealedAndTakenAway(t *testing.T) {
	t.Parallel()
	s := newTrial(t, calm.start(t))
	s.Job = "hello"
	for _, name := range []string{"eltrain.hcl", "hello.hcl", "hello.py"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "jobs", name))
		s.OK(err)
		s.Write(name, string(text))
	}
	s.install(deployment(t))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the Deployment's master said:\n%s", s.deployedSays())
		}
	})
	const most = 4 // slots, which it grows to
	all := func() bool { return ready(s.deployed()) && s.beats(http.DefaultClient, "http") == most }
	site.Until(t, "the sample job trains", all)
	before := s.podUIDs()

	victim := s.Pods()[1]
	s.DeletePod(victim.Name, metav1.DeleteOptions{})
	site.Until(t, "its pod is replaced", func() bool {
		_, there := s.podUIDs()[victim.Name]
		return !there && len(s.podUIDs()) == most && all()
	})
	site.Has(t, s.deployedSays(), "deleted in worker["+victim.Labels["eltrain.dev/index"]+"] -> replace")
	stay := 0
	for name, uid := range s.podUIDs() {
		if before[name] == uid {
			stay++
		}
	}
	if stay != most-1 {
		t.Errorf("of %d pods %d are those of before", most, stay)
	}

	master := s.deployed().UID
	s.DeletePod(s.deployed().Name, metav1.DeleteOptions{})
	healed := s.podUIDs()
	site.Until(t, "the next master hears from every agent", func() bool {
		p := s.deployed()
		return p != nil && p.UID != master && all()
	})
	for name, uid := range s.podUIDs() {
		if healed[name] != uid {
			t.Errorf("pod %s was made anew under the next master", name)
		}
	}

	without := []byte(`{"data":{"hello.hcl":null}}`)
	_, err := s.Cluster.Admin().CoreV1().ConfigMaps(s.Namespace).Patch(t.Context(), "eltrain-jobs", types.MergePatchType, without, metav1.PatchOptions{})
	s.OK(err)
	site.Until(t, "the job is gone with its file", func() bool { return len(s.Pods()) == 0 })
	s.scale(0)
	site.Until(t, "there is no master", func() bool { return s.deployed() == nil })
	s.uninstall()
	site.Until(t, "nothing is left", func() bool { return len(s.Objects()) == 0 })
}
