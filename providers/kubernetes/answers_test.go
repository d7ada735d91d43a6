package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/kube"
	"github.com/eltrain/eltrain/providers"
)

// answers is a fake API server whose answers and delays a test sets: within synctest no other can be called.
type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

func jsonAnswer(code int, o any) (*http.Response, error) {
	text, err := json.Marshal(o)
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(text)))}, err
}

// refusedAs is an error answer.
func refusedAs(code int, reason metav1.StatusReason, message string) (*http.Response, error) {
	return jsonAnswer(code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

// named answers with only the metadata of the requested object. The UID of a pod of gatedPod is its name.
func named(r *http.Request) (*http.Response, error) {
	name := path.Base(r.URL.Path)
	return jsonAnswer(http.StatusOK, map[string]any{"metadata": map[string]any{"name": name, "uid": name, "resourceVersion": "1000"}})
}

// slowly delays an answer.
func slowly(r *http.Request, takes time.Duration, answer func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	select {
	case <-time.After(takes):
		return answer(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// answered is a provider without watches that uses such an API server, at full pace.
func answered(t *testing.T, parallelism int, api answers) *Provider {
	t.Helper()
	client, err := kube.NewClient(&rest.Config{Host: "http://api", Transport: api})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	p := &Provider{
		client: client, namespace: "ml", config: Config{Parallelism: parallelism}, log: log, index: newIndex(), jobs: newPreparations(),
		where: newNamespaceIdentity(),
	}
	p.pacer, p.observed.version = newPacer(parallelism, log, p.index.signal), &p.index.version
	p.pacer.pace.all.size = parallelism
	p.ctx, p.cancel = context.WithCancel(t.Context())
	t.Cleanup(func() { p.Close() })
	return p
}

// retryTransient retries transient errors, as callers of a provider do.
func retryTransient(ctx context.Context, call func() error) error {
	tries := 0
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 800*time.Millisecond) {
		err := call()
		passing, may := errors.AsType[*providers.TransientError](err)
		if !may {
			return err
		}
		if !passing.Busy {
			tries++
		}
		if tries >= providers.Persists {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// gatedPod is a worker's pod held by our gate. The first five characters of the job's UID are its name.
func gatedPod(t *testing.T, uid string, index, incarnation int) *corev1.Pod {
	o := podFrom(t, "spec: {schedulingGates: [{name: eltrain.dev/gang}]}")
	slot := job.Address{Job: uid[:5], Role: "worker", Index: index}
	o.Labels, o.Name = podLabels(uid, slot, incarnation), podName(uid, slot, incarnation)
	o.UID = types.UID(o.Name)
	return o
}

// prepared enters a job as if Prepare had created its objects.
func (p *Provider) prepared(g job.Group) prepared {
	made := prepared{
		group: g, anchor: anchor{name: groupName(g.UID, g.Name)}, awake: new(atomic.Bool), writeLock: make(chan struct{}, 1),
		newest: new(atomic.Pointer[prepared]), readiness: new(readiness),
	}
	asked := made
	made.newest.Store(&asked)
	p.jobs.put(made)
	p.index.announce()
	return made
}

func gangOf(uid string, least int) job.Group {
	return job.Group{UID: uid, Name: uid[:5], Roles: []job.GroupRole{{Role: "worker", Min: least}}}
}

// uidOf returns the UID of one of several jobs.
func uidOf(n int) string { return fmt.Sprintf("job%02d-0b0e9c52", n) }

// jobOfPath is the job of the object that a request is for.
func jobOfPath(r *http.Request) string { return path.Base(r.URL.Path)[:5] }
