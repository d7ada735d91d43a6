package kubelet_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"

	"github.com/eltrain/eltrain/testbed/kubelet"
)

func TestEndOfAContainer(t *testing.T) {
	b := start(t, "end")
	for _, test := range []struct {
		name    string
		command []string
		phase   corev1.PodPhase
		code    int32
		reason  string
		message string
	}{
		{"succeeds", []string{"true"}, corev1.PodSucceeded, 0, "Completed", ""},
		{"fails", []string{"sh", "-c", "exit 3"}, corev1.PodFailed, 3, "Error", ""},
		{"last-word", []string{"sh", "-c", "echo bye > /dev/termination-log; exit 1"}, corev1.PodFailed, 1, "Error", "bye\n"},
		{"last-word-long", []string{"sh", "-c", "head -c 9000 /dev/zero | tr '\\0' x > /dev/termination-log"}, corev1.PodSucceeded, 0, "Completed", strings.Repeat("x", 4096)},
		{"no-command", []string{"no-such-program"}, corev1.PodFailed, 128, "StartError", `"no-such-program": executable file not found in $PATH`},
		{"no-file", []string{"/no/such/program"}, corev1.PodFailed, 128, "StartError", "no such file or directory"},
	} {
		pod := b.pod(test.name, "")
		pod.Spec.Containers[0].Command = test.command
		b.create(pod)
		status := b.awaitPhase(test.name, test.phase)
		ended := status.ContainerStatuses[0].State.Terminated
		if ended == nil || ended.ExitCode != test.code || ended.Reason != test.reason || !strings.Contains(ended.Message, test.message) || test.message == "" && ended.Message != "" || len(ended.Message) > 4096 {
			t.Errorf("%s: %s", test.name, show(status))
			continue
		}
		if ended.FinishedAt.IsZero() || ended.FinishedAt.Before(&ended.StartedAt) {
			t.Errorf("%s: ran from %s until %s", test.name, ended.StartedAt, ended.FinishedAt)
		}
		if c := condition(status, corev1.PodReady); c.Status != corev1.ConditionFalse {
			t.Errorf("%s: an ended pod is Ready: %v", test.name, c)
		}
	}
}

func TestRunningPod(t *testing.T) {
	b := start(t, "running")
	b.create(b.pod("a", "sleep 1000"))
	b.create(b.pod("b", "sleep 1000"))
	ips := map[string]bool{}
	for _, name := range []string{"a", "b"} {
		status := b.awaitPhase(name, corev1.PodRunning)
		for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
			if c := condition(status, kind); c.Status != corev1.ConditionTrue {
				t.Errorf("condition %s is %q", kind, c.Status)
			}
		}
		if !strings.HasPrefix(status.PodIP, "127.") || !strings.HasPrefix(status.HostIP, "127.") || status.PodIP == status.HostIP || status.StartTime == nil {
			t.Errorf("pod %s at %q on %q since %v", name, status.PodIP, status.HostIP, status.StartTime)
		}
		ips[status.PodIP] = true
		if c := status.ContainerStatuses[0]; c.State.Running == nil || c.State.Running.StartedAt.IsZero() || !c.Ready {
			t.Error(show(status))
		}
	}
	if len(ips) != 2 {
		t.Errorf("two pods have the addresses %v", ips)
	}
}

// The exit code of a process killed by signal n is 128+n.
func TestSignalled(t *testing.T) {
	b := start(t, "signalled")
	b.create(b.pod("killed", "exec sleep 1000"))
	pid := b.running("killed")
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.create(b.pod("crashed", "exec python3 -c 'import ctypes; ctypes.string_at(0)'"))
	for name, code := range map[string]int32{"killed": 128 + 9, "crashed": 128 + 11} {
		status := b.awaitPhase(name, corev1.PodFailed)
		if ended := status.ContainerStatuses[0].State.Terminated; ended.ExitCode != code || ended.Reason != "Error" {
			t.Error(show(status))
		}
	}
}

func TestOutOfMemory(t *testing.T) {
	b := start(t, "oom")
	if err := b.LimitsMemory(); err != nil {
		if os.Getenv("WITH_LIMITS") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	pod := b.pod("a", "exec python3 -c 'b\"x\" * (1 << 30)'")
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	b.create(pod)
	status := b.awaitPhase("a", corev1.PodFailed)
	if ended := status.ContainerStatuses[0].State.Terminated; ended.ExitCode != 137 || ended.Reason != "OOMKilled" {
		t.Error(show(status))
	}

	// A first process that survives the killed one has an exit code of its own, and is OOMKilled nevertheless.
	pod = b.pod("child", "python3 -c 'b\"x\" * (1 << 30)'; echo $? > /dev/termination-log; exit 3")
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	b.create(pod)
	status = b.awaitPhase("child", corev1.PodFailed)
	if ended := status.ContainerStatuses[0].State.Terminated; ended.Reason != "OOMKilled" || ended.ExitCode == 3 && ended.Message != "137\n" {
		t.Error(show(status))
	}
	b.Close()
	if left := cgroups(t); len(left) > 0 {
		t.Errorf("cgroups are left: %v", left)
	}
}

// cgroups are those created by Kubelets of this process.
func cgroups(t *testing.T) []string {
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(entry.Name(), fmt.Sprintf("eltrain-kubelet-%d-", os.Getpid())) {
			found = append(found, path)
		}
		return nil // other processes create and remove cgroups meanwhile
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestEnvironment(t *testing.T) {
	b := start(t, "environment")
	optional := true
	b.configMap("settings", map[string]string{"colour": "red", "with.dot": "1"})
	b.secret("keys", map[string]string{"token": "s3cret"})
	pod := b.pod("env", "env")
	pod.Labels = map[string]string{"role": "worker"}
	pod.Annotations = map[string]string{"note": "hello"}
	pod.Spec.Hostname = "worker-0"
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	settings, keys := corev1.LocalObjectReference{Name: "settings"}, corev1.LocalObjectReference{Name: "keys"}
	c := &pod.Spec.Containers[0]
	c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}
	c.EnvFrom = []corev1.EnvFromSource{{Prefix: "SET_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: settings}}}
	c.Env = []corev1.EnvVar{
		{Name: "PLAIN", Value: "one"},
		{Name: "EXPANDED", Value: "$(PLAIN)+$$(PLAIN)+$(UNKNOWN)"},
		{Name: "NAME", ValueFrom: field("metadata.name")},
		{Name: "NAMESPACE", ValueFrom: field("metadata.namespace")},
		{Name: "UID_", ValueFrom: field("metadata.uid")},
		{Name: "LABEL", ValueFrom: field("metadata.labels['role']")},
		{Name: "ANNOTATION", ValueFrom: field("metadata.annotations['note']")},
		{Name: "NODE", ValueFrom: field("spec.nodeName")},
		{Name: "POD_IP", ValueFrom: field("status.podIP")},
		{Name: "HOST_IP", ValueFrom: field("status.hostIP")},
		{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: keys, Key: "token"}}},
		{Name: "COLOUR", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: settings, Key: "colour"}}},
		{Name: "ABSENT", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: settings, Key: "shape", Optional: &optional}}},
		{Name: "CPUS", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}},
	}
	c.Command = []string{"sh", "-c", "python3 -c 'import os; [print(k+\"=\"+v) for k,v in os.environ.items()]'; echo args=$0,$1", "$(PLAIN)-$(POD_IP)"}
	c.Args = []string{"$(NOPE)"}
	out := b.output(pod)
	made := b.get("env")
	host, port, _ := strings.Cut(cluster.Address(), ":")
	for _, want := range []string{
		"PLAIN=one", "EXPANDED=one+$(PLAIN)+$(UNKNOWN)", "NAME=env", "NAMESPACE=" + b.namespace, "UID_=" + string(made.UID),
		"LABEL=worker", "ANNOTATION=hello", "NODE=environment", "POD_IP=" + made.Status.PodIP, "HOST_IP=" + made.Status.HostIP,
		"TOKEN=s3cret", "COLOUR=red", "CPUS=2", "SET_colour=red", "HOSTNAME=worker-0",
		"KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port,
		"args=one-" + made.Status.PodIP + ",$(NOPE)",
	} {
		if !strings.Contains("\n"+out, "\n"+want+"\n") {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "ABSENT") || strings.Contains(out, os.Getenv("PATH")+"\n") && os.Getenv("PATH") != "" && !strings.Contains(os.Getenv("PATH"), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin") {
		t.Errorf("more than was asked for in\n%s", out)
	}
}

func TestImage(t *testing.T) {
	b := start(t, "image")
	pod := b.pod("entry", "")
	pod.Spec.Containers[0] = corev1.Container{Name: "c", Image: "entry"}
	b.create(pod)
	status := b.awaitPhase("entry", corev1.PodFailed)
	if out := b.logs("entry", corev1.PodLogOptions{}); out != "/opt/made/here\n$(literal)\n" || status.ContainerStatuses[0].State.Terminated.ExitCode != 4 {
		t.Errorf("%q\n%s", out, show(status))
	}

	pod = b.pod("unknown", "")
	pod.Spec.Containers[0].Image = "registry.example/none:1"
	b.create(pod)
	b.awaitPod("unknown", "ErrImagePull", func(s corev1.PodStatus) bool { // or a later state
		return len(s.ContainerStatuses) > 0 && s.ContainerStatuses[0].State.Waiting != nil && slices.Contains([]string{"ErrImagePull", "ImagePullBackOff"}, s.ContainerStatuses[0].State.Waiting.Reason)
	})
	if status := b.awaitWaiting("unknown", "ImagePullBackOff"); status.Phase != corev1.PodPending {
		t.Error(show(status))
	}
}

func TestImageMounts(t *testing.T) {
	dir := t.TempDir()
	tool := filepath.Join(dir, "tool")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\necho tool $1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := startWith(t, map[string]kubelet.Image{image: {Mounts: []kubelet.Mount{
		{HostPath: tool, Path: "/opt/new/bin/tool", ReadOnly: true},
		{HostPath: dir, Path: "/tmp/data"},
	}}}, "mounts")
	out := b.output(b.pod("a", "/opt/new/bin/tool 1; (echo x >> /opt/new/bin/tool) 2>/dev/null || echo read-only; echo y > /tmp/data/written"))
	if out != "tool 1\nread-only\n" {
		t.Error(out)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "written")); string(text) != "y\n" {
		t.Errorf("a mount does not show the machine's file: %q, %v", text, err)
	}
	if _, err := os.Stat("/opt/new/bin"); err == nil {
		t.Error("a mount point was created on the machine")
	}
}

// A static program in a scratch image runs without anything of this machine, as the pod's user, and can write only to its
// volumes. It is killed with its parent, even though it changed its user. Its probes have the same restrictions.
func TestScratchImage(t *testing.T) {
	tell := filepath.Join(t.TempDir(), "tell")
	build := exec.Command("go", "build", "-o", tell, "./testdata/tell")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b := startWith(t, map[string]kubelet.Image{image: {
		Scratch: true, Mounts: []kubelet.Mount{{HostPath: tell, Path: "/usr/bin/tell", ReadOnly: true}},
		Command: []string{"tell"}, Env: []string{"PATH=/usr/bin"},
	}}, "scratch")
	pod := b.pod("a", "")
	c := &pod.Spec.Containers[0]
	c.Command, c.Args = nil, []string{"x y"}
	c.Env = []corev1.EnvVar{{Name: "GREETING", Value: "hello"}}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "volume", MountPath: "/volume"}}
	c.SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: new(true), RunAsUser: new(int64(65532)), RunAsGroup: new(int64(65532))}
	pod.Spec.Volumes = []corev1.Volume{{Name: "volume", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	want := `dev etc proc sys usr var volume <nil>
1 65532 a hello [x y] <nil>
/new false true
/etc/new false true
/usr/new false true
/volume/new true false
true <nil>
killed errno 0
/usr/bin/tell <nil>
`
	if out := b.output(pod); out != want {
		t.Errorf("%s\nwanted\n%s", out, want)
	}

	pod = b.pod("probed", "")
	c = &pod.Spec.Containers[0]
	c.Command, c.Args = nil, []string{"wait"}
	c.SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(65532))}
	probe := func(command string) *corev1.Probe {
		return &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 10, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}}}
	}
	c.ReadinessProbe = probe("tell")
	sick := pod.DeepCopy()
	sick.Name, sick.Spec.Containers[0].ReadinessProbe, sick.Spec.Containers[0].LivenessProbe = "sick", nil, probe("bin/sh")
	b.create(pod)
	b.create(sick)
	b.awaitPhase("sick", corev1.PodFailed) // there is no shell for its probe
	b.awaitPod("probed", "is ready", func(s corev1.PodStatus) bool { return len(s.ContainerStatuses) > 0 && s.ContainerStatuses[0].Ready })

	pod = b.pod("elsewhere", "")
	pod.Spec.Containers[0].Command = []string{"sh"}
	b.create(pod)
	status := b.awaitPhase("elsewhere", corev1.PodFailed)
	if ended := status.ContainerStatuses[0].State.Terminated; ended.ExitCode != 128 || !strings.Contains(ended.Message, `"sh": executable file not found in $PATH`) {
		t.Error(show(status))
	}
}

// The root of an image is read-only if its container asks for it, including /tmp; volumes are not.
func TestReadOnlyRoot(t *testing.T) {
	b := startWith(t, map[string]kubelet.Image{image: {Mounts: []kubelet.Mount{{HostPath: t.TempDir(), Path: "/tmp/of/the/image"}}}}, "read-only")
	pod := b.pod("a", "for d in / /etc /tmp /volume; do (echo x > $d/new) 2>/dev/null && echo $d; done; ls /bin/sh; ls /tmp/of/the")
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = []corev1.VolumeMount{{Name: "volume", MountPath: "/volume"}}
	c.SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: new(true)}
	pod.Spec.Volumes = []corev1.Volume{{Name: "volume", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	if out := b.output(pod); out != "/volume\n/bin/sh\nimage\n" {
		t.Error(out)
	}
}

// A forked child of this process has a copy of each open file until its exec. If that included a file in the root of a
// container being created at the same time, the root could not be made read-only.
func TestReadOnlyRootAmidForks(t *testing.T) {
	b := start(t, "amid-forks")
	forks, stop := context.WithCancel(t.Context())
	var forking sync.WaitGroup
	for range 8 {
		forking.Go(func() {
			for forks.Err() == nil {
				exec.Command("true").Run()
			}
		})
	}
	pod := b.pod("a", "")
	pod.Spec.Containers = nil
	for i := range 100 {
		c := sh(fmt.Sprintf("c-%d", i), "true")
		c.SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: new(true)}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	b.create(pod)
	status := b.awaitPod("a", "has ended", func(s corev1.PodStatus) bool { return s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed })
	stop()
	forking.Wait()
	if status.Phase != corev1.PodSucceeded {
		t.Error(show(status))
	}
}

// A container's changes outside its volumes are private, and the machine's /tmp is hidden.
func TestIsolation(t *testing.T) {
	b := start(t, "isolation")
	probe := filepath.Join(os.TempDir(), filepath.Base(b.dir)+"-probe")
	if err := os.WriteFile(probe, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(probe)
	out := b.output(b.pod("a", "echo x > /tmp/mine; echo x > /etc/eltrain-kubelet-test; ls /tmp; echo pid=$$$$; ps -e | wc -l; hostname; df /dev/shm | tail -1"))
	if !strings.HasPrefix(out, "mine\npid=1\n") || !strings.Contains(out, "\na\n") || !strings.Contains(out, "65536") {
		t.Error(out)
	}
	if _, err := os.Stat("/etc/eltrain-kubelet-test"); err == nil {
		os.Remove("/etc/eltrain-kubelet-test")
		t.Error("a pod wrote to the machine's /etc")
	}
}

func TestInitContainers(t *testing.T) {
	b := start(t, "init")
	pod := b.pod("order", "cat /shared/log")
	pod.Spec.Volumes = []corev1.Volume{{Name: "shared", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	pod.Spec.InitContainers = []corev1.Container{sh("one", "sleep 0.3; echo one >> /shared/log"), sh("two", "echo two >> /shared/log")}
	mount := []corev1.VolumeMount{{Name: "shared", MountPath: "/shared"}}
	pod.Spec.InitContainers[0].VolumeMounts, pod.Spec.InitContainers[1].VolumeMounts, pod.Spec.Containers[0].VolumeMounts = mount, mount, mount
	if out := b.output(pod); out != "one\ntwo\n" {
		t.Errorf("%q", out)
	}
	pod = b.pod("fails", "echo not reached")
	pod.Spec.InitContainers = []corev1.Container{sh("bad", "exit 7")}
	b.create(pod)
	status := b.awaitPhase("fails", corev1.PodFailed)
	if status.InitContainerStatuses[0].State.Terminated.ExitCode != 7 || status.ContainerStatuses[0].State.Waiting == nil || condition(status, corev1.PodInitialized).Status != corev1.ConditionFalse {
		t.Error(show(status))
	}
}

func TestRestart(t *testing.T) {
	b := start(t, "restart")
	pod := b.pod("loop", "echo attempt; exit 5")
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	b.create(pod)
	once := b.pod("once", "test -e /v/ran || { touch /v/ran; exit 1; }")
	once.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	once.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}}}
	once.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	b.create(once)

	status := b.awaitWaiting("loop", "CrashLoopBackOff")
	c := status.ContainerStatuses[0]
	if status.Phase != corev1.PodRunning || c.RestartCount != 1 || c.LastTerminationState.Terminated == nil || c.LastTerminationState.Terminated.ExitCode != 5 || !strings.HasPrefix(c.State.Waiting.Message, "back-off 10s restarting failed container=c") {
		t.Error(show(status))
	}
	status = b.awaitPhase("once", corev1.PodSucceeded)
	if status.ContainerStatuses[0].RestartCount != 1 {
		t.Error(show(status))
	}
	status = b.awaitPod("loop", "third attempt has ended", func(s corev1.PodStatus) bool {
		return s.ContainerStatuses[0].RestartCount == 2 && s.ContainerStatuses[0].State.Waiting != nil
	})
	second, third := c.LastTerminationState.Terminated, status.ContainerStatuses[0].LastTerminationState.Terminated
	if pause := third.StartedAt.Sub(second.FinishedAt.Time); pause < 9*time.Second { // of 10; times have whole seconds
		t.Errorf("restarted after %s", pause)
	}
}

func (b *bed) configMap(name string, data map[string]string) {
	b.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
	maps := b.client.CoreV1().ConfigMaps(b.namespace)
	_, err := maps.Update(b.Context(), object, metav1.UpdateOptions{})
	if err != nil {
		_, err = maps.Create(b.Context(), object, metav1.CreateOptions{})
	}
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bed) secret(name string, data map[string]string) {
	b.Helper()
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}
	if _, err := b.client.CoreV1().Secrets(b.namespace).Create(b.Context(), object, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

func TestVolumes(t *testing.T) {
	b := start(t, "volumes")
	host := t.TempDir()
	if err := os.WriteFile(filepath.Join(host, "file"), []byte("host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.configMap("settings", map[string]string{"a": "1\n", "b": "2\n"})
	b.secret("keys", map[string]string{"token": "s3cret\n"})
	mode := int32(0o400)
	size := resource.MustParse("3Mi")
	pod := b.pod("a", `
		cat /settings/a /picked/dir/bee /secret/token /host/file /one
		stat -L -c %a /secret/token
		df -k /memory | tail -1 | tr -s ' ' | cut -d' ' -f1,2
		cat /memory/from-init /all/labels /all/b; echo
		ls /all
		(echo x > /settings/a) 2>/dev/null || echo read-only
		echo changed > /host/written; echo sub > /sub/file; cat /scratch/deep/file`)
	pod.Labels = map[string]string{"k": "v"}
	settings, keys := corev1.LocalObjectReference{Name: "settings"}, corev1.LocalObjectReference{Name: "keys"}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: settings}}},
		{Name: "picked", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: settings, Items: []corev1.KeyToPath{{Key: "b", Path: "dir/bee"}}}}},
		{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys", DefaultMode: &mode}}},
		{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host}}},
		{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &size}}},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "all", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: settings}},
			{Secret: &corev1.SecretProjection{LocalObjectReference: keys}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}},
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "bearer"}},
		}}}},
	}
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = []corev1.VolumeMount{
		{Name: "settings", MountPath: "/settings"}, {Name: "picked", MountPath: "/picked"}, {Name: "secret", MountPath: "/secret"},
		{Name: "host", MountPath: "/host"}, {Name: "memory", MountPath: "/memory"}, {Name: "all", MountPath: "/all"},
		{Name: "settings", MountPath: "/one", SubPath: "a"}, {Name: "scratch", MountPath: "/scratch"}, {Name: "scratch", MountPath: "/sub", SubPath: "deep"},
	}
	pod.Spec.InitContainers = []corev1.Container{sh("first", "echo memory > /memory/from-init")}
	pod.Spec.InitContainers[0].VolumeMounts = []corev1.VolumeMount{{Name: "memory", MountPath: "/memory"}}
	want := "1\n2\ns3cret\nhost\n1\n400\ntmpfs 3072\nmemory\nk=\"v\"2\n\na\nb\nbearer\nlabels\ntoken\nread-only\nsub\n"
	if out := b.output(pod); out != want {
		t.Errorf("got  %q\nwant %q", out, want)
	}
	if text, err := os.ReadFile(filepath.Join(host, "written")); string(text) != "changed\n" {
		t.Errorf("a hostPath volume does not show the machine's file: %q, %v", text, err)
	}
}

// A mounted ConfigMap follows the object, and never shows a partial change.
func TestVolumeFollowsItsObject(t *testing.T) {
	b := start(t, "follows")
	b.configMap("settings", map[string]string{"x": "1", "y": "1"})
	pod := b.pod("a", `while :; do (cd -P /settings/..data && x=$(cat x) && y=$(cat y) && [ "$x" != "$y" ] && echo torn); [ "$(cat /settings/x)" = 20 ] && [ -e /settings/new ] && exit; done 2>/dev/null`)
	pod.Spec.Volumes = []corev1.Volume{{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "settings", MountPath: "/settings"}}
	b.create(pod)
	b.awaitPhase("a", corev1.PodRunning)
	for i := 2; i <= 20; i++ {
		value := fmt.Sprint(i)
		b.configMap("settings", map[string]string{"x": value, "y": value, "new": ""})
	}
	b.awaitPod("a", "sees the change", func(s corev1.PodStatus) bool { return s.Phase != corev1.PodRunning })
	if out := b.logs("a", corev1.PodLogOptions{}); out != "" {
		t.Error(out)
	}
}

// A volume of files is read-only to its containers, and others can be mounted on directories in it: these exist before,
// and survive a change of the object.
func TestVolumeMountedInAVolumeOfFiles(t *testing.T) {
	b := start(t, "nested")
	b.configMap("settings", map[string]string{"x": "1"})
	pod := b.pod("a", `echo mine > /settings/own/file && until [ "$(cat /settings/x)" = 2 ]; do :; done; cat /settings/own/file; echo no > /settings/other`)
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
		{Name: "own", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "settings", MountPath: "/settings"}, {Name: "own", MountPath: "/settings/own"}}
	b.create(pod)
	b.awaitPhase("a", corev1.PodRunning)
	b.configMap("settings", map[string]string{"x": "2"})
	b.awaitPod("a", "sees the change", func(s corev1.PodStatus) bool { return s.Phase != corev1.PodRunning })
	if out := b.logs("a", corev1.PodLogOptions{}); !strings.HasPrefix(out, "mine\n") || !strings.Contains(out, "Read-only file system") {
		t.Error(out)
	}
}

func TestServiceAccountToken(t *testing.T) {
	b := start(t, "token")
	// The API server is accessed like from a cluster, with the pod's certificate.
	out := b.output(b.pod("a", `cat /var/run/secrets/kubernetes.io/serviceaccount/token; python3 -c '
import os, ssl, urllib.request
context = ssl.create_default_context(cafile="/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
urllib.request.urlopen("https://%s:%s/version" % (os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]), context=context)'`))
	config := cluster.Config()
	config.BearerToken, config.TLSClientConfig.CertFile, config.TLSClientConfig.CertData = strings.TrimSpace(out), "", nil
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username != "system:serviceaccount:"+b.namespace+":default" {
		t.Errorf("the token in a pod is that of %v: %v", review, err)
	}
}

func TestMissingConfiguration(t *testing.T) {
	b := start(t, "missing")
	pod := b.pod("env", "echo $TOKEN")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "later"}, Key: "token"}}}}
	b.create(pod)
	mounted := b.pod("mounted", "cat /later/token")
	mounted.Spec.Volumes = []corev1.Volume{{Name: "later", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "later"}}}}
	mounted.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "later", MountPath: "/later"}}
	b.create(mounted)
	status := b.awaitWaiting("env", "CreateContainerConfigError")
	if status.Phase != corev1.PodPending || !strings.Contains(status.ContainerStatuses[0].State.Waiting.Message, `"later" not found`) {
		t.Error(show(status))
	}
	b.awaitWaiting("mounted", "ContainerCreating")
	b.secret("later", map[string]string{"token": "here"})
	for _, name := range []string{"env", "mounted"} {
		b.awaitPhase(name, corev1.PodSucceeded)
		if out := strings.TrimSpace(b.logs(name, corev1.PodLogOptions{})); out != "here" {
			t.Errorf("%s: %q", name, out)
		}
	}
}

func TestProbes(t *testing.T) {
	b := start(t, "probes")
	pod := b.pod("ready", `exec python3 -c '
import http.server, os
http.server.HTTPServer((os.environ["POD_IP"], 8080), http.server.SimpleHTTPRequestHandler).serve_forever()'`)
	c := &pod.Spec.Containers[0]
	c.WorkingDir = "/srv/files"
	c.Env = []corev1.EnvVar{{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}
	c.Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}
	c.StartupProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 30, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("web")}}}
	c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ok", Port: intstr.FromInt32(8080)}}}
	c.LivenessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, TimeoutSeconds: 10, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "test ! -e /srv/files/sick"}}}}
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	pod.Spec.TerminationGracePeriodSeconds = &[]int64{1}[0]
	pod.Spec.Volumes = []corev1.Volume{{Name: "files", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "files", MountPath: "/srv/files"}}
	b.create(pod)
	status := b.awaitPod("ready", "has started", func(s corev1.PodStatus) bool {
		return len(s.ContainerStatuses) > 0 && s.ContainerStatuses[0].Started != nil && *s.ContainerStatuses[0].Started
	})
	if status.ContainerStatuses[0].Ready || condition(status, corev1.PodReady).Reason != "ContainersNotReady" {
		t.Errorf("ready without its probe: %s", show(status))
	}
	files := filepath.Join(b.dir, "pods", string(b.get("ready").UID), "volumes", "files")
	if err := os.WriteFile(filepath.Join(files, "ok"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b.awaitPod("ready", "is ready", func(s corev1.PodStatus) bool { return condition(s, corev1.PodReady).Status == corev1.ConditionTrue })
	if err := os.Remove(filepath.Join(files, "ok")); err != nil {
		t.Fatal(err)
	}
	b.awaitPod("ready", "is unready", func(s corev1.PodStatus) bool { return condition(s, corev1.PodReady).Status == corev1.ConditionFalse })
	if err := os.WriteFile(filepath.Join(files, "sick"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	status = b.awaitPod("ready", "is killed for its liveness", func(s corev1.PodStatus) bool { return s.ContainerStatuses[0].RestartCount >= 1 })
	os.Remove(filepath.Join(files, "sick"))
	if code := status.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode; code != 137 {
		t.Errorf("a python that ignores SIGTERM as pid 1 ended with %d", code)
	}
}

func TestLogs(t *testing.T) {
	b := start(t, "logs")
	b.create(b.pod("ended", "echo one; echo two >&2; echo three"))
	b.awaitPhase("ended", corev1.PodSucceeded)
	two := int64(2)
	if out := b.logs("ended", corev1.PodLogOptions{}); out != "one\ntwo\nthree\n" {
		t.Errorf("%q", out)
	}
	if out := b.logs("ended", corev1.PodLogOptions{TailLines: &two}); out != "two\nthree\n" {
		t.Errorf("tail: %q", out)
	}
	if out := b.logs("ended", corev1.PodLogOptions{Follow: true}); out != "one\ntwo\nthree\n" {
		t.Errorf("follow of what has ended: %q", out)
	}

	b.create(b.pod("slow", "for i in 1 2 3 4 5; do echo $i; sleep 0.2; done"))
	b.awaitPod("slow", "has started", func(s corev1.PodStatus) bool { return s.Phase != corev1.PodPending })
	if out := b.logs("slow", corev1.PodLogOptions{Follow: true}); out != "1\n2\n3\n4\n5\n" {
		t.Errorf("follow: %q", out)
	}

	if _, err := b.client.CoreV1().Pods(b.namespace).GetLogs("ended", &corev1.PodLogOptions{Timestamps: true}).DoRaw(t.Context()); err == nil {
		t.Error("timestamps of log lines are not kept, but were accepted")
	}

	loop := b.pod("loop", "echo attempt; exit 1")
	loop.Spec.RestartPolicy = corev1.RestartPolicyAlways
	b.create(loop)
	b.awaitWaiting("loop", "CrashLoopBackOff")
	if out := b.logs("loop", corev1.PodLogOptions{Previous: true}); out != "attempt\n" {
		t.Errorf("previous: %q", out)
	}
}

// Names of pods behind a headless Service resolve in every pod as soon as such a pod exists.
func TestNames(t *testing.T) {
	b := start(t, "names")
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true, Selector: map[string]string{"job": "a"}}}
	if _, err := b.client.CoreV1().Services(b.namespace).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	worker := func(i int, script string) *corev1.Pod {
		pod := b.pod(fmt.Sprintf("w%d", i), script)
		pod.Labels = map[string]string{"job": "a"}
		pod.Spec.Hostname, pod.Spec.Subdomain = fmt.Sprintf("worker-%d", i), "job"
		return pod
	}
	b.create(worker(0, "until getent hosts worker-1.job; do sleep 0.1; done; hostname -f; getent ahosts job."+b.namespace+".svc | cut -d' ' -f1 | sort -u"))
	b.awaitPhase("w0", corev1.PodRunning)
	b.create(worker(1, "sleep 1000"))
	b.awaitPhase("w0", corev1.PodSucceeded)
	b.awaitPhase("w1", corev1.PodRunning) // its address may be known to others before its status has it
	first, second := b.get("w0").Status.PodIP, b.get("w1").Status.PodIP
	out := b.logs("w0", corev1.PodLogOptions{})
	if !strings.HasPrefix(out, second+" ") || !strings.Contains(out, "worker-0.job."+b.namespace+".svc.cluster.local\n") || !strings.Contains(out, "\n"+first+"\n") && !strings.Contains(out, "\n"+second+"\n") {
		t.Errorf("pods at %s and %s:\n%s", first, second, out)
	}
}

func TestManyPods(t *testing.T) {
	b := start(t, "many-1", "many-2")
	const pods = 20
	began := time.Now()
	for i := range pods {
		b.create(b.pod(fmt.Sprintf("p%d", i), "sleep 1000"))
	}
	for i := range pods {
		b.awaitPhase(fmt.Sprintf("p%d", i), corev1.PodRunning)
	}
	t.Logf("%d pods run after %s", pods, time.Since(began))
}

func TestExec(t *testing.T) {
	b := start(t, "exec")
	pod := b.pod("a", "sleep 1000")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "GREETING", Value: "hello"}}
	b.create(pod)
	b.awaitPhase("a", corev1.PodRunning)
	run := func(name string, tty bool, input string, command ...string) (code int, out, errs string, err error) {
		options := &corev1.PodExecOptions{Command: command, Stdin: input != "", Stdout: true, Stderr: !tty, TTY: tty}
		url := b.client.CoreV1().RESTClient().Post().Namespace(b.namespace).Resource("pods").Name(name).SubResource("exec").VersionedParams(options, scheme.ParameterCodec).URL()
		executor, err := remotecommand.NewWebSocketExecutor(cluster.Config(), "GET", url.String())
		if err != nil {
			t.Fatal(err)
		}
		var o, e bytes.Buffer
		streams := remotecommand.StreamOptions{Stdout: &o, Tty: tty}
		if !tty {
			streams.Stderr = &e
		}
		if input != "" {
			streams.Stdin = strings.NewReader(input)
		}
		err = executor.StreamWithContext(b.Context(), streams)
		if exit, is := errors.AsType[utilexec.CodeExitError](err); is {
			return exit.Code, o.String(), e.String(), nil
		}
		return 0, o.String(), e.String(), err
	}
	if code, out, errs, err := run("a", false, "to you\n", "sh", "-c", `read x; echo $GREETING $x; tr "\\0" " " </proc/1/cmdline; echo; echo wrong >&2; exit 3`); err != nil || code != 3 || out != "hello to you\n/bin/sh -c sleep 1000 \n" || errs != "wrong\n" {
		t.Errorf("exit code %d, output %q, errors %q, %v", code, out, errs, err)
	}
	if code, out, _, err := run("a", true, "", "sh", "-c", "test -t 0 && test -t 1 && echo a terminal"); err != nil || code != 0 || out != "a terminal\r\n" {
		t.Errorf("on a terminal: exit code %d, output %q, %v", code, out, err)
	}
	if _, _, _, err := run("none", false, "", "true"); err == nil {
		t.Error("a command runs in a pod that does not exist")
	}
}
