package main

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/internal/loopback"
)

// TestMetrics scrapes a watch without a token: a job that runs, one of its processes killed, and its processes' own figures.
func TestMetrics(t *testing.T) {
	t.Parallel()
	address := loopback.Free(t)
	dir := directoryWith(t, map[string]string{"main.hcl": "eltrain {\n  service {\n    metrics = \"" + address + "\"\n    metrics_by_slot = true\n  }\n}\n" + busyJob})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	startWatch(t, dir)
	scrape := func() string {
		resp, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return ""
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return string(text)
	}
	has := func(lines ...string) func() bool {
		return func() bool {
			text := scrape()
			for _, line := range lines {
				if !strings.Contains(text, line) {
					return false
				}
			}
			return true
		}
	}
	eventually(t, "it runs", has(`eltrain_job_phase{job_name="busy",phase="Running"} 1`, `eltrain_job_step{job_name="busy"} 3`, `eltrain_job_world_size{job_name="busy"} 2`,
		`eltrain_members{job_name="busy",state="running"} 2`, `eltrain_role_slots_running{job_name="busy",role="worker"} 2`, `eltrain_node_cpu_cores{kind="capacity",`, `eltrain_build_info{version="`+version+`"} 1`))
	eltrain(t, dir, "signal", "KILL", "job.busy.worker[0]").check(t, exitDone)
	eventually(t, "the incident is counted", has(`eltrain_job_incidents_total{action="restart_in_place",cause="process_killed",job_name="busy"} 1`, `eltrain_job_generation{job_name="busy"} 2`))
	if onLinux {
		eventually(t, "processes have figures", has(`eltrain_process_state{job_name="busy",local_rank="0",role="worker",slot="1",state="R"} 1`, `eltrain_process_resident_memory_bytes{job_name="busy",local_rank="0",role="worker",slot="1"} `))
	}
}

// What ends before anybody scrapes it does not need the address.
func TestOnlyAWatchServesMetrics(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := directoryWith(t, map[string]string{"main.hcl": "eltrain {\n  service {\n    metrics = \"" + taken.Addr().String() + "\"\n  }\n}\n" + twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	eltrain(t, dir, "suspend", "job.tiny").check(t, exitDone, "done")
	eltrain(t, dir, "apply", "-auto-approve", "-watch").check(t, exitError, "Cannot serve the metrics")
}
