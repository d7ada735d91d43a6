package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// keptIncarnations is how many of a slot's newest incarnations are kept as ended pods, for their logs.
const keptIncarnations = 3

// Launch creates the pod of one incarnation. An existing pod, found by its name, is never created again; edits to it are
// reverted.
func (p *Provider) Launch(ctx context.Context, l job.Launch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := checkLaunch(l); err != nil {
		return err
	}
	made, known := p.jobs.get(l.UID)
	if !known {
		return providers.ErrNotPrepared
	}
	k := key{l.UID, l.Slot.Role, l.Slot.Index, l.Incarnation}
	if there, launched := p.index.lookup(k); launched {
		return p.repair(ctx, there, l)
	}
	if p.config.image(l.Program) == "" {
		return errNoImage
	}
	if err := p.ensureAnchor(ctx, made); err != nil {
		return err
	}
	source, shipped := made.volumes[l.Slot.Role], l.Source != ""
	if shipped && (source == nil || made.digestOf(l.Slot.Role) != l.Source) {
		return fmt.Errorf("%w with the source files of role %q", providers.ErrNotPrepared, l.Slot.Role)
	}
	if !shipped {
		source = nil
	}
	scheduling := p.gang.Schedule(made.group, l.Slot)
	scheduling.Gated = scheduling.Gated && l.Held
	pod, err := p.config.pod(l, podContext{
		namespace: p.namespace, version: p.version, owner: p.owner, anchor: made.anchor, scheduling: scheduling,
		classes: p.index.runtimeClasses(), source: source,
	})
	if err != nil {
		return err
	}
	if err := p.create(ctx, pod, l); err != nil {
		return err
	}
	p.sweep(ctx, l)
	return nil
}

// metadataAlone requests only the metadata of a written object: the request has the rest, and the watch delivers admission's
// changes. It saves encoding and decoding whole pods once more.
const metadataAlone = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// create creates the pod, or finds that of another master or of an attempt whose answer was lost, and enters it.
func (p *Provider) create(ctx context.Context, pod *corev1.Pod, l job.Launch) error {
	var answer metav1.PartialObjectMetadata
	err := p.pacer.do(ctx, class{l.UID, "create pods of " + l.Slot.Role}, func(ctx context.Context) error {
		core := p.client.CoreV1()
		return core.Post().Namespace(p.namespace).Resource("pods").
			VersionedParams(&metav1.CreateOptions{FieldManager: FieldManager}, core.Parameters).
			SetHeader("Accept", metadataAlone).Body(pod).Do(ctx).Into(&answer)
	})
	if err == nil {
		made := *pod
		made.ObjectMeta = answer.ObjectMeta
		p.index.made(&made)
		return nil
	}
	if apierrors.IsAlreadyExists(err) {
		var there *corev1.Pod
		if there, err = p.client.CoreV1().Pods(p.namespace).Get(ctx, pod.Name, metav1.GetOptions{}); err == nil {
			have, _, ours := identify(there)
			if want, _, _ := keyOf(pod.Labels); !ours || have != want {
				return fmt.Errorf("pod %s/%s exists but is not this incarnation: delete it, or rename the job", p.namespace, pod.Name)
			}
			p.index.put(there)
			return nil
		}
		err = readError(err)
	}
	return fmt.Errorf("create its pod in namespace %s: %w", p.namespace, explain(err))
}

// repair reverts edits to a pod, if it exists, by server-side apply. It applies only the editable fields as launched: a
// newer configuration waits for the next incarnation.
func (p *Provider) repair(ctx context.Context, there *pod, l job.Launch) error {
	if there == nil || len(there.seen.Drift) == 0 || there.over() || there.deleting {
		return nil
	}
	now, err := p.client.CoreV1().Pods(p.namespace).Get(ctx, there.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && now.UID != there.uid {
		p.index.deleted(there.key, there.uid)
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up pod %s/%s: %w", p.namespace, there.name, explain(readError(err)))
	}
	record := there.launched
	if record.Image == "" { // the record was edited before this master saw it
		record.Image, record.InitImage, record.Source = p.config.image(l.Program), p.config.agentImage(p.version), shortDigest(l.Source)
	}
	record.Fingerprint, record.Reserved = l.Fingerprint, l.Reserved
	labels, annotations := record.marks(there.key, l.Slot, p.owner)
	delete(annotations, annotationLaunch)
	keepOwned(now, "labels", now.Labels, labels)
	keepOwned(now, "annotations", now.Annotations, annotations)
	annotations[annotationLaunch] = record.text()
	spec := map[string]any{"containers": []any{map[string]any{"name": mainContainer, "image": record.Image}}}
	if record.InitImage != "" {
		spec["initContainers"] = []any{map[string]any{"name": agentContainer, "image": record.InitImage}}
	}
	patch, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": there.name, "uid": there.uid, "labels": labels, "annotations": annotations},
		"spec":     spec,
	})
	if err != nil {
		return fmt.Errorf("encode the patch: %w", err)
	}
	force := true
	var repaired *corev1.Pod
	err = p.pacer.do(ctx, class{l.UID, "repair pods of " + l.Slot.Role}, func(ctx context.Context) (err error) {
		repaired, err = p.client.CoreV1().Pods(p.namespace).Patch(ctx, there.name, types.ApplyPatchType, patch, metav1.PatchOptions{FieldManager: FieldManager, Force: &force})
		return err
	})
	if err != nil {
		return fmt.Errorf("repair its pod in namespace %s: %w", p.namespace, explain(err))
	}
	p.index.put(repaired)
	return nil
}

// keepOwned drops from want the values that eltrain itself had set differently, by an overlay or in another state.
func keepOwned(o *corev1.Pod, field string, have, want map[string]string) {
	for name := range want {
		if have[name] != want[name] && owned(o, "metadata", field, name) {
			want[name] = have[name]
		}
	}
}

// sweep deletes the slot's ended pods beyond keptIncarnations, and those whose nodes are gone. If a deletion fails, the
// next sweep tries again.
func (p *Provider) sweep(ctx context.Context, l job.Launch) {
	for _, old := range p.index.ofSlot(l.UID, place{l.Slot.Role, l.Slot.Index}) {
		spent := old.over() && old.key.number <= l.Incarnation-keptIncarnations
		if !spent && (old.key.number >= l.Incarnation || !p.index.abandoned(old)) {
			continue
		}
		if err := p.remove(ctx, old, 0); err != nil {
			p.log.Warn("Cannot delete the pod of an earlier incarnation.", "slot", l.Slot.String(), "error", err)
		}
	}
}
