package faults

import (
	"context"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leaseOfState is how long the state's lock outlives its holder's last renewal.
const leaseOfState = 15 * time.Second

// Of two masters one leads and the other waits. When the first is killed the second takes over within the lease,
// finds everything as it was, and what broke meanwhile is healed once.
func TestTwoMastersOneLeads(t *testing.T) {
	t.Parallel()
	s := newSite(t, calm.start(t))
	s.write("job.hcl", settings+provider()+s.counting(workers))
	first := s.watch()
	s.awaitWorld(workers, 1)
	second := newSite(t, s.cluster)
	second.namespace, second.work, second.kubeconfig = s.namespace, s.work, s.kubeconfig
	second.write("job.hcl", settings+provider()+s.counting(workers))
	standby := second.watch("-lock-timeout=8760h")
	standby.heard("Acquiring state lock")

	killed := time.Now()
	first.kill()
	standby.heard("Watching.")
	// It has to watch a whole lease pass, of which a tenth and a look may be lost; the rest is this machine's.
	if took, most := time.Since(killed), leaseOfState+leaseOfState/2; took > most {
		t.Errorf("the second leads %v after the first was killed, wanted %v", took, most)
	}
	second.await("every agent beats at the second master", func(j jobStatus) bool { return j.Phase == "Running" && j.Step > 0 && len(j.Slots) == workers })
	s.trainsUndisturbed(workers)

	// The first comes back and waits, and only one of them heals what breaks now.
	again := s.watch("-lock-timeout=8760h")
	again.heard("Acquiring state lock")
	victim := s.pods()[0]
	now := int64(0)
	if err := s.cluster.Admin().CoreV1().Pods(s.namespace).Delete(context.Background(), victim.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	second.awaitWorld(workers, 2)
	incarnations := map[string]int{}
	for _, p := range s.pods() {
		incarnations[p.Labels["eltrain.dev/index"]+"/"+p.Labels["eltrain.dev/incarnation"]]++
	}
	want := map[string]int{"0/1": 1, "1/1": 1}
	delete(want, victim.Labels["eltrain.dev/index"]+"/1")
	want[victim.Labels["eltrain.dev/index"]+"/2"] = 1
	if !maps.Equal(incarnations, want) {
		t.Errorf("the pods by slot and incarnation are %v, wanted %v", incarnations, want)
	}
	s.ranOnce()
	again.kill() // it waits: it holds nothing
	standby.interrupt()
	s.destroyed()
}
