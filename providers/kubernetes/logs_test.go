package kubernetes

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/internal/soak"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// A slot's output is that of all its incarnations that are kept; a tail may start in an older one.
func TestATailGoesBackOverIncarnations(t *testing.T) {
	bed.start(t)
	w := newWork(t, bed.cluster, nil)
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	for n := 1; n <= 4; n++ {
		l := w.launch("worker", 0, n)
		l.Program.Command = []string{"sh", "-c", fmt.Sprintf("echo a%d; echo b%d", n, n)}
		w.ok(w.p.Launch(t.Context(), l))
		w.await("worker", 0, n, job.Gone)
	}
	for tail, want := range map[int]string{-1: "a2 b2 a3 b3 a4 b4", 0: "", 1: "b4", 2: "a4 b4", 3: "b3 a4 b4", 99: "a2 b2 a3 b3 a4 b4"} {
		if got := strings.Join(strings.Fields(w.logs("worker", 0, tail)), " "); got != want {
			t.Errorf("the last %d lines are %q, want %q", tail, got, want)
		}
	}
	for tail, want := range map[int]string{-1: "a3 b3", 1: "b3"} {
		r, err := w.p.Logs(t.Context(), testUID, job.Address{Job: "gpt", Role: "worker"}, providers.LogOptions{Tail: tail, Before: 4})
		w.ok(err)
		text, err := io.ReadAll(r)
		w.ok(errors.Join(err, r.Close()))
		if got := strings.Join(strings.Fields(string(text)), " "); got != want {
			t.Errorf("the last %d lines before the newest are %q, want %q", tail, got, want)
		}
	}
	// The first incarnation's pod was removed by the fourth's launch: a slot that fails repeatedly does not pile up pods.
	name := podName(testUID, job.Address{Job: "gpt", Role: "worker"}, 1)
	if _, err := w.cluster.Admin().CoreV1().Pods(w.namespace).Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the first incarnation's pod is still there: %v", err)
	}
}

// A follower sees each line once, whatever happens to the API server meanwhile.
func TestFollowingSurvivesTheAPIServer(t *testing.T) {
	soak.Only(t)
	bed.start(t)
	w := newWork(t, bed.cluster, nil)
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	l := w.launch("worker", 0, 1)
	l.Program.Command = []string{"sh", "-c", "i=0; while [ $i -lt 400 ]; do echo line $i; i=$((i+1)); sleep 0.05; done"}
	w.ok(w.p.Launch(t.Context(), l))
	w.await("worker", 0, 1, job.Up)
	r, err := w.p.Logs(t.Context(), testUID, l.Slot, providers.LogOptions{Tail: -1, Follow: make(chan struct{})})
	w.ok(err)
	defer r.Close()
	timer := time.AfterFunc(2*w.bound, func() { r.Close() })
	defer timer.Stop()
	lines := bufio.NewScanner(r)
	for n := range 400 {
		if !lines.Scan() || lines.Text() != fmt.Sprint("line ", n) {
			t.Fatalf("line %d is %q, %v", n, lines.Text(), lines.Err())
		}
		if n == 20 {
			w.cluster.APIServer.Kill(t)
			w.cluster.APIServer.Start(t)
		}
	}
}

func TestASlotWithoutAPodHasNoLog(t *testing.T) {
	w := newPaperwork(t)
	if _, err := w.p.Logs(t.Context(), testUID, job.Address{Job: "gpt", Role: "worker"}, providers.LogOptions{Tail: -1}); err == nil || !strings.Contains(err.Error(), "no pod") {
		t.Errorf("the error is %v", err)
	}
}
