package kubernetes

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/eltrain/eltrain/job"
)

// drift lists what of a running pod is not as it was launched because somebody edited it: our labels and the
// images. The API server lets nobody change more of a pod, but for what it lets nobody take back either: added
// tolerations and a deadline. Those two cannot be mended and are not listed.
//
// A pod from which the label with its job's UID is taken is lost to the watch. It counts as deleted: the next
// incarnation takes its slot, and its agent is told to go.
func drift(o *corev1.Pod, slot job.Address, k key, record launched) []job.FieldChange {
	var all []job.FieldChange
	add := func(path, now, then string) {
		all = append(all, job.FieldChange{Path: path, Before: quoted(now), After: quoted(then), Change: job.Update})
	}
	want := podLabels(k.uid, slot, k.number)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if now := o.Labels[name]; now != want[name] && !owned(o, "metadata", "labels", name) {
			add("pod.metadata.labels["+strconv.Quote(name)+"]", now, want[name])
		}
	}
	image := func(field string, containers []corev1.Container, name, then string) {
		i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })
		if i < 0 || then == "" || containers[i].Image == then || owned(o, "spec", field, fieldpath.KeyByFields("name", name), "image") {
			return
		}
		add("pod.spec."+field+"["+strconv.Quote(name)+"].image", containers[i].Image, then)
	}
	image("initContainers", o.Spec.InitContainers, agentContainer, record.InitImage)
	image("containers", o.Spec.Containers, mainContainer, record.Image)
	return all
}

// owned tells whether eltrain is still the one who set a field of a pod. What a webhook makes of a pod while it is
// created counts as its creator's, and so does the user's own overlay: neither is drift.
func owned(o *corev1.Pod, path ...any) bool {
	for _, e := range o.ManagedFields {
		if e.Manager != FieldManager || e.Subresource != "" || e.FieldsV1 == nil {
			continue
		}
		var set fieldpath.Set
		if set.FromJSON(e.FieldsV1.GetRawReader()) == nil && set.Has(fieldpath.MakePathOrDie(path...)) {
			return true
		}
	}
	return false
}

func quoted(s string) string {
	if s == "" {
		return ""
	}
	return strconv.Quote(s)
}
