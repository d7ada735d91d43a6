package sim_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// walkJobs are the jobs in walks: an elastic one, and one whose workers start after a server and scale in steps of two, by a policy.
const walkJobs = `
variable "most" {
  type    = number
  default = 5
}
variable "command" {
  type    = number
  default = 0
}
variable "check" {
  type    = string
  default = "suspected"
}
job "a" {
  priority = 1
  detect {
    check {
      when    = var.check
      timeout = "20s"
    }
  }
  checkpoint {
    dir    = "ckpt"
    signal = "SIGUSR1"
  }
  rendezvous {
    timeout = "1m"
  }
  role "worker" {
    replicas = 2
    command  = ["train", tostring(var.command)]
    scaling {
      min = 2
      max = var.most
    }
    resources { cpu = 1 }
  }
  heal {
    budget {
      restarts = 1000
    }
  }
}
job "b" {
  checkpoint {
    dir    = "ckpt"
    signal = "SIGUSR1"
  }
  rendezvous {
    timeout = "1m"
  }
  role "ps" {
    ranked  = false
    command = ["ps"]
    resources { cpu = 1 }
  }
  role "worker" {
    replicas   = 2
    command    = ["train"]
    depends_on = [role.ps]
    scaling {
      min  = 2
      max  = 6
      step = 2
      cooldown {
        up   = "20s"
        down = "20s"
      }
      stabilization_window {
        up   = "10s"
        down = "30s"
      }
      policy "own" {
        source "exec" {
          command = ["size"]
        }
        strategy "pass-through" {}
      }
    }
    resources { cpu = 1 }
  }
  heal {
    budget {
      restarts = 1000
    }
  }
}
`

// racks are nodes that fail together.
var racks = []string{"n0 n1 n2", "n3 n4", "n5 n6"}

// drawer draws steps.
type drawer struct{ *rand.Rand }

func (r drawer) of(some ...string) string { return some[r.IntN(len(some))] }

func (r drawer) within(d time.Duration) time.Duration {
	return time.Duration(1+r.Int64N(int64(d))).Truncate(time.Millisecond) + time.Millisecond
}

func (r drawer) node() string { return fmt.Sprintf("n%d", r.IntN(7)) }

// slot draws a slot, preferring those that always exist.
func (r drawer) slot() string {
	if r.IntN(12) == 0 {
		return "job.b.ps[0]"
	}
	return fmt.Sprintf("job.%s.worker[%d]", r.of("a", "b"), min(r.IntN(6), r.IntN(6)))
}

func (r drawer) master() string { return r.of("a", "b", "c") }

// draw returns the walk of a seed: with or without a scheduler, with one or several masters, with or without failing effects.
func draw(seed int) (k walk) {
	r := drawer{rand.New(rand.NewPCG(uint64(seed), 7))}
	schedules, faulty, many, drops := seed%2 == 1, seed%3 > 0, seed%3 == 2, seed%5 == 0
	if schedules {
		k.setup = append(k.setup, step("scheduler "+r.of("", "packs")))
	}
	if seed%7 == 0 {
		k.setup = append(k.setup, "checks")
	}
	examined := seed%4 == 0
	if examined {
		k.setup = append(k.setup, "set check=always")
	}
	if many {
		k.setup = append(k.setup, step("remote"))
		for _, name := range []string{"a", "b", "c"} {
			k.setup = append(k.setup, step(fmt.Sprintf("clock %s %s", name, time.Duration(r.IntN(241)-120)*time.Second)))
		}
		if r.IntN(3) == 0 {
			k.setup = append(k.setup, "news 20s")
		}
	}
	for i := range 7 {
		k.setup = append(k.setup, step(fmt.Sprintf("node n%d cpu=1", i)))
	}
	add := func(format string, args ...any) {
		k.steps = append(k.steps, step(strings.TrimSpace(fmt.Sprintf(format, args...))))
	}
	for range 40 {
		switch {
		case many && r.IntN(3) == 0:
			add("%s", r.betweenMasters())
		case !many && r.IntN(6) == 0:
			add("%s", r.onNet("a"))
		case faulty && r.IntN(3) == 0:
			add("%s", r.atEffect())
		case schedules && r.IntN(3) == 0:
			add("%s", r.onCluster())
		default:
			add("%s", r.anywhere(many))
		}
		if examined && r.IntN(5) == 0 {
			add("faulty %s %s", r.node(), r.of("", "memory", "exchange", "time"))
		}
		if drops && r.IntN(8) == 0 {
			add("%s %s", r.of("drop", "declare", "declare", "finish", "suspend", "unsuspend", "unsuspend", "request suspend", "request suspend -keep", "request resume", "request resume", "request restart", "request restart", "request cancel", "request cancel -force", "request restart -elsewhere", "request restart -in-place", "request restart -in-place", "request signal", "request checkpoint", "request reload", "request apply", "request apply", "request destroy"), r.of("a", "b"))
		}
		if drops && r.IntN(12) == 0 {
			add("request scale %s.worker=%s", r.of("a", "b"), r.of("2", "3", "4", "6", "auto", "paused"))
		}
		if drops && r.IntN(8) == 0 {
			add("request %s node.%s", r.of("cordon", "drain", "drain", "uncordon", "uncordon"), r.node())
		}
		d := 3 * time.Second
		if many && r.IntN(5) == 0 {
			d = 30 * time.Second
		}
		add("run %s", r.within(d))
	}
	add("rest")
	return k
}

// anywhere draws a step that can happen on any cluster.
func (r drawer) anywhere(many bool) string {
	master := "a"
	if many {
		master = r.master()
	}
	switch r.IntN(19) {
	case 18:
		return "hang " + r.slot()
	case 0:
		return "kill-process " + r.slot()
	case 1:
		return "exit " + r.slot() + " 1"
	case 2, 3:
		return "kill-agent " + r.slot()
	case 4:
		return "silence " + r.slot()
	case 5, 6:
		return "wake " + r.slot()
	case 7:
		return "remove-node " + r.node()
	case 8:
		return "crash-node " + r.of(r.node(), racks[r.IntN(3)])
	case 9, 10:
		return "node " + r.node() + " cpu=1"
	case 11:
		if many {
			return "crash " + master
		}
		return r.of("crash ", "interrupt ") + master
	case 12:
		return r.of("start ", "start ", "once ", "destroy ") + master
	case 13:
		return r.of("ask ", "ask ", "serve ") + master
	case 14:
		return r.of("quota 0", fmt.Sprintf("quota %d", 3+r.IntN(5)))
	}
	return r.of(fmt.Sprintf("set most=%d", 2+r.IntN(5)), fmt.Sprintf("set command=%d", r.IntN(3)))
}

// onCluster draws a step that needs a cluster with a scheduler.
func (r drawer) onCluster() string {
	switch r.IntN(10) {
	case 0:
		return "not-ready " + r.of(r.node(), racks[r.IntN(3)])
	case 1, 2:
		return "ready " + r.of(r.node(), racks[r.IntN(3)])
	case 3:
		return "delete-node " + r.node()
	case 4:
		return "cordon " + r.node()
	case 5:
		return "fill " + r.node()
	case 6:
		return r.of("preempt ", "evict ", "delete ") + r.slot()
	case 7:
		return "edit " + r.slot()
	case 8:
		return r.of("hide ", "show ") + r.slot()
	}
	return fmt.Sprintf("trouble prepare %s", r.within(10*time.Second))
}

// kinds are the kinds of all effects.
var kinds = []string{"answer", "approve", "check", "chronicle", "forget", "gauge", "hear", "journal", "launch", "notify", "observe", "prepare",
	"publish", "read-files", "reread", "respond", "sample", "stop", "store", "tell"}

// inMemory are those in the process's own memory, which take no time and do not fail.
var inMemory = map[string]bool{"answer": true, "gauge": true, "hear": true, "tell": true}

// Faults are drawn at each kind of effect.
func TestWalksHaveFaultsAtAllEffects(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../apply/effects.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	ast.Inspect(file, func(n ast.Node) bool {
		if field, is := n.(*ast.KeyValueExpr); is && fmt.Sprint(field.Key) == "Kind" {
			kind, _ := strconv.Unquote(field.Value.(*ast.BasicLit).Value)
			all = append(all, kind)
		}
		return true
	})
	slices.Sort(all)
	if !slices.Equal(all, kinds) {
		t.Errorf("the effects are %q, and walks have faults at %q", all, kinds)
	}
}

// atEffect draws a fault of an effect.
func (r drawer) atEffect() string {
	kind := r.of(append([]string{"store", "launch", "stop"}, kinds...)...)
	when := r.of("before", "after")
	switch n := r.IntN(4); {
	case inMemory[kind] && n > 0:
		return fmt.Sprintf("fault %s pause %s %s", kind, when, r.within(3*time.Second))
	case n == 0:
		return fmt.Sprintf("fault %s crash %s", kind, when)
	case n == 1:
		return fmt.Sprintf("fault %s delay %s %s", kind, when, r.within(3*time.Second))
	}
	return fmt.Sprintf("fault %s %s %s", kind, r.of("error", "busy", "conflict"), when)
}

// betweenMasters draws a step about masters or their network.
func (r drawer) betweenMasters() string {
	m := r.master()
	switch r.IntN(12) {
	case 0, 1:
		return "start " + m
	case 2:
		return fmt.Sprintf("pause %s %s", m, r.within(40*time.Second))
	case 3:
		return fmt.Sprintf("fault %s pause %s %s", r.of("store", "launch", "stop", "publish", "prepare", "tell"), r.of("before", "after"), r.within(40*time.Second))
	case 4:
		return fmt.Sprintf("clock %s %s", m, time.Duration(r.IntN(241)-120)*time.Second)
	case 5:
		return r.of("interrupt "+m, "force-unlock")
	}
	return r.onNet(m)
}

// onNet draws a step about the network of a master, or about what it asks for.
func (r drawer) onNet(m string) string {
	switch r.IntN(7) {
	case 0, 1:
		from, to := m, r.of("store", "cluster", "agents", "agents/"+r.node())
		if r.IntN(2) == 0 {
			from, to = to, from
		}
		return fmt.Sprintf("link %s%s%s %s", from, r.of(">", "<>"), to, r.of("cut", "cut", "late=2s", "late=40s", "lost=30", "doubled=30 late=500ms"))
	case 2:
		return fmt.Sprintf("link %s<>%s", m, r.of("store", "cluster", "agents"))
	case 3:
		return fmt.Sprintf("link agents<>%s %s", m, r.of("late=2s", "lost=30", "doubled=30 late=500ms", "cut"))
	case 4:
		return fmt.Sprintf("trouble %s %s %s", r.of("store", "cluster", "write", "observe", "launch", "stop"), r.within(20*time.Second), r.of("", "busy"))
	}
	return r.of(fmt.Sprintf("lag %s", r.within(4*time.Second)), "lag 0s", "hide "+r.slot(), "show "+r.slot())
}
