package local

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/eltrain/eltrain/job"
)

// Config is the block provider "local". Its tags define the language, read by job.Fields.
type Config struct {
	Nodes []Node `hcl:"node,block" change:"update" doc:"A node to place slots on. Several may share this machine. Without any, this machine as detected is one node."`
}

// Node is declared capacity. It may exceed the machine's: plans use what is declared.
type Node struct {
	Name    string            `hcl:"name,label" doc:"The node's name, unique in the block."`
	CPU     job.CPU           `hcl:"cpu,optional" change:"update" doc:"Cores that slots may reserve, fractions allowed."`
	Memory  job.Bytes         `hcl:"memory,optional" change:"update" doc:"Memory that slots may reserve, as \"4GiB\"."`
	Devices map[string]int    `hcl:"devices,optional" change:"update" doc:"Whole devices that slots may reserve, as { \"nvidia.com/gpu\" = 8 }."`
	Labels  map[string]string `hcl:"labels,optional" change:"update" doc:"What topology refers to, as { rack = \"r1\" }."`
}

// Validate returns every mistake, each with what to do.
func (c Config) Validate() []error {
	var errs []error
	seen := map[string]bool{}
	for _, n := range c.Nodes {
		if !job.ValidName(n.Name) {
			errs = append(errs, fmt.Errorf("%q is not a valid node name: use up to 63 letters, digits, \"-\" and \"_\", beginning with a letter or digit", n.Name))
		}
		if seen[n.Name] {
			errs = append(errs, fmt.Errorf("node %q is declared twice: give each node its own name", n.Name))
		}
		seen[n.Name] = true
		for device, count := range n.Devices {
			if device == "" || count < 0 {
				errs = append(errs, fmt.Errorf("node %q declares %d of device %q: a device needs a name and a count of 0 or more", n.Name, count, device))
			}
		}
	}
	return errs
}

// Check reports what this provider does not support: the same that the planner refuses by Capabilities.
func (c Config) Check(r *job.Role) error {
	var errs []error
	for _, p := range append([]job.Program{r.Program}, r.PerSlot...) {
		if p.Image != "" {
			errs = append(errs, &job.Misfit{Argument: "image", Err: errors.New("this provider runs processes on this machine, not images: remove image, or choose another provider")})
			break
		}
	}
	if r.Pod != nil {
		errs = append(errs, &job.Misfit{Argument: "pod", Err: errors.New("this provider runs processes on this machine, not pods: remove pod, or choose another provider")})
	}
	return errors.Join(errs...)
}

// Caution reports nodes on which roles of these jobs can never run, because a node has none of what it does not declare.
func (c Config) Caution(jobs []job.Job) error {
	var cautions []error
	for _, n := range c.Nodes {
		var roles []string
		for _, j := range jobs {
			for i := range j.Roles {
				if j.Roles[i].Resources.Memory > 0 && n.Memory == 0 {
					roles = append(roles, "job."+j.Name+"."+j.Roles[i].Name)
				}
			}
		}
		if len(roles) > 0 {
			cautions = append(cautions, &job.Misfit{Argument: "node", Label: n.Name, Err: fmt.Errorf(
				"node %q declares no memory, so it has none: %s can never run there. Set its memory, as memory = \"4GiB\"", n.Name, strings.Join(roles, ", "))})
		}
	}
	return errors.Join(cautions...)
}

// nodes is what Observe reports: the declared nodes, or this machine.
func (c Config) nodes() ([]job.Node, error) {
	if errs := c.Validate(); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if len(c.Nodes) == 0 {
		n, err := detect()
		if err != nil {
			return nil, err
		}
		return []job.Node{n}, nil
	}
	nodes := make([]job.Node, len(c.Nodes))
	for i, n := range c.Nodes {
		nodes[i] = job.Node{
			Name: n.Name, Provider: Name, Labels: n.Labels,
			Capacity: job.Resources{CPU: n.CPU, Memory: n.Memory, Devices: n.Devices},
		}
	}
	return nodes, nil
}

// detect describes this machine as one node: its hostname, the cores this process may use, and all its memory.
func detect() (job.Node, error) {
	cpu, err := job.Cores(float64(runtime.NumCPU()))
	if err != nil {
		return job.Node{}, fmt.Errorf("detect this machine: %w", err)
	}
	memory, err := totalMemory()
	if err != nil {
		return job.Node{}, fmt.Errorf("detect this machine: %w", err)
	}
	hostname, err := os.Hostname()
	if err != nil {
		return job.Node{}, fmt.Errorf("detect this machine: %w", err)
	}
	return job.Node{Name: nodeName(hostname), Provider: Name, Capacity: job.Resources{CPU: cpu, Memory: memory}}, nil
}

// nodeName makes a valid name of a hostname, which may have dots.
func nodeName(hostname string) string {
	name := strings.Map(func(r rune) rune {
		if job.ValidName("a" + string(r)) {
			return r
		}
		return '-'
	}, hostname)
	name = strings.TrimLeft(name, "-_")
	name = name[:min(len(name), 63)]
	if name == "" {
		return "localhost"
	}
	return name
}

// totalMemory is MemTotal of /proc/meminfo, whose "kB" are 1024 bytes.
func totalMemory() (job.Bytes, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), "MemTotal:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read MemTotal: %w", err)
			}
			return job.Bytes(kib << 10), nil
		}
	}
	return 0, errors.New("/proc/meminfo has no MemTotal")
}
