package volcano

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/providers/kubernetes"
)

// Once a master may no longer see queues, their last state holds up no job: they may have been opened since.
func TestAQueueThatIsNotSeenRefusesNobody(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"no","code":403}`)
	}))
	defer api.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"` + api.URL + `"}}],` +
		`"contexts":[{"name":"c","context":{"cluster":"c","namespace":"ml"}}],"current-context":"c"}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	whole := &server{fields: map[string]bool{"minMember": true, "minResources": true, "queue": true, "minTaskMember": true}}
	var g *gang
	p, err := kubernetes.New(kubernetes.Options{
		Config: kubernetes.Config{Kubeconfig: kubeconfig, Image: "train:1"}, Logger: slog.New(slog.DiscardHandler), Provider: Name,
		Gang: func(site kubernetes.Site) (kubernetes.Gang, error) {
			made, err := newGang(site, Config{})
			g = made.(*gang)
			return made, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	closed := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Status: v1beta1.QueueStatus{State: v1beta1.QueueStateClosed}}
	g.mu.Lock() // as while it could be seen
	g.server = whole
	g.mu.Unlock()
	g.seeQueue(closed, false)
	close(g.asked)
	if why := p.Capabilities().Refused; !strings.Contains(why, `queue "default" is closed`) {
		t.Errorf("while queues can be listed it is refused with %q", why)
	}
	for deadline := time.Now().Add(hang.Bound); ; time.Sleep(50 * time.Millisecond) {
		c := p.Capabilities()
		unseen := strings.Contains(strings.Join(c.Caveats, "\n"), "The queue's state and free quota are unknown")
		if c.Refused == "" && unseen {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("Refused is %q, with the caveats %q", c.Refused, c.Caveats)
		}
	}
}
