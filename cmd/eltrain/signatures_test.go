package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// incidentsOf runs a script until its job has ended, and returns the outcome and the incidents.
func incidentsOf(t *testing.T, files map[string]string, heal string) (outcome, []incidentOf) {
	t.Helper()
	files["main.hcl"] = fmt.Sprintf("job \"a\" {\n  role \"worker\" {\n    command = [\"python3\", \"train.py\"]\n  }\n  heal {\n%s\n  }\n}\n", heal)
	dir := directoryWith(t, files)
	t.Cleanup(func() { killLeft(t, dir) })
	o := eltrain(t, dir, "apply", "-watch", "-until=done", "-auto-approve")
	var m struct {
		Jobs []struct{ Incidents []incidentOf }
	}
	if s := eltrain(t, dir, "status", "-json"); json.Unmarshal([]byte(s.out), &m) != nil || len(m.Jobs) != 1 {
		t.Fatalf("%s%s", s.out, s.err)
	}
	return o, m.Jobs[0].Incidents
}

type incidentOf struct {
	Cause, Action string
	Evidence      []string
	EvidenceCodes []struct {
		Code string
		Args map[string]string
	} `json:"evidence_codes"`
}

// signature is that of the incident's evidence.
func (i *incidentOf) signature() (name, line, hint string) {
	for _, e := range i.EvidenceCodes {
		if e.Code == "signature" {
			return e.Args["signature"], e.Args["message"], e.Args["hint"]
		}
	}
	return "", "", ""
}

// output is what the incident quotes.
func (i *incidentOf) output() (lines []string) {
	for _, e := range i.EvidenceCodes {
		if e.Code == "output" {
			lines = append(lines, e.Args["message"])
		}
	}
	return lines
}

// An error that is the same in each run fails the job the second time, with its traceback.
func TestAPermanentErrorFailsTheSecondTime(t *testing.T) {
	t.Parallel()
	o, incidents := incidentsOf(t, map[string]string{
		"train.py": "print('starting')\nimport model\n",
		"model.py": strings.Repeat("# a comment\n", 3) + "def f(:\n    pass\n",
	}, "")
	o.check(t, exitError, "script error in worker[0]", "SyntaxError: invalid syntax", "the same error again")
	if len(incidents) != 2 || incidents[0].Action != "restart_in_place" || incidents[1].Action != "fail" {
		t.Fatalf("%+v", incidents)
	}
	last := incidents[1]
	if name, line, _ := last.signature(); last.Cause != "script_error" || name != "python_syntax" || line != "SyntaxError: invalid syntax" {
		t.Errorf("%s by %s: %s", last.Cause, name, line)
	}
	trace := last.output()
	if len(trace) < 5 || trace[0] != "Traceback (most recent call last):" || !strings.HasSuffix(trace[1], `train.py", line 2, in <module>`) || !slices.Contains(trace, "    def f(:") {
		t.Errorf("the traceback is %q", trace)
	}
}

// A full device fails the job at once, and says what can be changed.
func TestDeviceMemoryFailsAtOnce(t *testing.T) {
	t.Parallel()
	o, incidents := incidentsOf(t, map[string]string{"train.py": "import sys\nprint('CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 16 GiB')\nsys.exit(1)\n"}, "")
	o.check(t, exitError, "device oom in worker[0]", "CUDA out of memory", "reduce the batch size")
	if len(incidents) != 1 || incidents[0].Cause != "device_oom" || incidents[0].Action != "fail" {
		t.Fatalf("%+v", incidents)
	}
	if name, _, hint := incidents[0].signature(); name != "device_memory" || hint != "device_memory" {
		t.Errorf("by %s, with the hint %s", name, hint)
	}
}

// A connection that breaks is healed.
func TestABrokenConnectionIsHealed(t *testing.T) {
	t.Parallel()
	const script = `
import os, socket, struct
if not os.path.exists("tried"):
    open("tried", "w").close()
    listener = socket.create_server(("127.0.0.1", 0))
    peer = socket.create_connection(listener.getsockname())
    mine, _ = listener.accept()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    mine.recv(1)
`
	o, incidents := incidentsOf(t, map[string]string{"train.py": script}, "")
	o.check(t, exitDone, "network in worker[0]", "ConnectionResetError: [Errno 104] Connection reset by peer", "job.a: Succeeded")
	if len(incidents) != 1 || incidents[0].Cause != "network" || incidents[0].Action != "restart_in_place" {
		t.Errorf("%+v", incidents)
	}
}

// A job's own signatures count before the known ones.
func TestAJobsOwnSignatures(t *testing.T) {
	t.Parallel()
	o, incidents := incidentsOf(t, map[string]string{
		"train.py":        "print('scratch is gone: /scratch')\nraise SystemExit(1)\n",
		"signatures.json": `[{"name": "scratch", "cause": "device_oom", "patterns": ["scratch is gone: "], "samples": [{"lines": ["scratch is gone: x"]}]}]`,
	}, `    signatures = file("signatures.json")`)
	o.check(t, exitError, "scratch is gone: /scratch")
	if len(incidents) != 1 || incidents[0].Cause != "device_oom" {
		t.Fatalf("%+v", incidents)
	}
	if name, _, _ := incidents[0].signature(); name != "scratch" {
		t.Errorf("by %s", name)
	}
}
