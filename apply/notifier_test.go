package apply

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/eltrain/eltrain/plan"
)

func TestWhatATerminalDoesNotTakeIsLeftOutInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := newMute()
		tell := &notifier{view: view}
		done := func(v View) { v.Finished(&plan.Change{}, 0, nil) }
		tell.begin()
		tell.tell(func(v View) { v.Planned(nil) })
		tell.tell(done)
		time.Sleep(maxCallAge + time.Second)
		tell.tell(done)
		tell.tell(done)
		close(view.free)
		synctest.Wait()
		if len(view.finished) != 1 || len(view.conditions) != 1 || view.conditions[0] != "raised output output_left_out(count=2)" {
			t.Errorf("%d calls, conditions %q", len(view.finished), view.conditions)
		}
		tell.tell(done)
		tell.end()
		tell.tell(done) // at once again
		if len(view.finished) != 3 {
			t.Errorf("%d calls in the end", len(view.finished))
		}
	})
}

// A plan of 10,000 slots takes some MB, and while changes are carried out the queue is never empty.
func TestWhatWasToldIsKeptNoLonger(t *testing.T) {
	view := newMute()
	tell := &notifier{view: view}
	tell.begin()
	defer tell.end()
	defer close(view.free)
	told := make(chan struct{})
	big := &plan.Plan{Changes: make([]plan.Change, 1000)}
	kept := weak.Make(big)
	hold := make(chan struct{})
	tell.tell(func(View) { <-hold })
	tell.tell(func(View) { runtime.KeepAlive(big) })
	tell.tell(func(v View) { close(told); v.Planned(nil) }) // which waits
	tell.tell(func(View) {})
	close(hold)
	<-told
	runtime.GC()
	if kept.Value() != nil {
		t.Error("a finished call is kept while another is in progress")
	}
}

func TestARunEndsThoughATerminalTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := newMute()
		tell := &notifier{view: view}
		tell.begin()
		tell.tell(func(v View) { v.Planned(nil) })
		tell.tell(func(v View) { v.Finished(&plan.Change{}, 0, nil) })
		begun := time.Now()
		tell.end()
		if took := time.Since(begun); took != maxFlush {
			t.Errorf("it ended after %v", took)
		}
		close(view.free)
		synctest.Wait()
		if len(view.finished) != 0 {
			t.Error("a call was made after the end")
		}
	})
}
