package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/notify"
)

// receiver is a chat: it keeps what is posted to it, and refuses the first message at first.
type receiver struct {
	mu     sync.Mutex
	bodies []notify.Body
	paths  map[string]bool
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b notify.Body
	if err := json.NewDecoder(req.Body).Decode(&b); err != nil || req.Header.Get("Authorization") != "Bearer hunter2hunter2" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.paths[req.URL.Path] = true
	if r.bodies = append(r.bodies, b); len(r.bodies) == 1 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (r *receiver) received() []notify.Body {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bodies
}

// A watch tells a chat and a command of a job that fails, once, while another hook hangs: it holds up neither the end of the watch nor its
// successor, which tells only what is new. Nothing that is stored or shown has the URL or the token in it.
func TestNotify(t *testing.T) {
	t.Parallel()
	chat := &receiver{paths: map[string]bool{}}
	server := httptest.NewServer(chat)
	t.Cleanup(server.Close)
	failing := func(name string) string {
		return fmt.Sprintf(`
job %q {
  role "worker" {
    command = ["sh", "-c", "echo out of data; exit 7"]
    resources { cpu = 0.1 }
  }
  heal {
    budget { restarts = 0 }
  }
}
`, name)
	}
	blocks := `
variable "token" { sensitive = true }

variable "hook" { sensitive = true }

notify "chat" {
  on      = ["failed"]
  url     = var.hook
  headers = { Authorization = "Bearer ${var.token}" }
}

notify "file" {
  on      = ["failed"]
  command = ["sh", "-c", "cat >> told"]
  text    = "{notify}: {job}"
}

notify "hangs" {
  on      = ["failed"]
  command = ["sleep", "1000"]
}
`
	dir := directoryWith(t, map[string]string{
		"main.hcl":     blocks + failing("a"),
		"eltrain.vars": fmt.Sprintf("token = \"hunter2hunter2\"\nhook = %q\n", server.URL+"/secret-path"),
	})
	eltrain(t, dir, "validate").check(t, exitDone)
	told := func() string {
		text, _ := os.ReadFile(filepath.Join(dir, "told"))
		return string(text)
	}
	recorded := func(name string) func() bool {
		return func() bool {
			events := eltrain(t, dir, "events").out
			return strings.Contains(events, "job."+name+": notify \"chat\" was told: failed") && strings.Contains(events, "job."+name+": notify \"file\" was told: failed")
		}
	}
	shown := watch(t, dir, func(func() string) { eventually(t, "job.a is told", recorded("a")) })
	rewrite(t, dir, blocks+failing("a")+failing("b"))
	shown += watch(t, dir, func(func() string) { eventually(t, "job.b is told", recorded("b")) })

	bodies := chat.received()
	if len(bodies) != 3 || bodies[0].ID != bodies[1].ID {
		t.Fatalf("the chat got %+v", bodies)
	}
	for i, want := range []string{"job.a", "job.a", "job.b"} {
		b := bodies[i]
		text := want + " failed: Failed: process failed in worker[0]: "
		if b.Job != want || b.Event != job.NotifyFailed || b.ReasonCode.Code != "job_failed" || !strings.HasPrefix(b.Text, text) || !strings.Contains(b.Text, "out of data") {
			t.Errorf("message %d is %+v", i, b)
		}
	}
	if n := strings.Count(told(), "file: job."); n != 2 {
		t.Errorf("the command was told %d times: %s", n, told())
	}
	shown += eltrain(t, dir, "status").out + eltrain(t, dir, "status", "-json").out + eltrain(t, dir, "state", "pull").out + eltrain(t, dir, "events", "-json").out + eltrain(t, dir, "plan").out
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && d.Name() != "eltrain.vars" {
			shown += read(t, path)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	for _, secret := range []string{"hunter2", "secret-path"} {
		if at := strings.Index(shown, secret); at >= 0 {
			t.Errorf("%s is kept or shown: …%s…", secret, shown[max(0, at-100):at+20])
		}
	}
}
