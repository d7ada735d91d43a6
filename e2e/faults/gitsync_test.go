package faults

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
)

// repository is a git repository with the jobs in a directory.
type repository struct {
	t   *testing.T
	dir string
}

func (r repository) git(args ...string) {
	r.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", r.dir, "-c", "user.name=ada", "-c", "user.email=ada@example.com"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// commit writes a file of the jobs and commits all.
func (r repository) commit(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "jobs", name), []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
	r.git("add", ".")
	r.git("commit", "-qm", "change "+name)
}

// With deploy/git-sync the jobs come from a branch of the repository: the running master picks up commits.
func TestJobsFollowARepository(t *testing.T) {
	t.Parallel()
	c := calm.start(t)
	s := &trial{podsite.In(t, c, programs, "gpt", c.Namespace(t))}
	s.Work = filepath.Join(shared, s.Namespace)
	s.OK(os.MkdirAll(filepath.Join(s.Work, "repository", "jobs"), 0o755))
	repo := repository{t, filepath.Join(s.Work, "repository")}
	repo.git("init", "-q", "-b", "main")
	repo.commit("eltrain.hcl", deployedSettings(t))
	repo.commit("job.hcl", s.resting(workers))

	r := unpack(s)
	r.edit("deploy/git-sync/git-sync.env", "GITSYNC_REPO=https://git.example.com/ml/jobs.git", "GITSYNC_REPO=file://"+filepath.Join(repositories, s.Namespace, "repository"))
	r.edit("deploy/git-sync/git-sync.env", "GITSYNC_PERIOD=30s", "GITSYNC_PERIOD=1s")
	r.edit("deploy/git-sync/git-sync.env", "JOBS_DIR=.", "JOBS_DIR=jobs")
	r.OK(os.Mkdir(filepath.Join(r.dir, "here"), 0o755))
	r.OK(os.WriteFile(filepath.Join(r.dir, "here", "kustomization.yaml"), fmt.Appendf(nil, `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: %s
resources:
  - ../deploy/git-sync
patches:
  - target:
      name: eltrain-capacity
    patch: '[{"op": "replace", "path": "/metadata/name", "value": "eltrain-capacity-%[1]s"}]'
    options:
      allowNameChange: true
`, s.Namespace), 0o644))
	t.Cleanup(func() { r.Shell(r.dir, "kubectl delete --ignore-not-found -k here") }) // the objects outside the namespace
	r.Shell(r.dir, "kubectl apply -k here && kubectl rollout status deployment/eltrain")
	trains := func(workers int) func() bool {
		return func() bool { return ready(r.deployed()) && r.beats(nil) == workers }
	}
	site.Until(t, "the repository's job trains", trains(workers))
	before, master := r.podUIDs(), r.deployed()
	restarts := func(pod *corev1.Pod) map[string]int32 {
		counts := map[string]int32{}
		for _, c := range pod.Status.ContainerStatuses {
			counts[c.Name] = c.RestartCount
		}
		return counts
	}

	repo.commit("job.hcl", s.resting(workers+1))
	site.Until(t, "it has what was committed since", trains(workers+1))
	now := r.podUIDs()
	for name, uid := range before {
		if now[name] != uid {
			t.Errorf("pod %s was recreated: %v, %v", name, before, now)
		}
	}
	site.Until(t, "the slot that was added trains", func() bool { return s.starts()[fmt.Sprintf("worker[%d]", workers)] == 1 })
	s.ranOnce()
	after := r.deployed()
	if after.UID != master.UID || !maps.Equal(restarts(after), restarts(master)) {
		t.Errorf("the master was started again: %s", after.Status.String())
	}
}
