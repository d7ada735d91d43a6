package faults

import (
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/e2e/site"
)

// leaseOfState is how long the state's lock outlives its holder's last renewal.
const leaseOfState = 15 * time.Second

// Of two masters one leads and the other waits. When the first is killed the second takes over within the lease,
// finds everything as it was, and what broke meanwhile is healed once.
func TestTwoMastersOneLeads(t *testing.T) {
	t.Parallel()
	s := newTrial(t, calm.start(t))
	s.Write("job.hcl", settings+provider()+s.counting(workers))
	first := s.Watch()
	before := s.AwaitWorld(workers, 1)
	second := newTrial(t, s.Cluster)
	second.Namespace, second.Work, second.Kubeconfig = s.Namespace, s.Work, s.Kubeconfig
	second.Write("job.hcl", settings+provider()+s.counting(workers))
	standby := second.Watch("-lock-timeout=8760h")
	standby.Heard("Acquiring state lock")

	killed := time.Now()
	first.Kill()
	standby.Heard("Watching.")
	// It has to watch a whole lease pass, of which a tenth and a look may be lost; the rest is a slow machine's. What it does
	// with the lock then takes as long as any start.
	lease, err := s.Cluster.Admin().CoordinationV1().Leases(s.Namespace).Get(t.Context(), "eltrain-state-main", metav1.GetOptions{})
	s.OK(err)
	if took, most := lease.Spec.AcquireTime.Sub(killed), 2*leaseOfState; took > most {
		t.Errorf("the second has the lock %v after the first was killed, wanted %v", took, most)
	}
	second.Await("every agent beats at the second master", func(j site.Job) bool { return j.Phase == "Running" && j.Step > 0 && len(j.Slots) == workers })
	s.trainsUndisturbed(workers)

	// The first comes back and waits, and only one of them heals what breaks now.
	again := s.Watch("-lock-timeout=8760h")
	again.Heard("Acquiring state lock")
	victim := s.Pods()[0]
	s.DeletePod(victim.Name, site.AtOnce())
	second.AwaitWorld(workers, before.Generation+1)
	incarnations := map[string]int{}
	for _, p := range s.Pods() {
		incarnations[p.Labels["eltrain.dev/index"]+"/"+p.Labels["eltrain.dev/incarnation"]]++
	}
	want := map[string]int{"0/1": 1, "1/1": 1}
	delete(want, victim.Labels["eltrain.dev/index"]+"/1")
	want[victim.Labels["eltrain.dev/index"]+"/2"] = 1
	if !maps.Equal(incarnations, want) {
		t.Errorf("the pods by slot and incarnation are %v, wanted %v", incarnations, want)
	}
	s.ranOnce()
	again.Kill() // it waits: it holds nothing
	standby.Interrupt()
	s.destroyed()
}
