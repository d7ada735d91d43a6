package garbage

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/hang"
)

// percent returns the current GC percentage.
func percent() int {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}

func TestWhatTheUserSaysOfGarbageIsObeyed(t *testing.T) {
	const users = 70
	before := debug.SetGCPercent(users)
	defer debug.SetGCPercent(before)
	none := func(string) string { return "" }
	release := Plan.Set(none)
	if is := percent(); is != int(Plan.percent) {
		t.Errorf("a heap may grow by %d %%", is)
	}
	release()
	for _, said := range []string{"GOGC", "GOMEMLIMIT"} {
		release := Master.Set(func(name string) string {
			if name == said {
				return "70"
			}
			return ""
		})
		if is := percent(); is != users {
			t.Errorf("with %s a heap may grow by %d %%", said, is)
		}
		release()
	}
}

func TestTheGarbageOfAMasterIsBoundedAnewAfterEachCollection(t *testing.T) {
	before := percent()
	release := Master.Set(func(string) string { return "" })
	var held [][]byte
	for _, size := range []int{1 << 20, 64 << 20, 256 << 20} {
		held = append(held, make([]byte, size))
		runtime.GC()
		within := func() bool { // of the bound for the current live heap, which other tests share
			grows, want := float64(percent())/100*float64(liveHeap()), float64(Master.slack)+float64(Master.percent)/100*float64(liveHeap())
			return grows > 0.8*want && grows < 1.2*want
		}
		if liveHeap() < minHeap {
			continue
		}
		for end := time.Now().Add(hang.Bound); !within(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d bytes live, and may grow by %d %%", liveHeap(), percent())
			}
		}
	}
	runtime.KeepAlive(held)
	release()
	runtime.GC()
	runtime.GC()
	if is := percent(); is != before {
		t.Errorf("after its end a heap may grow by %d %%, before by %d", is, before)
	}
}
