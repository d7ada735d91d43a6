package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/kube"
	"github.com/eltrain/eltrain/providers"
)

// While one launch checks an anchor another may check too. The later result stays, and a canceled check does not wait.
func TestTwoWhoLookAtAnAnchor(t *testing.T) {
	meanwhile := make(chan func(), 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		(<-meanwhile)()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
	}))
	defer server.Close()
	client, err := kube.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	p := &Provider{client: client, namespace: "ml", pacer: newPacer(2, slog.New(slog.DiscardHandler), func() {})}
	defer p.pacer.close()
	j := prepared{anchor: anchor{name: "gpt"}, check: make(chan anchorCheck, 1)}
	old := func() anchorCheck { return anchorCheck{seen: time.Now(), next: time.Now().Add(-anchorStands)} } // due for a check

	j.check <- old()
	newer := checkedNow(time.Now().Add(hang.Bound))
	meanwhile <- func() { <-j.check; j.check <- newer }
	bounded, end := context.WithTimeout(t.Context(), hang.Bound)
	defer end()
	if err := p.ensureAnchor(bounded, j); !errors.Is(err, providers.ErrNotPrepared) {
		t.Errorf("the error for a missing anchor is %v", err)
	}
	if last := <-j.check; last != newer {
		t.Errorf("the later result is lost: %+v", last)
	}

	j.check <- old()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	meanwhile <- func() { <-j.check; cancel() } // another check takes long
	ended := make(chan error, 1)
	go func() { ended <- p.ensureAnchor(ctx, j) }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("no error for a canceled check of a missing anchor")
		}
	case <-time.After(hang.Bound):
		t.Error("it still waits although it was canceled")
		j.check <- old()
		<-ended
	}
}
