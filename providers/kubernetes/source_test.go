package kubernetes

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/eltrain/eltrain/internal/sourcefiles"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// written writes files, and returns them as the source of a role.
func written(t *testing.T, files map[string]string) *job.SourceFiles {
	t.Helper()
	s := &job.SourceFiles{Root: t.TempDir(), Files: job.Files{}}
	for path, text := range files {
		at := filepath.Join(s.Root, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		s.Files[path] = sourcefiles.Digest([]byte(text), false)
	}
	s.Digest = s.Files.Digest()
	return s
}

// Each file has a key that a ConfigMap takes, under which the volume finds it.
func TestAConfigMapHasTheSourceFiles(t *testing.T) {
	files := map[string]string{
		"train.py": "print(1)", "lib/model.py": "class M: pass", "lib_model.py": "", "weights.bin": "\xff\x00", "ein Name/ü.py": "u",
		strings.Repeat("long/", 60) + "x.py": "x",
	}
	s := written(t, files)
	made, err := configMapOf(job.Group{UID: testUID, Name: "gpt"}, anchor{"gpt-0b0e9", "anchor-uid"}, s)
	if err != nil {
		t.Fatal(err)
	}
	if made.Immutable == nil || !*made.Immutable || made.Labels[labelUID] != testUID || len(made.OwnerReferences) != 1 {
		t.Errorf("it is %+v, immutable %v", made.ObjectMeta, made.Immutable)
	}
	volume := volumeOf(testUID, "gpt", s)
	if volume.Name != made.Name || len(volume.Items) != len(files) {
		t.Errorf("the volume is %+v of %s", volume, made.Name)
	}
	for _, item := range volume.Items {
		if why := validation.IsConfigMapKey(item.Key); len(why) > 0 {
			t.Errorf("%q: %v", item.Key, why)
		}
		if got := made.Data[item.Key] + string(made.BinaryData[item.Key]); got != files[item.Path] {
			t.Errorf("%s is %q, want %q", item.Path, got, files[item.Path])
		}
	}
}

// Only what was declared, and reviewed in a plan, reaches pods.
func TestSourceFilesThatHaveChangedAreNotTaken(t *testing.T) {
	s := written(t, map[string]string{"train.py": "print(1)"})
	make := func() error {
		_, err := configMapOf(job.Group{UID: testUID, Name: "gpt"}, anchor{}, s)
		return err
	}
	script := filepath.Join(s.Root, "train.py")
	for _, change := range []func() error{
		func() error { return os.WriteFile(script, []byte("print(2)"), 0o644) },
		func() error { return os.Truncate(script, maxSource+1) },
		func() error { return os.Remove(script) },
		func() error { return os.Symlink("/etc/hostname", script) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if err := make(); err == nil || !strings.Contains(err.Error(), `the source file "train.py"`) {
			t.Errorf("%v", err)
		}
	}
}

// A plan says what no ConfigMap takes.
func TestTooLargeASourceIsAMisfit(t *testing.T) {
	r := &job.Role{Name: "worker", Source: job.Files{"train.py": "d"}, SourceSize: maxSource}
	config := Config{Image: "train:1"}
	if err := config.Check(r); err != nil {
		t.Errorf("1MiB: %v", err)
	}
	r.SourceSize++
	misfit := new(job.Misfit)
	if err := config.Check(r); !errors.As(err, &misfit) || misfit.Argument != "source" || !strings.Contains(err.Error(), "a ConfigMap, in which they reach the pods, takes 1MiB: build an image") {
		t.Errorf("more: %v", err)
	}
	r.SourceSize, r.Source = 1, job.Files{"..a/train.py": "d"}
	if err := config.Check(r); !errors.As(err, &misfit) || !strings.Contains(err.Error(), "two dots") {
		t.Errorf("two dots: %v", err)
	}
}

// The ConfigMap is there before the pods, stays while a pod has it, and goes when none does. It is read from the cluster once
// it is there: the files may have changed.
func TestSourcesComeAndGo(t *testing.T) {
	w := newPaperwork(t)
	first, second := written(t, map[string]string{"train.py": "1"}), written(t, map[string]string{"train.py": "2"})
	role := func(s *job.SourceFiles) job.GroupRole { return job.GroupRole{Role: "worker", Min: 1, Source: s} }
	name := func(s *job.SourceFiles) string { return sourceName(testUID, "gpt", shortDigest(s.Digest)) }
	configMaps := func() (names []string) {
		all, err := w.cluster.Admin().CoreV1().ConfigMaps(w.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: labelSource})
		w.ok(err)
		for _, o := range all.Items {
			names = append(names, o.Name)
		}
		slices.Sort(names)
		return names
	}
	expect := func(what string, want ...string) {
		t.Helper()
		slices.Sort(want)
		if got := configMaps(); !slices.Equal(got, want) {
			t.Errorf("%s there are %q, want %q", what, got, want)
		}
	}
	launch := func(incarnation int, s *job.SourceFiles) error {
		l := w.launch("worker", 0, incarnation)
		l.Source = s.Digest
		return w.p.Launch(t.Context(), l)
	}

	w.prepare(role(first))
	expect("at first", name(first))
	if err := launch(1, second); !errors.Is(err, providers.ErrNotPrepared) {
		t.Errorf("a launch with other files: %v", err)
	}
	w.ok(launch(1, first))
	w.ok(os.WriteFile(filepath.Join(first.Root, "train.py"), []byte("edited"), 0o644))
	w.prepare(role(first)) // which reads no file

	w.prepare(role(second))
	expect("after an edit", name(first), name(second))
	w.ok(w.p.Stop(t.Context(), testUID, job.Address{Job: "gpt", Role: "worker"}, 1, 0))
	w.ok(launch(2, second))
	volumes := w.pod("worker", 0, 2).Spec.Volumes
	if !slices.ContainsFunc(volumes, func(v corev1.Volume) bool { return v.ConfigMap != nil && v.ConfigMap.Name == name(second) }) {
		t.Errorf("the pod has %+v", volumes)
	}
	w.prepare(role(second))
	expect("once no pod has the first", name(second))

	w.ok(w.cluster.Admin().CoreV1().ConfigMaps(w.namespace).Delete(t.Context(), name(second), metav1.DeleteOptions{}))
	w.prepare(role(second))
	expect("after somebody deleted it", name(second))

	w.ok(w.p.Stop(t.Context(), testUID, job.Address{Job: "gpt", Role: "worker"}, 2, 0))
	w.ok(w.p.Forget(t.Context(), testUID, "gpt"))
	expect("in the end")
	if _, err := w.cluster.Admin().CoreV1().ConfigMaps(w.namespace).Get(t.Context(), "gpt-0b0e9", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the anchor: %v", err)
	}
}
