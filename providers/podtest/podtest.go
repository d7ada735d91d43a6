// Package podtest is shared by the tests of providers whose incarnations are pods: a test binary that is also the agent in
// its own pods, images, eltrain's permissions, and the suite of providertest on a real control plane.
package podtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/providers/providertest"
	"github.com/eltrain/eltrain/testbed/kubelet"
)

// Rights is the RBAC of deploy/: the tests have no other permissions. The path is relative to a provider's directory.
var Rights = filepath.Join("..", "..", "deploy", "base", "rbac.yaml")

const (
	// HostImage is this machine's root file system; StandInImage has the test binary as its eltrain-agent.
	HostImage    = "host"
	StandInImage = "stand-in"

	// mark is an environment variable by which a test finds the processes of its pods.
	mark = "ELTRAIN_TEST_MARK"

	agentProgram = "eltrain-agent"
	agentPath    = "/usr/local/bin/" + agentProgram
)

// Main runs a package's tests and then closes what they share. Started as eltrain-agent in a pod, the test binary is the
// agent instead; like that, it can copy itself.
func Main(m *testing.M, closeShared func()) int {
	if len(os.Args) > 1 && filepath.Base(os.Args[0]) == agentProgram {
		if path, asked := strings.CutPrefix(os.Args[1], "-copy-to="); asked {
			return copySelf(path)
		}
		return providertest.Agent(os.Args[1:])
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // or each agent under the race detector takes a second to exit
	code := m.Run()
	closeShared()
	// HTTP clients keep idle connections and have no Close.
	if err := goleak.Find(
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("net/http.(*http2ClientConn).readLoop"),
		goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"),
	); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func copySelf(path string) int {
	b, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(path, b, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Images returns HostImage and StandInImage.
func Images() (map[string]kubelet.Image, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return map[string]kubelet.Image{HostImage: {}, StandInImage: AgentImage(self)}, nil
}

// AgentImage has the given program as its eltrain-agent.
func AgentImage(program string) kubelet.Image {
	return kubelet.Image{Mounts: []kubelet.Mount{{HostPath: program, Path: agentPath, ReadOnly: true}}}
}

// Node is a process node with room for all tests of a package at once.
func Node(name string) kubelet.Node {
	return kubelet.Node{Name: name, Capacity: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("64Gi")}}
}

// Needed skips a test if what it needs is not available.
func Needed(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("brings up a Kubernetes control plane: not with -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("the process kubelet needs root")
	}
}

// Harness is the harness of a provider in a namespace, whose pods run on a process node.
func Harness(t *testing.T, k *kubelet.Kubelet, namespace, node string, open func() (providers.Provider, error)) providertest.Harness {
	sh := func(script string) job.Program {
		return job.Program{Command: []string{"/bin/sh", "-c", script}, Env: map[string]string{mark: namespace}}
	}
	t.Cleanup(func() { killAll(t, namespace) })
	return providertest.Harness{
		Open:     open,
		Node:     node,
		Trains:   sh("sleep 300 & setsid sleep 300 & echo training; wait"),
		Stubborn: sh("trap '' TERM; sleep 300 & echo training; while :; do wait; sleep 1; done"),
		Ends:     sh("echo done"),
		KillAgent: func(i job.Incarnation) error {
			pid, err := k.PID(namespace, i.Name, "main")
			if err != nil {
				return err
			}
			return syscall.Kill(pid, syscall.SIGKILL)
		},
		Remains: func() []string { return remains(t, namespace) },
		Removes: true,
	}
}

// remains finds processes by the mark in the pods' environment.
func remains(t *testing.T, namespace string) []string {
	entries, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, path := range entries {
		env, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(env, []byte(mark+"="+namespace+"\x00")) {
			continue
		}
		args, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		left = append(left, fmt.Sprintf("%s %q", filepath.Base(filepath.Dir(path)), bytes.ReplaceAll(args, []byte{0}, []byte(" "))))
	}
	return left
}

// killAll cleans up after failed tests.
func killAll(t *testing.T, namespace string) {
	for _, line := range remains(t, namespace) {
		word, _, _ := strings.Cut(line, " ")
		if pid, err := strconv.Atoi(word); err == nil {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
