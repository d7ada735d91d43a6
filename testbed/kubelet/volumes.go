package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// payload is the files of a volume, by path below its root.
type payload map[string]payloadFile

type payloadFile struct {
	data string
	mode fs.FileMode
}

// dataLink is the link through which a volume's files are visible, so that all of them change atomically.
const dataLink = "..data"

// tokenRefreshes is the fraction of its lifetime after which a service account's token is replaced (as a kubelet does:
// after 80%).
const tokenRefreshes = 0.8

// groupReads is what a kubelet adds to the mode of a read-only volume's files for an fsGroup.
const groupReads fs.FileMode = 0o440

// defaultTokenSeconds is a token's lifetime unless the pod sets it.
const defaultTokenSeconds = 3600

// volume is one volume of a pod.
type volume struct {
	name    string
	path    string // on this machine, in the pod's mount namespace
	sources []corev1.VolumeProjection
	mode    fs.FileMode // of files whose item sets none
	group   int         // the group that owns the files; -1 for the kubelet's own
	written payload     // the current files

	token        string
	tokenRenewal time.Time
}

// prepareVolumes makes the pod's volumes, and the mount namespace with those in memory. It is called until it
// succeeds.
func (p *pod) prepareVolumes(ctx context.Context, object *corev1.Pod) error {
	tmpfs := map[string]string{}
	var volumes []*volume
	for _, declared := range object.Spec.Volumes {
		v, err := p.declare(object, declared, tmpfs)
		if err != nil {
			return fmt.Errorf("volume %s: %w", declared.Name, err)
		}
		volumes = append(volumes, v)
	}
	for _, v := range volumes {
		if err := p.writeVolume(ctx, object, v); err != nil {
			return fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.name, err)
		}
	}
	if err := os.MkdirAll(filepath.Join(p.dir, "etc"), 0o755); err != nil {
		return err
	}
	namespace, err := podNamespace(tmpfs)
	if err != nil {
		return err
	}
	p.namespaceFile, p.volumes = namespace, volumes
	return nil
}

// declare finds or makes a volume's directory, and determines its content.
func (p *pod) declare(object *corev1.Pod, declared corev1.Volume, tmpfs map[string]string) (*volume, error) {
	v := &volume{name: declared.Name, path: filepath.Join(p.dir, "volumes", declared.Name), mode: fs.FileMode(corev1.ConfigMapVolumeSourceDefaultMode), group: -1}
	if s := object.Spec.SecurityContext; s != nil && s.FSGroup != nil {
		v.group = int(*s.FSGroup)
	}
	source := declared.VolumeSource
	switch {
	case source.HostPath != nil:
		v.path = source.HostPath.Path
		return v, hostPath(source.HostPath)
	case source.EmptyDir != nil:
		if source.EmptyDir.Medium == corev1.StorageMediumMemory {
			tmpfs[v.path] = "mode=1777"
			if limit := source.EmptyDir.SizeLimit; limit != nil {
				tmpfs[v.path] += fmt.Sprintf(",size=%d", limit.Value())
			}
		}
		if err := os.MkdirAll(v.path, 0o777); err != nil {
			return nil, err
		}
		return v, os.Chmod(v.path, 0o777) // MkdirAll applies the umask
	case source.ConfigMap != nil:
		s := source.ConfigMap
		v.setMode(s.DefaultMode)
		v.sources = []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: s.LocalObjectReference, Items: s.Items, Optional: s.Optional}}}
	case source.Secret != nil:
		s := source.Secret
		v.setMode(s.DefaultMode)
		v.sources = []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: s.SecretName}, Items: s.Items, Optional: s.Optional}}}
	case source.DownwardAPI != nil:
		v.setMode(source.DownwardAPI.DefaultMode)
		v.sources = []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{Items: source.DownwardAPI.Items}}}
	case source.Projected != nil:
		v.setMode(source.Projected.DefaultMode)
		v.sources = source.Projected.Sources
	default:
		return nil, errors.New("the process kubelet does not support this type of volume")
	}
	if err := os.MkdirAll(v.path, 0o755); err != nil {
		return nil, err
	}
	return v, v.makeMountPoints(object)
}

// makeMountPoints makes the directories in a volume of files on which containers mount other volumes. Containers see
// it read-only, so it cannot be done later. A kubelet does the same.
func (v *volume) makeMountPoints(object *corev1.Pod) error {
	for _, c := range slices.Concat(object.Spec.InitContainers, object.Spec.Containers) {
		for _, outer := range c.VolumeMounts {
			if outer.Name != v.name {
				continue
			}
			for _, inner := range c.VolumeMounts {
				below, inside := strings.CutPrefix(filepath.Clean(inner.MountPath), filepath.Clean(outer.MountPath)+"/")
				if !inside {
					continue
				}
				if err := os.MkdirAll(filepath.Join(v.path, outer.SubPath, below), 0o755); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (v *volume) setMode(mode *int32) {
	if mode != nil {
		v.mode = fs.FileMode(*mode)
	}
}

// hostPath checks the path, or creates it if its type says so.
func hostPath(source *corev1.HostPathVolumeSource) error {
	kind := corev1.HostPathUnset
	if source.Type != nil {
		kind = *source.Type
	}
	switch kind {
	case corev1.HostPathDirectoryOrCreate:
		return os.MkdirAll(source.Path, 0o755)
	case corev1.HostPathFileOrCreate:
		f, err := os.OpenFile(source.Path, os.O_CREATE|os.O_RDONLY, 0o644)
		if err != nil {
			return err
		}
		return f.Close()
	}
	_, err := os.Stat(source.Path)
	return err
}

// refresh rewrites volumes whose sources have changed. If a source is gone, the written files stay.
func (p *pod) refresh(ctx context.Context, object *corev1.Pod, now time.Time) {
	for _, v := range p.volumes {
		err := p.writeVolume(ctx, object, v)
		if err == nil || apierrors.IsNotFound(err) {
			continue
		}
		p.log.Warn("cannot refresh the volume", "volume", v.name, "err", err)
		p.stale.Store(true)
		p.volumesAgain = now.Add(retryEvery)
	}
}

// renewal is when the first token of a volume has to be replaced; zero for never.
func (p *pod) renewal() time.Time {
	var first time.Time
	for _, v := range p.volumes {
		if !v.tokenRenewal.IsZero() && (first.IsZero() || v.tokenRenewal.Before(first)) {
			first = v.tokenRenewal
		}
	}
	return first
}

func (p *pod) writeVolume(ctx context.Context, object *corev1.Pod, v *volume) error {
	if v.sources == nil {
		return nil
	}
	files := payload{}
	for _, source := range v.sources {
		if err := p.project(ctx, object, v, source, files); err != nil {
			return err
		}
	}
	if v.written != nil && maps.Equal(v.written, files) {
		return nil
	}
	if err := swap(v.path, files, v.group); err != nil {
		return err
	}
	v.written = files
	return nil
}

// project adds the files of one source.
func (p *pod) project(ctx context.Context, object *corev1.Pod, v *volume, source corev1.VolumeProjection, files payload) error {
	switch {
	case source.ConfigMap != nil:
		values, err := p.configMap(ctx, source.ConfigMap.Name, source.ConfigMap.Optional)
		if err != nil {
			return err
		}
		return v.items(values, source.ConfigMap.Items, source.ConfigMap.Optional, files)
	case source.Secret != nil:
		values, err := p.secret(ctx, source.Secret.Name, source.Secret.Optional)
		if err != nil {
			return err
		}
		return v.items(values, source.Secret.Items, source.Secret.Optional, files)
	case source.DownwardAPI != nil:
		for _, item := range source.DownwardAPI.Items {
			value, err := "", error(nil)
			if item.FieldRef != nil {
				value, err = p.field(object, item.FieldRef.FieldPath)
			} else {
				value, err = p.node.resourceField(object, nil, item.ResourceFieldRef)
			}
			if err != nil {
				return err
			}
			files[item.Path] = payloadFile{value, v.itemMode(item.Mode)}
		}
		return nil
	case source.ServiceAccountToken != nil:
		token, err := p.serviceAccountToken(ctx, object, v, source.ServiceAccountToken)
		if err != nil {
			return err
		}
		files[source.ServiceAccountToken.Path] = payloadFile{token, v.mode}
		return nil
	}
	return errors.New("the process kubelet does not support this type of projection")
}

// items picks the requested keys, or all.
func (v *volume) items(values map[string]string, items []corev1.KeyToPath, optional *bool, files payload) error {
	if items == nil {
		for key, value := range values {
			files[key] = payloadFile{value, v.mode}
		}
		return nil
	}
	for _, item := range items {
		value, ok := values[item.Key]
		if ok {
			files[item.Path] = payloadFile{value, v.itemMode(item.Mode)}
			continue
		}
		if optional == nil || !*optional {
			return fmt.Errorf("references non-existent config key: %s", item.Key)
		}
	}
	return nil
}

func (v *volume) itemMode(mode *int32) fs.FileMode {
	if mode != nil {
		return fs.FileMode(*mode)
	}
	return v.mode
}

// serviceAccountToken is the volume's token; a new one if it is due for replacement.
func (p *pod) serviceAccountToken(ctx context.Context, object *corev1.Pod, v *volume, source *corev1.ServiceAccountTokenProjection) (string, error) {
	if v.token != "" && time.Now().Before(v.tokenRenewal) {
		return v.token, nil
	}
	seconds := int64(defaultTokenSeconds)
	if source.ExpirationSeconds != nil {
		seconds = *source.ExpirationSeconds
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: object.Name, UID: object.UID},
	}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	asked := time.Now()
	account := object.Spec.ServiceAccountName
	answer, err := p.client.CoreV1().ServiceAccounts(object.Namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("failed to fetch token: %w", err)
	}
	life := answer.Status.ExpirationTimestamp.Sub(asked)
	v.token, v.tokenRenewal = answer.Status.Token, asked.Add(time.Duration(float64(life)*tokenRefreshes))
	return v.token, nil
}

// swap replaces a volume's files atomically: they are written into a new directory, to which the link is moved through
// which they are visible. This is how Kubernetes writes them, which programs that watch such files rely on. If group is
// not negative, it may read them all, as a pod's fsGroup may.
func swap(dir string, files payload, group int) error {
	fresh, err := os.MkdirTemp(dir, "..")
	if err != nil {
		return err
	}
	if err := os.Chmod(fresh, 0o755); err != nil {
		return err
	}
	tops := map[string]bool{}
	for path, file := range files {
		target := filepath.Join(fresh, path)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, []byte(file.data), file.mode); err != nil {
			return err
		}
		mode := file.mode
		if group >= 0 {
			mode |= groupReads
			if err := os.Chown(target, -1, group); err != nil {
				return err
			}
		}
		if err := os.Chmod(target, mode); err != nil { // WriteFile applies the umask
			return err
		}
		top, _, _ := strings.Cut(path, "/")
		tops[top] = true
	}
	link := filepath.Join(dir, dataLink)
	old, err := os.Readlink(link)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(filepath.Base(fresh), link+"_tmp"); err != nil {
		return err
	}
	if err := os.Rename(link+"_tmp", link); err != nil {
		return err
	}
	for top := range tops {
		if err := os.Symlink(filepath.Join(dataLink, top), filepath.Join(dir, top)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range there {
		name := entry.Name()
		if !strings.HasPrefix(name, "..") && !tops[name] && !entry.IsDir() { // a directory is a mount point
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	if old == "" {
		return nil
	}
	return os.RemoveAll(filepath.Join(dir, old))
}

// mounts are the container's mounts of its volumes.
func (p *pod) mounts(c *corev1.Container, env *environment) ([]bind, error) {
	var out []bind
	for _, m := range c.VolumeMounts {
		var from *volume
		for _, v := range p.volumes {
			if v.name == m.Name {
				from = v
			}
		}
		if from == nil {
			return nil, fmt.Errorf("volume %s is not there", m.Name)
		}
		sub := m.SubPath
		if m.SubPathExpr != "" {
			sub = env.expand(m.SubPathExpr)
		}
		out = append(out, bind{from: filepath.Join(from.path, sub), to: m.MountPath, readOnly: m.ReadOnly || from.sources != nil, create: sub != ""})
	}
	return out, nil
}
