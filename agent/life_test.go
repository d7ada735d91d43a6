package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
)

// The scenarios list an event, then its effects and the new state.
func TestLife(t *testing.T) {
	datadriven.Walk(t, "testdata/life", func(t *testing.T, path string) {
		l := newLife(30 * time.Second)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "agent" {
				grace := 30 * time.Second
				if d.HasArg("stop_grace") {
					var text string
					d.ScanArgs(t, "stop_grace", &text)
					grace, _ = time.ParseDuration(text)
				}
				l = newLife(grace)
				return state(l)
			}
			var out strings.Builder
			for _, effect := range l.Step(parseEvent(t, d)) {
				out.WriteString(describe(effect) + "\n")
			}
			return out.String() + state(l)
		})
	})
}

func parseEvent(t *testing.T, d *datadriven.TestData) event {
	number := func(key string) (n int) {
		if d.HasArg(key) {
			d.ScanArgs(t, key, &n)
		}
		return n
	}
	switch d.Cmd {
	case "order":
		o := elastic.Order{Do: elastic.Do(d.CmdArgs[0].Key), Checkpoint: d.HasArg("checkpoint"), Force: d.HasArg("force"), InPlace: number("in_place")}
		if d.HasArg("gen") {
			o.World = &elastic.Place{Generation: number("gen"), GroupRank: number("rank"), GroupSize: number("slots")}
		}
		if d.HasArg("check") {
			o.Check = &elastic.Check{Number: number("check")}
			if d.HasArg("round") {
				o.Check.Pair = &elastic.Pair{Set: int64(number("set")), Round: number("round"), Peer: "worker[1]"}
			}
		}
		if d.HasArg("progress") {
			o.Progress = new(elastic.Progress)
			d.ScanArgs(t, "progress", &o.Progress.Pattern)
		}
		for i, arg := range d.CmdArgs {
			if arg.Key == "act" { // ID KIND [VALUE]
				o.Acts = append(o.Acts, job.Act{ID: arg.Vals[0], Kind: job.ActKind(arg.Vals[1]), Value: strings.Join(d.CmdArgs[i].Vals[2:], "")})
			}
		}
		return ordered{Order: o}
	case "checked": // NUMBER [failed=PART] [not_started]
		c := checked{Checked: job.Checked{Number: number("number")}}
		if d.HasArg("failed") {
			var part string
			d.ScanArgs(t, "failed", &part)
			c.Failed = job.CheckPart(part)
		}
		if d.HasArg("not_started") {
			c.notStarted = &job.Exit{Code: codeNotFound, NotStarted: "no such program"}
		}
		return c
	case "exchanged": // number= [set=] round=
		return exchanged{number("number"), job.Exchanged{Set: int64(number("set")), Round: number("round")}}
	case "acted":
		return acted{job.ActResult{ID: d.CmdArgs[0].Key, State: job.ActState(d.CmdArgs[1].Key)}}
	case "started":
		return started{[]int{101}}
	case "failed":
		return failed{job.Exit{Code: number("code")}}
	case "stopped":
		return stopped{}
	case "sigterm":
		return signalled{}
	case "fenced":
		return fenced{}
	case "answered":
		var s string
		d.ScanArgs(t, "state", &s)
		return answered{job.MemberState(s), number("pids")}
	case "overdue":
		return overdue{}
	case "unanswered":
		return unanswered{}
	}
	t.Fatalf("%s: no such event: %s", d.Pos, d.Cmd)
	return nil
}

func describe(e effect) string {
	switch e := e.(type) {
	case start:
		return fmt.Sprintf("start generation %d", e.place.Generation)
	case stop:
		text := fmt.Sprintf("stop grace=%s", e.grace)
		if e.checkpoint {
			text += " after a checkpoint"
		}
		return text
	case read:
		if e.by == nil {
			return "read the progress of known frameworks"
		}
		return "read progress by " + e.by.Pattern
	case perform:
		return strings.TrimSpace(fmt.Sprintf("perform %s: %s %s", e.ID, e.Kind, e.Value))
	case inspect:
		return fmt.Sprintf("begin check %d", e.check.Number)
	case meet:
		return fmt.Sprintf("begin exchange %d with %s", e.check.Pair.Round, e.check.Pair.Peer)
	case disregard:
		return "end the check"
	case reserve:
		return "reserve another port"
	case report:
		return "report"
	case lastWord:
		return "await the answer to the last word"
	case end:
		return "end: " + string(e.reason)
	}
	return fmt.Sprintf("%T", e)
}

func state(l *life) string {
	text := fmt.Sprintf("-- %s, processes %s, generation %d", l.state, l.procs, l.generation)
	if l.inPlace > 0 {
		text += fmt.Sprintf(", in place %d", l.inPlace)
	}
	if l.exit != nil {
		text += fmt.Sprintf(", exit %d", l.exit.Code)
	}
	if c := l.check.Done(); c != nil {
		text += strings.TrimSuffix(fmt.Sprintf(", check %d %s", c.Number, c.Failed), " ")
		for _, x := range c.Exchanges {
			text += fmt.Sprintf(", exchange %d", x.Round)
		}
	}
	for _, r := range l.results() {
		text += fmt.Sprintf(", %s %s", r.ID, r.State)
	}
	if l.wantsAnswer() {
		text += ", wants an answer"
	}
	return text + "\n"
}

// For all events in any order: processes are started only while none run and the node is not checked, a generation never runs twice, a
// check has a greater number than those that have ended, an agent that is to leave never starts anything again, and a fence or an
// order to leave always ends the agent.
func TestLifeNeverRunsTwoGenerationsAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(30 * time.Second)
		alive, newest, gone, ended := false, 0, false, false
		checks, lastCheck := 0, 0 // the number of the check that runs, and of the last that has ended
		take := func(e event) {
			for _, effect := range l.Step(e) {
				switch effect := effect.(type) {
				case start:
					if alive || gone || checks > 0 || effect.place.Generation <= newest {
						t.Fatalf("started generation %d: alive %v, check %d, newest %d, leaving %v", effect.place.Generation, alive, checks, newest, gone)
					}
					alive, newest = true, effect.place.Generation
				case stop:
					if !alive {
						t.Fatal("a stop without processes")
					}
				case inspect:
					if alive || gone || checks > 0 && effect.check.Number <= checks || effect.check.Number <= lastCheck {
						t.Fatalf("began check %d: alive %v, leaving %v, check %d, last %d", effect.check.Number, alive, gone, checks, lastCheck)
					}
					checks = effect.check.Number
				case disregard:
					checks = 0
				case end:
					if alive {
						t.Fatal("exited while processes run")
					}
					ended = true
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			if ended {
				return
			}
			switch rapid.IntRange(0, 11).Draw(t, "event") {
			case 0, 1:
				gen := rapid.IntRange(1, 8).Draw(t, "generation")
				take(ordered{Order: elastic.Order{Do: elastic.Run, World: &elastic.Place{Generation: gen}}})
			case 2:
				take(ordered{Order: elastic.Order{Do: elastic.Wait, InPlace: rapid.IntRange(0, 3).Draw(t, "in place"), Checkpoint: rapid.Bool().Draw(t, "planned")}})
			case 3:
				if alive {
					take(failed{job.Exit{Code: 1}})
				}
			case 4:
				if alive {
					alive = false
					take(stopped{})
				}
			case 5:
				take(answered{l.state, len(l.pids)})
			case 6:
				if rapid.IntRange(0, 3).Draw(t, "rarely") == 0 {
					gone = true
					take(signalled{})
				}
			case 7:
				if rapid.IntRange(0, 3).Draw(t, "rarely") == 0 {
					gone = true
					take(fenced{})
				}
			case 8:
				if rapid.IntRange(0, 3).Draw(t, "rarely") == 0 {
					gone = true
					take(ordered{Order: elastic.Order{Do: elastic.Leave}})
				}
			case 9:
				take(unanswered{})
			case 10:
				take(ordered{Order: elastic.Order{Do: elastic.Wait, Check: &elastic.Check{Number: rapid.IntRange(1, 4).Draw(t, "check")}}})
			case 11:
				if c := (checked{Checked: job.Checked{Number: checks}}); checks > 0 {
					if checks = 0; rapid.Bool().Draw(t, "started") {
						lastCheck = c.Number
					} else {
						c.notStarted = &job.Exit{Code: codeNotFound}
					}
					take(c)
				}
			}
		}
		if !gone || ended {
			return
		}
		if alive {
			alive = false
			take(stopped{})
		}
		if !ended {
			take(overdue{})
		}
		if !ended {
			t.Fatalf("it is to leave and nothing runs, but it does not exit: %s", state(l))
		}
	})
}

// A check that has ended tells nobody of its port: a later master would pair others with it.
func TestAnEndedCheckHasNoPort(t *testing.T) {
	l := newLife(0)
	l.order.Do, l.order.Check = elastic.Wait, &elastic.Check{Number: 1, Seconds: 10}
	l.beginCheck()
	l.checked(checked{Checked: job.Checked{Number: 1, Seconds: 2, Port: 7}})
	l.exchanged(exchanged{1, job.Exchanged{Round: 1}})
	if d := l.check.Done(); d == nil || d.Port != 7 || len(d.Exchanges) != 1 {
		t.Fatalf("it has found %+v", d)
	}
	l.order.Check = nil
	l.endCheck()
	if d := l.check.Done(); d.Port != 0 || d.Exchanges != nil || d.Seconds != 2 {
		t.Errorf("it still tells %+v", d)
	}
}
