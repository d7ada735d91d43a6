package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/eltrain/eltrain/e2e/site"
)

// throughput trains at a rate that grows with the square root of the world, and says so.
const throughput = `
import os, signal, time
world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
step = int(open("checkpoint").read()) if os.path.exists("checkpoint") else 0
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
while True:
    step += 1
    time.sleep(0.05)
    if rank == 0:
        print(f"step {step} loss {100 / (100 + step)} tokens {1000 * world ** 0.5}", flush=True)
`

// device says that an accelerator is busy.
const device = `while sleep 0.5; do echo '{"device": 0, "utilization": 0.9}'; done`

// policies is a job whose worker follows one policy, at once.
func policies(name, policy string) string {
	block := ""
	if strings.Contains(policy, "accelerator_") {
		block = `accelerators { command = ["sh", "device.sh"] }`
	}
	return fmt.Sprintf(`
job %q {
  role "worker" {
    command    = ["python3", "train.py"]
    stop_grace = "2s"
    resources { cpu = 0.01 }
    %s
    scaling {
      min                 = 1
      max                 = 6
      evaluation_interval = "1s"
      explore             = 1
      cooldown {
        up   = "1s"
        down = "1s"
      }
      stabilization_window {
        up   = "0s"
        down = "0s"
      }
      policy "p" {
        %s
      }
    }
  }
  progress { pattern = "step (?P<step>\\d+) loss (?P<loss>\\S+) tokens (?P<tokens_per_second>\\S+)" }
}
`, name, block, policy)
}

// why is what eltrain why -json says of a role.
type why struct {
	Roles []struct {
		Address string
		Desired int
		Scaling struct {
			To       int
			Policies []struct {
				Size    int
				Reasons []string
			}
		}
	}
}

// Each source and strategy changes the size of a real job: what a command, a server and the training say, what is free and waits, and the clock.
func TestRolesFollowTheirPolicies(t *testing.T) {
	t.Parallel()
	var load atomic.Int64
	load.Store(3)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer sesame" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, `{"queue": {"length": %d}}`, load.Load())
	})}
	go server.Serve(listener)
	defer server.Close()
	jobs := map[string]string{
		"exec": `source "exec" { command = ["cat", "want"] }
        strategy "pass-through" {}`,
		"http": `source "http" {
          address = "http://` + listener.Addr().String() + `"
          field   = "queue.length"
          headers = { Authorization = "Bearer ${var.token}" }
        }
        strategy "pass-through" {}`,
		"training": `source "training" { metric = "tokens_per_second" }
        strategy "target-value" { target = 1500 }`,
		"threshold": `source "training" { metric = "step" }
        strategy "threshold" {
          above  = 20
          delta  = 5
          within = 2
        }`,
		"device": `source "training" { metric = "accelerator_utilization" }
        strategy "threshold" {
          above  = 0.8
          delta  = 5
          within = 2
        }`,
		"queue": `source "queue" { metric = "slots" }
        strategy "pass-through" {}`,
		"capacity": `source "capacity" { metric = "free" }
        strategy "threshold" {
          above  = 5
          delta  = 5
          within = 1
        }`,
		"worth": `strategy "efficiency" {}`,
		"night": `schedule {
          start    = "* * * * *"
          duration = "10m"
        }
        strategy "fixed-value" { replicas = 2 }`,
	}
	var files strings.Builder
	files.WriteString("variable \"token\" {\n  sensitive = true\n}\njob \"waits\" {\n  role \"big\" {\n    replicas = 2\n    command  = [\"true\"]\n    resources { cpu = 1000 }\n  }\n}\n")
	for name, policy := range jobs {
		files.WriteString(policies(name, policy))
	}
	s := newSite(t, map[string]string{"train.py": throughput, "want": "2", "device.sh": device, "job.hcl": files.String(), "eltrain.vars": "token = \"sesame\"\n"})
	s.Watch()
	// The training shows a throughput of 1000 times the square root of its size: 2 slots are within the tolerance of 1500.
	// All slots take as long for a step, so each size is worth it, and one is tried. The rest as they say.
	for name, size := range map[string]int{"exec": 2, "http": 3, "training": 2, "threshold": 6, "device": 6, "queue": 2, "capacity": 6, "night": 2, "worth": 2} {
		s.Of(name).Await(fmt.Sprintf("%s to have %d slots", name, size), func(j site.Job) bool { return j.Trains(size, 1) })
	}
	s.Write("want", "1")
	load.Store(5)
	s.Of("exec").Await("exec to shrink", func(j site.Job) bool { return j.Trains(1, 1) })
	s.Of("http").Await("http to grow", func(j site.Job) bool { return j.Trains(5, 1) })
	var said why
	if err := json.Unmarshal([]byte(s.Must("why", "-json", "job.http.worker")), &said); err != nil {
		t.Fatal(err)
	}
	if len(said.Roles) != 1 || said.Roles[0].Scaling.To != 5 || len(said.Roles[0].Scaling.Policies) != 1 || said.Roles[0].Scaling.Policies[0].Reasons[0] != "the value is 5" {
		t.Errorf("why says %+v", said)
	}
	if text := s.Read("eltrain.state"); strings.Contains(text, "sesame") {
		t.Error("the state has the sensitive header")
	}
}

// A figure of the training ends the job, as succeeded.
func TestTrainingEndsByItsFigure(t *testing.T) {
	t.Parallel()
	s := newSite(t, map[string]string{"train.py": throughput, "job.hcl": `
job "stops" {
  role "worker" {
    command    = ["python3", "train.py"]
    stop_grace = "2s"
    resources { cpu = 0.1 }
  }
  progress { pattern = "step (?P<step>\\d+) loss (?P<loss>\\S+) tokens (?P<tokens_per_second>\\S+)" }
  stop_when {
    metric = "loss"
    below  = 0.6
    for    = "10 steps"
  }
}
`}).Of("stops")
	s.Watch("-until=done")
	s.Await("it to succeed", func(j site.Job) bool { return j.Phase == "Succeeded" })
	site.Has(t, s.Must("events"), "Succeeded: loss is 0.")
}
