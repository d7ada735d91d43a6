package confine

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/eltrain/eltrain/internal/hang"
)

const (
	child  = "child"
	memory = 256 << 20
)

// TestMain is the child, too.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == child {
		request, err := Enter(memory)
		if err != nil {
			panic(err)
		}
		var work string
		if err := json.Unmarshal(request, &work); err != nil {
			panic(err)
		}
		do(work)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func do(work string) {
	switch work {
	case "answer":
		os.Stdout.WriteString("done")
	case "take memory":
		all := map[int][]byte{}
		for i := 0; ; i++ {
			all[i] = make([]byte, 1<<20)
		}
	case "recur":
		var recur func(n int) int
		recur = func(n int) int { return recur(n+1) + 1 }
		recur(0)
	case "wait":
		time.Sleep(2 * hang.Bound)
	case "talk":
		for {
			os.Stdout.Write(make([]byte, 1<<10))
		}
	case "panic":
		panic("a mistake")
	case "score":
		score, _ := os.ReadFile("/proc/self/oom_score_adj")
		os.Stdout.Write(score)
	}
}

func run(r *Runner, work string, within time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	request, err := json.Marshal(work)
	if err != nil {
		return "", err
	}
	r.Args, r.Env = []string{child}, os.Environ()
	result, err := r.Run(ctx, request)
	return string(result), err
}

func TestEachLimitIsTold(t *testing.T) {
	for work, want := range map[string]Limit{"take memory": Memory, "recur": Memory, "talk": Size} {
		var limit *LimitError
		if _, err := run(&Runner{Result: 1 << 20}, work, hang.Bound); !errors.As(err, &limit) || limit.Limit != want {
			t.Errorf("%s: %v", work, err)
		}
	}
	var limit *LimitError
	if _, err := run(&Runner{Result: 1 << 20}, "wait", 500*time.Millisecond); !errors.As(err, &limit) || limit.Limit != Hang {
		t.Errorf("wait: %v", err)
	}
}

func TestAResultIsReturnedAndAFailureTold(t *testing.T) {
	r := &Runner{Result: 5}
	for work, want := range map[string]string{"answer": "done", "score": "1000\n"} {
		if got, err := run(r, work, hang.Bound); err != nil || got != want {
			t.Errorf("%s: %q, %v", work, got, err)
		}
	}
	if _, err := run(r, "panic", hang.Bound); err == nil || errors.As(err, new(*LimitError)) {
		t.Errorf("a panic: %v", err)
	}
}

// What does not even end when it is killed is left behind, and nothing is started beside it.
func TestNothingIsStartedBesideAChildThatWasLeftBehind(t *testing.T) {
	left := make(chan struct{})
	r := &Runner{Result: 4, left: left}
	var limit *LimitError
	if _, err := run(r, "answer", hang.Bound); !errors.As(err, &limit) || limit.Limit != Hang {
		t.Errorf("while it is there: %v", err)
	}
	close(left)
	if got, err := run(r, "answer", hang.Bound); err != nil || got != "done" {
		t.Errorf("once it has ended: %q, %v", got, err)
	}
}

func TestAnInterruptIsNoLimit(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(100*time.Millisecond, cancel)
	r := &Runner{Args: []string{child}, Env: os.Environ(), Result: 4}
	if _, err := r.Run(ctx, []byte(`"wait"`)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
