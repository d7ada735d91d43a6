package kubelet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestExpand(t *testing.T) {
	env := &environment{}
	env.set("A", "1")
	env.set("B", "$(A)")
	for _, test := range [][2]string{
		{"", ""}, {"plain", "plain"}, {"$(A)", "1"}, {"x$(A)y$(A)", "x1y1"}, {"$(B)", "$(A)"}, {"$$(A)", "$(A)"}, {"$$$(A)", "$1"},
		{"$(NONE)", "$(NONE)"}, {"$(A", "$(A"}, {"$", "$"}, {"$A", "$A"}, {"$()", "$()"}, {"$$$$", "$$"}, {"$($(A))", "$(1)"},
	} {
		if got := env.expand(test[0]); got != test[1] {
			t.Errorf("%q becomes %q, want %q", test[0], got, test[1])
		}
	}
}

func TestPhase(t *testing.T) {
	waits := corev1.ContainerStatus{State: waiting(reasonCreating, "")}
	runs := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	ended := func(code int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}
	}
	loops := corev1.ContainerStatus{State: waiting(reasonCrashLoop, ""), LastTerminationState: ended(1).State}
	type list = []corev1.ContainerStatus
	for _, test := range []struct {
		name       string
		policy     corev1.RestartPolicy
		init, main list
		want       corev1.PodPhase
	}{
		{"nothing started", corev1.RestartPolicyNever, nil, list{waits}, corev1.PodPending},
		{"one of two started", corev1.RestartPolicyNever, nil, list{runs, waits}, corev1.PodPending},
		{"runs", corev1.RestartPolicyNever, nil, list{runs}, corev1.PodRunning},
		{"one has failed, the other runs", corev1.RestartPolicyNever, nil, list{ended(1), runs}, corev1.PodRunning},
		{"all succeeded", corev1.RestartPolicyNever, nil, list{ended(0), ended(0)}, corev1.PodSucceeded},
		{"one failed", corev1.RestartPolicyNever, nil, list{ended(0), ended(1)}, corev1.PodFailed},
		{"failed, to be restarted", corev1.RestartPolicyOnFailure, nil, list{ended(1)}, corev1.PodRunning},
		{"succeeded, to be restarted", corev1.RestartPolicyAlways, nil, list{ended(0)}, corev1.PodRunning},
		{"backs off", corev1.RestartPolicyAlways, nil, list{loops}, corev1.PodRunning},
		{"init runs", corev1.RestartPolicyNever, list{runs}, list{waits}, corev1.PodPending},
		{"init failed", corev1.RestartPolicyNever, list{ended(1)}, list{waits}, corev1.PodFailed},
		{"init failed, to be restarted", corev1.RestartPolicyOnFailure, list{ended(1)}, list{waits}, corev1.PodPending},
		{"init backs off", corev1.RestartPolicyAlways, list{loops}, list{waits}, corev1.PodPending},
		{"init succeeded", corev1.RestartPolicyNever, list{ended(0)}, list{runs}, corev1.PodRunning},
	} {
		if got := phase(test.policy, test.init, test.main); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestHostsFile(t *testing.T) {
	pod := func(namespace, name, hostname, subdomain string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "a"}},
			Spec:       corev1.PodSpec{Hostname: hostname, Subdomain: subdomain},
		}
	}
	service := func(name string, unready bool) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "a"}, PublishNotReadyAddresses: unready},
		}
	}
	deleted := pod("ns", "d", "", "")
	deleted.DeletionTimestamp = &metav1.Time{}
	targets := []target{
		{pod: pod("ns", "w0", "worker-0", "job"), ip: "127.9.1.0", hostname: "worker-0", ready: true},
		{pod: pod("ns", "w1", "worker-1", "job"), ip: "127.9.1.1", hostname: "worker-1"},
		{pod: deleted, ip: "127.9.1.2", hostname: "d", ready: true},
		{pod: pod("ns", "gone", "worker-2", "job"), ip: "127.9.1.3", hostname: "worker-2", ready: true, ended: true},
		{pod: pod("other", "x", "", ""), ip: "127.9.1.4", hostname: "x", ready: true},
	}
	got := hostsFile(targets[0], targets, []*corev1.Service{service("web", false), service("job", true)})
	want := strings.Join([]string{
		"127.0.0.1 localhost",
		"::1 localhost ip6-localhost ip6-loopback",
		"127.9.1.0 worker-0.job.ns.svc.cluster.local worker-0",
		"127.9.1.2 job.ns.svc.cluster.local job.ns.svc job.ns job",
		"127.9.1.0 job.ns.svc.cluster.local job.ns.svc job.ns job",
		"127.9.1.0 worker-0.job.ns.svc.cluster.local worker-0.job.ns.svc worker-0.job.ns worker-0.job",
		"127.9.1.1 job.ns.svc.cluster.local job.ns.svc job.ns job",
		"127.9.1.1 worker-1.job.ns.svc.cluster.local worker-1.job.ns.svc worker-1.job.ns worker-1.job",
		"127.9.1.0 web.ns.svc.cluster.local web.ns.svc web.ns web",
		"",
	}, "\n")
	if got = strings.ReplaceAll(got, "\t", " "); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if elsewhere := hostsFile(targets[4], targets, []*corev1.Service{service("web", false)}); strings.Contains(elsewhere, "\tweb\n") || !strings.Contains(elsewhere, "\tweb.ns\n") {
		t.Errorf("short names are for the own namespace:\n%s", elsewhere)
	}
}

func TestSeekTail(t *testing.T) {
	long := strings.Repeat("x", 40_000) // more than is read at once
	for _, test := range []struct {
		text  string
		lines int64
		want  string
	}{
		{"", 3, ""}, {"a\nb\nc\n", 0, ""}, {"a\nb\nc\n", 1, "c\n"}, {"a\nb\nc\n", 2, "b\nc\n"}, {"a\nb\nc\n", 3, "a\nb\nc\n"}, {"a\nb\nc\n", 9, "a\nb\nc\n"},
		{"a\nb\nc", 1, "c"}, {"a\nb\nc", 2, "b\nc"}, {"\n\n\n", 2, "\n\n"},
		{"a\n" + long + "\n" + long + "\n", 1, long + "\n"}, {"a\n" + long + "\n" + long + "\n", 3, "a\n" + long + "\n" + long + "\n"},
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(test.text), 0o644); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := seekTail(file, test.lines); err != nil {
			t.Fatal(err)
		}
		rest := make([]byte, len(test.text)+1)
		n, _ := file.Read(rest)
		file.Close()
		if got := string(rest[:n]); got != test.want {
			t.Errorf("last %d lines of %.20q: %.20q, want %.20q", test.lines, test.text, got, test.want)
		}
	}
}

func TestSwap(t *testing.T) {
	dir := t.TempDir()
	read := func(path string) string {
		b, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	if err := swap(dir, payload{"a": {"1", 0o644}, "deep/b": {"2", 0o600}}, -1); err != nil {
		t.Fatal(err)
	}
	if read("a") != "1" || read("deep/b") != "2" {
		t.Errorf("a=%q b=%q", read("a"), read("deep/b"))
	}
	if info, err := os.Stat(filepath.Join(dir, "deep/b")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info, err)
	}
	if err := swap(dir, payload{"a": {"3", 0o644}, "c": {"4", 0o644}}, -1); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	// One directory with the files, the link to it, and a link per name: nothing of the first version is left.
	if read("a") != "3" || read("c") != "4" || len(entries) != 4 {
		t.Errorf("a=%q c=%q, entries %v", read("a"), read("c"), entries)
	}
}

// Kubelets of one machine do not share addresses.
func TestSubnets(t *testing.T) {
	first, err := newSubnet()
	if err != nil {
		t.Fatal(err)
	}
	defer first.close()
	second, err := newSubnet()
	if err != nil {
		t.Fatal(err)
	}
	defer second.close()
	seen := map[string]bool{}
	for range 600 {
		seen[first.pod()], seen[second.pod()] = true, true
	}
	for range nodeAddresses {
		for _, s := range []*subnet{first, second} {
			address, err := s.node()
			if err != nil {
				t.Fatal(err)
			}
			seen[address] = true
		}
	}
	if len(seen) != 2*600+2*nodeAddresses {
		t.Errorf("%d different addresses", len(seen))
	}
	if _, err := first.node(); err == nil {
		t.Error("one node too many got an address")
	}
}
