//go:build linux

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// memory is the mean memory of a job's agents, and that of the service they report to.
type memory struct {
	agent   usage
	service usage // zero if the launcher has none
}

// usage is a process's memory in kB. PSS divides shared memory among the processes that map it;
// private is what is freed when this process exits.
type usage struct{ rss, pss, private int }

func measureMemory(j job, slots []slot) memory {
	var m memory
	for _, s := range slots {
		u, err := usageOf(s.Agent)
		if err != nil {
			return memory{} // it exited meanwhile, or no permission
		}
		m.agent.rss += u.rss / len(slots)
		m.agent.pss += u.pss / len(slots)
		m.agent.private += u.private / len(slots)
	}
	if s, ok := j.(interface{ Service() int }); ok {
		m.service, _ = usageOf(s.Service())
	}
	return m
}

func usageOf(pid int) (usage, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return usage{}, err
	}
	var u usage
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kb, err := strconv.Atoi(f[1])
		if err != nil {
			continue
		}
		switch f[0] {
		case "Rss:":
			u.rss = kb
		case "Pss:":
			u.pss = kb
		case "Private_Clean:", "Private_Dirty:":
			u.private += kb
		}
	}
	return u, nil
}
