package apply

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
)

// While a hook fails, the messages in the state are limited. Once it answers, all that still holds is told once.
func TestUnsentMessagesAreLimited(t *testing.T) {
	s := newScenario(t)
	s.do("provider local nodes=1")
	s.do("fail notify", "no route to host")
	lines := []string{"notify=oncall waiting"}
	for i := range mostUnsent + 2 {
		lines = append(lines, fmt.Sprintf("j%d worker=2", i))
	}
	out := s.do("run watch", lines...)
	if n := len(s.stored.Notifications.Unsent); n != mostUnsent {
		t.Errorf("the state has %d messages", n)
	}
	s.do("fail notify")
	out += s.do("pass 10m")
	for i := range mostUnsent + 2 {
		if n := strings.Count(out, fmt.Sprintf("do journal: job.j%d notify: notified", i)); n != 1 {
			t.Errorf("job.j%d was told %d times", i, n)
		}
	}
	if n := s.stored.Notifications; len(n.Unsent) != 0 || len(n.Alerts) != mostUnsent+2 {
		t.Errorf("the state has %d messages, and %d alerts", len(n.Unsent), len(n.Alerts))
	}
}

// A hook that hangs delays no launch, no other hook, and not the end of the run. It is a condition once its time is up several times.
func TestAHookThatHangsHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan string, 10)
		d := newDriven(t, func(s *Setup, p *Parts) {
			big := jobtest.Job("big", jobtest.Role("worker", 1000))
			s.Watch, s.Files.Jobs = true, []job.Job{big, jobtest.Job("a", jobtest.Role("worker", 2))}
			waiting := []job.NotifyEvent{job.NotifyWaiting}
			s.Files.Notify = []job.Notify{{Name: "hangs", On: waiting, All: true}, {Name: "works", On: waiting, All: true}}
			p.Notify = func(ctx context.Context, m job.Message, sentence string) error {
				if m.Notify == "hangs" {
					<-ctx.Done()
					return ctx.Err()
				}
				told <- m.Address + " " + sentence
				return nil
			}
		})
		d.begin(t)
		synctest.Wait()
		if n := d.provider.running(); n != 2 {
			t.Errorf("%d slots of job.a run", n)
		}
		if got := <-told; !strings.HasPrefix(got, "job.big never_fits") {
			t.Errorf("told %q", got)
		}
		pass(2 * time.Minute)
		if !strings.Contains(fmt.Sprint(d.view.conditions), "notify.hangs not_notified(message=\"context deadline exceeded\")") {
			t.Errorf("reported %q", d.view.conditions)
		}
		must(t, d.end())
	})
}
