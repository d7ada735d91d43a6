package site

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Place is where the jobs of a site run.
type Place interface {
	// AgentOf and TrainerOf return the processes of a slot that trains, by their IDs on this machine.
	AgentOf(Slot) int
	TrainerOf(Slot) int

	// Node names the nodes, from 1. Delete removes one with all that runs on it, Reconnect brings it back.
	Node(n int) string
	Delete(node string)
	Reconnect(node string)

	// Processes returns the jobs' processes by pid. Left lists all that exists of the jobs, and Log logs their state.
	Processes() map[int]string
	Left() []string
	Log()
}

// machine is this machine, as the nodes that the job files declare.
type machine struct {
	site  *Site
	nodes map[string]bool // declared now
}

// NewLocal makes a directory for jobs on this machine. When the test ends they are destroyed; it is an error if anything is
// left of them.
func NewLocal(t *testing.T, programs Programs, job string) *Site {
	t.Helper()
	NotShort(t)
	s := NewLocalIn(t, programs, t.TempDir())
	s.Job = job
	s.Env = []string{"TRAIN_EVENTS=" + filepath.Join(s.Output, EventsFile)}
	t.Cleanup(s.Clean)
	return s
}

// NewLocalIn uses an existing directory. Nothing is destroyed when the test ends.
func NewLocalIn(t *testing.T, programs Programs, dir string) *Site {
	s := &Site{T: t, Programs: programs, Dir: dir, Output: dir}
	s.Place = &machine{site: s, nodes: map[string]bool{}}
	return s
}

// NewLocalDemo is the example for this machine, on nodes of one core each.
func NewLocalDemo(t *testing.T, programs Programs, nodes int) *Site {
	t.Helper()
	s := NewLocal(t, programs, "mnist")
	s.UseExample("mnist-local", "local")
	m := s.Place.(*machine)
	for n := range nodes {
		m.nodes[m.Node(n+1)] = true
	}
	m.declare()
	return s
}

func (m *machine) AgentOf(slot Slot) int   { return slot.AgentPID }
func (m *machine) TrainerOf(slot Slot) int { return slot.PID }

func (m *machine) Node(n int) string { return "n" + strconv.Itoa(n) }

func (m *machine) Delete(node string) {
	m.site.T.Helper()
	delete(m.nodes, node)
	m.declare()
}

func (m *machine) Reconnect(node string) {
	m.site.T.Helper()
	m.nodes[node] = true
	m.declare()
}

// declare writes the current nodes to the job files.
func (m *machine) declare() {
	m.site.T.Helper()
	var names []string
	for n := 1; len(names) < len(m.nodes); n++ {
		if name := m.Node(n); m.nodes[name] {
			names = append(names, name)
		}
	}
	m.site.Write("nodes.hcl", strings.ReplaceAll(Nodes(names...), "cpu = 1", "cpu    = 1\n    memory = \"512MiB\""))
}

// Nodes declares nodes of one core by name.
func Nodes(names ...string) string {
	var b strings.Builder
	b.WriteString("provider \"local\" {\n")
	for _, n := range names {
		fmt.Fprintf(&b, "  node %q {\n    cpu = 1\n  }\n", n)
	}
	b.WriteString("}\n")
	return b.String()
}

func (m *machine) Processes() map[int]string { return ProcessesIn(m.site.Dir) }

func (m *machine) Left() (found []string) {
	for pid, args := range m.Processes() {
		found = append(found, fmt.Sprintf("process %d %s", pid, args))
	}
	return found
}

func (m *machine) Log() {
	logs, _ := filepath.Glob(filepath.Join(m.site.Dir, ".eltrain/jobs/*/slots/*/*/agent.log"))
	for _, path := range logs {
		if text, _ := os.ReadFile(path); len(text) > 0 {
			m.site.T.Logf("%s:\n%s", strings.TrimPrefix(path, m.site.Dir), text)
		}
	}
}

// ProcessesIn returns the processes with a working directory below dir, by pid. In another mount namespace that may have the
// path of the namespace's root as a prefix.
func ProcessesIn(dir string) map[int]string {
	found := map[int]string{}
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range all {
		if cwd, err := os.Readlink(d + "/cwd"); err != nil || !strings.Contains(cwd, dir) || !lives(d) {
			continue
		}
		args, _ := os.ReadFile(d + "/cmdline")
		pid, _ := strconv.Atoi(filepath.Base(d))
		found[pid] = string(bytes.ReplaceAll(args, []byte{0}, []byte{' '}))
	}
	return found
}
