package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/eltrain/eltrain/internal/sourcefiles"
	"github.com/eltrain/eltrain/job"
)

// The source files of a role reach its pods in a ConfigMap that is named by their digest and never changes: a pod has the
// files that it was launched with for as long as it lives. The anchor lists those of its job, before they are created, so
// that all are found again.

const (
	sourceVolume = "eltrain-source"
	sourceDir    = "/eltrain/source" // also the working directory, unless the role has an absolute one

	// maxSource is what the values of a ConfigMap may have together, in bytes.
	maxSource = corev1.MaxSecretSize
	// sourceDigest is how much of a digest names a ConfigMap: enough to distinguish the sources of one job.
	sourceDigest = 16
	// annotationSources lists the sources of a job that ConfigMaps exist for, or are about to, on the anchor.
	annotationSources = "eltrain.dev/sources"
	// labelSource is on those ConfigMaps, with what their name has of the digest.
	labelSource = "eltrain.dev/source"

	executableMode = 0o755
)

// checkSource reports a source that no ConfigMap can hold.
func checkSource(r *job.Role) error {
	bad := func(format string, args ...any) error {
		return &job.Misfit{Argument: "source", Err: fmt.Errorf(format, args...)}
	}
	if r.SourceSize > maxSource {
		return bad("its source files have %s, and a ConfigMap, in which they reach the pods, takes %s: build an image with them and remove source, or name fewer", r.SourceSize, job.Bytes(maxSource))
	}
	for _, path := range slices.Sorted(maps.Keys(r.Source)) {
		if strings.HasPrefix(path, "..") {
			return bad("no ConfigMap takes a file whose path begins with two dots, as %q: rename it", path)
		}
	}
	return nil
}

// shortDigest is what names of objects have of a digest.
func shortDigest(digest string) string { return digest[:min(len(digest), sourceDigest)] }

// sourceName names the ConfigMap of a source. short is a short digest.
func sourceName(uid, name, short string) string {
	return dnsName(groupName(uid, name)+"-source-"+short, longestName)
}

// sourceKey is the key of a file in a ConfigMap, which is no path.
func sourceKey(path string) string {
	if len(validation.IsConfigMapKey(path)) == 0 {
		return path
	}
	const longest = 200 // of a key at most 253 characters
	plain := strings.Map(func(r rune) rune {
		if len(validation.IsConfigMapKey("x"+string(r))) > 0 {
			return '_'
		}
		return r
	}, path)
	return "_" + plain[max(0, len(plain)-longest):] + "_" + hash(path)[:hashPart]
}

// volumeOf is the volume with the source files of a role.
func volumeOf(uid, name string, s *job.SourceFiles) *corev1.ConfigMapVolumeSource {
	v := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: sourceName(uid, name, shortDigest(s.Digest))}}
	for _, path := range slices.Sorted(maps.Keys(s.Files)) {
		item := corev1.KeyToPath{Key: sourceKey(path), Path: path}
		if strings.HasSuffix(s.Files[path], sourcefiles.Executable) {
			item.Mode = new(int32(executableMode))
		}
		v.Items = append(v.Items, item)
	}
	return v
}

// addSource mounts the source files into a pod, and runs its program where they are.
func addSource(pod *corev1.Pod, source *corev1.ConfigMapVolumeSource) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, volume(sourceVolume, corev1.VolumeSource{ConfigMap: source}))
	main := &pod.Spec.Containers[0]
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: sourceVolume, MountPath: sourceDir, ReadOnly: true})
	if main.WorkingDir == "" {
		main.WorkingDir = sourceDir
	}
}

// configMapOf reads the source files of a role. They must be those that were declared.
func configMapOf(g job.Group, owner anchor, s *job.SourceFiles) (*corev1.ConfigMap, error) {
	labels := jobLabels(g.UID, g.Name)
	labels[labelSource] = shortDigest(s.Digest)
	made := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: sourceName(g.UID, g.Name, shortDigest(s.Digest)), Labels: labels, OwnerReferences: []metav1.OwnerReference{owner.reference()},
		},
		Immutable: new(true),
		Data:      map[string]string{}, BinaryData: map[string][]byte{},
	}
	left := int64(maxSource)
	for _, path := range slices.Sorted(maps.Keys(s.Files)) {
		content, executable, err := sourcefiles.Read(s.Root, path, left)
		switch {
		case errors.Is(err, sourcefiles.ErrTooLarge), err == nil && sourcefiles.Digest(content, executable) != s.Files[path]:
			return nil, fmt.Errorf("the source file %q has changed since the configuration was read: apply again", path)
		case err != nil:
			return nil, fmt.Errorf("read the source file %q: %w", path, err)
		}
		left -= int64(len(content))
		if utf8.Valid(content) {
			made.Data[sourceKey(path)] = string(content)
		} else {
			made.BinaryData[sourceKey(path)] = content
		}
	}
	return made, nil
}

// sourcesOf returns the sources of a job's roles by their short digests.
func sourcesOf(g job.Group) map[string]*job.SourceFiles {
	all := map[string]*job.SourceFiles{}
	for _, r := range g.Roles {
		if r.Source != nil {
			all[shortDigest(r.Source.Digest)] = r.Source
		}
	}
	return all
}

// listedSources returns the short digests that an anchor lists; nil without an anchor.
func listedSources(there *corev1.ConfigMap) []string {
	if there == nil {
		return nil
	}
	return strings.Fields(there.Annotations[annotationSources])
}

// unusedSources returns those of the listed sources that neither the job's roles have nor any of its pods that runs.
func (p *Provider) unusedSources(g job.Group, listed []string) (unused []string) {
	if len(listed) == 0 {
		return nil
	}
	used := sourcesOf(g)
	for _, one := range p.index.ofJob(g.UID) {
		if !one.over() {
			used[shortDigest(one.launched.Source)] = nil
		}
	}
	for _, short := range listed {
		if _, is := used[short]; !is {
			unused = append(unused, short)
		}
	}
	return unused
}

// source is the ConfigMap of a source as an object of the job. It is never updated.
func (p *Provider) source(uid, name, short string) object {
	o := p.anchor(sourceName(uid, name, short))
	o.kind = "ConfigMap of source files"
	return o
}

// removeSources deletes the ConfigMaps of some sources of a job.
func (p *Provider) removeSources(ctx context.Context, uid, name string, shorts []string) error {
	for _, short := range shorts {
		o := p.source(uid, name, short)
		if err := p.pacer.do(ctx, class{uid, "delete the " + o.kind}, func(ctx context.Context) error { return o.remove(ctx, uid) }); err != nil {
			return fmt.Errorf("delete the %s %s/%s: %w", o.kind, p.namespace, sourceName(uid, name, short), explain(err))
		}
	}
	return nil
}

// writeSources creates the ConfigMaps of the job's sources that do not exist. The files are read only for those.
func (p *Provider) writeSources(ctx context.Context, g job.Group, owner anchor) error {
	making, ctx := errgroup.WithContext(ctx)
	for short, s := range sourcesOf(g) {
		making.Go(func() error { return p.writeSource(ctx, g, owner, short, s) })
	}
	return making.Wait()
}

func (p *Provider) writeSource(ctx context.Context, g job.Group, owner anchor, short string, s *job.SourceFiles) error {
	o := p.source(g.UID, g.Name, short)
	there, err := o.get(ctx)
	switch {
	case err == nil && owns(owner, there):
		return nil
	case err == nil && there.GetLabels()[labelUID] != g.UID:
		return fmt.Errorf("create the %s: %s/%s is %s: rename the job", o.kind, p.namespace, there.GetName(), whose(there))
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("look up the %s: %w", o.kind, explain(readError(err)))
	}
	made, failed := configMapOf(g, owner, s)
	if failed != nil {
		return failed
	}
	if err == nil { // of a former anchor, with which it is about to be collected
		if err := p.removeSources(ctx, g.UID, g.Name, []string{short}); err != nil {
			return err
		}
	}
	return p.write(ctx, g, "the "+o.kind, func(ctx context.Context) error {
		_, err := p.client.CoreV1().ConfigMaps(p.namespace).Create(ctx, made, metav1.CreateOptions{FieldManager: FieldManager})
		if apierrors.IsAlreadyExists(err) { // another master was faster, or an answer was lost: its name says what is in it
			return nil
		}
		return err
	})
}
