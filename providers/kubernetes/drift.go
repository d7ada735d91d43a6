package kubernetes

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/eltrain/eltrain/job"
)

// drift lists what somebody edited of a running pod: our labels and annotations, and the images. Of the other fields the
// API server allows only changes that cannot be undone: added tolerations and a deadline. Those are not listed. owner is
// the state of this master.
func drift(o *corev1.Pod, slot job.Address, k key, record launched, owner string) []job.FieldChange {
	var all []job.FieldChange
	add := func(path, now, then string, by []string) {
		all = append(all, job.FieldChange{Path: path, Before: quoted(now), After: quoted(then), Change: job.Update, By: strings.Join(by, ", ")})
	}
	if o.Labels[labelState] == "" && o.Annotations[annotationState] == "" {
		owner = "" // launched without a state
	}
	labels, annotations := record.marks(k, slot, owner)
	edited := func(field string, now, want map[string]string) {
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if now[name] != want[name] && !owned(o, "metadata", field, name) {
				add("pod.metadata."+field+"["+strconv.Quote(name)+"]", now[name], want[name], managers(o, "metadata", field, name))
			}
		}
	}
	edited("labels", o.Labels, labels)
	edited("annotations", o.Annotations, annotations)
	image := func(field string, containers []corev1.Container, name, then string) {
		i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })
		if i < 0 || then == "" || containers[i].Image == then {
			return
		}
		at := []any{"spec", field, fieldpath.KeyByFields("name", name), "image"}
		if !owned(o, at...) {
			add("pod.spec."+field+"["+strconv.Quote(name)+"].image", containers[i].Image, then, managers(o, at...))
		}
	}
	image("initContainers", o.Spec.InitContainers, agentContainer, record.InitImage)
	image("containers", o.Spec.Containers, mainContainer, record.Image)
	return all
}

// marks are the labels and annotations that a pod was launched with, as far as its record has them.
func (l launched) marks(k key, slot job.Address, owner string) (labels, annotations map[string]string) {
	labels = podLabels(k.uid, slot, k.number)
	annotations = map[string]string{annotationSlot: slotText(k, slot)}
	if l.Fingerprint != "" {
		annotations[annotationLaunch] = l.text()
	}
	if l.SafeToEvict != "" {
		annotations[annotationSafeToEvict] = l.SafeToEvict
	}
	if l.DoNotDisrupt != "" {
		annotations[annotationDoNotDisrupt] = l.DoNotDisrupt
	}
	ownerLabels, ownerAnnotations := stateMarks(owner)
	maps.Copy(labels, ownerLabels)
	maps.Copy(annotations, ownerAnnotations)
	return labels, annotations
}

// managers are the field managers that set a field to its present value ("kubectl-edit"). A removed field has none.
func managers(o *corev1.Pod, path ...any) []string {
	var names []string
	for _, e := range o.ManagedFields {
		if e.Subresource != "" || e.FieldsV1 == nil || slices.Contains(names, e.Manager) {
			continue
		}
		var set fieldpath.Set
		if set.FromJSON(e.FieldsV1.GetRawReader()) == nil && set.Has(fieldpath.MakePathOrDie(path...)) {
			names = append(names, e.Manager)
		}
	}
	return names
}

// owned reports whether eltrain is among the managers of a field. What a webhook changes at creation counts as the creator's,
// and so does the user's own overlay: neither is drift.
func owned(o *corev1.Pod, path ...any) bool {
	return slices.Contains(managers(o, path...), FieldManager)
}

func quoted(s string) string {
	if s == "" {
		return ""
	}
	return strconv.Quote(s)
}
