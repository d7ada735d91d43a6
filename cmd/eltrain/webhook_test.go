package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/internal/filetest"
	"github.com/eltrain/eltrain/internal/trusting"
)

// askToReconcile asks a directory's master at a URL to read its files now.
func askToReconcile(t *testing.T, dir, url, token string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url+"/v1/reconcile", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	return trusting.ClientOf(t, filepath.Join(dir, ".eltrain", "service-ca.pem")).Do(req)
}

// An invalid token file is the master's fault, not the caller's: the answer is 503, and the master says why, once while that
// lasts.
func TestATokenFileThatIsNoGoodIsToldByTheMaster(t *testing.T) {
	const token = "0123456789abcdef0123"
	home := t.TempDir()
	path := filepath.Join(home, "token")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		os.Remove(path)
		filetest.Put(t, path, text)
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	write(token, 0o600)
	dir := directoryWith(t, map[string]string{"main.hcl": "eltrain {\n  service {\n    reconcile_token_file = \"" + path + "\"\n  }\n}\n" + twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	w := startWatch(t, dir)
	eventually(t, "it watches", func() bool { return w.probe("/readyz") == http.StatusOK })
	ask := func() int {
		t.Helper()
		resp, err := askToReconcile(t, dir, w.url, token)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	const warned = "Warning: POST /v1/reconcile is disabled"
	warnings := 0
	for _, c := range []struct {
		text string
		mode os.FileMode
		code int
		why  string
	}{
		{token, 0o600, http.StatusAccepted, ""},
		{token, 0o644, http.StatusServiceUnavailable, "accessible to others"},
		{"short", 0o600, http.StatusServiceUnavailable, "has 5 characters"},
		{token, 0o600, http.StatusAccepted, ""},
		{"short", 0o600, http.StatusServiceUnavailable, "has 5 characters"}, // again, so it is reported again
		{"another-token-of-some-length", 0o600, http.StatusUnauthorized, ""},
	} {
		write(c.text, c.mode)
		for range 2 {
			if code := ask(); code != c.code {
				t.Errorf("with the file %q, mode %v, it answers %d", c.text, c.mode, code)
			}
		}
		if c.why != "" {
			warnings++
		}
		var said string
		eventually(t, "reported", func() bool { // the message comes by another path than the answer
			said = strings.Join(strings.Fields(w.out.String()), " ")
			return strings.Count(said, warned) >= warnings && strings.Contains(said, c.why)
		})
		if n := strings.Count(said, warned); n != warnings {
			t.Errorf("with the file %q, mode %v, it has warned %d times, want %d", c.text, c.mode, n, warnings)
		}
	}
}

// An edit that the watcher does not see, through another hard link of a file, is applied by the request, and not only at the next
// periodic read.
func TestARequestTakesUpAtOnceWhatIsNotWatched(t *testing.T) {
	const token = "0123456789abcdef0123"
	tokenAt := filepath.Join(t.TempDir(), "token")
	filetest.Put(t, tokenAt, token)
	if err := os.Chmod(tokenAt, 0o600); err != nil {
		t.Fatal(err)
	}
	job := strings.NewReplacer("stop_grace", "env        = { W = file(\"word.txt\") }\n    stop_grace", "replicas   = 2", "replicas   = 1").Replace(twoWorkers)
	dir := directoryWith(t, map[string]string{
		"main.hcl": "eltrain {\n  service {\n    reconcile_token_file = \"" + tokenAt + "\"\n  }\n}\n" + job, "word.txt": "one",
	})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	elsewhere := filepath.Join(t.TempDir(), "word.txt")
	if err := os.Link(filepath.Join(dir, "word.txt"), elsewhere); err != nil {
		t.Fatal(err)
	}
	w := startWatch(t, dir)
	ask := func() (reply elastic.ReconcileReply) {
		t.Helper()
		resp, err := askToReconcile(t, dir, w.url, token)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&reply); err != nil {
			t.Fatalf("%s: %v", resp.Status, err)
		}
		return reply
	}
	eventually(t, "it watches", func() bool { return w.probe("/readyz") == http.StatusOK })
	// At rest: a read of the files changes nothing now, and the next one is in half a minute.
	eventually(t, "its job is as declared", func() bool {
		r := ask()
		return r.Status == elastic.ReconcilePlanned && r.Changes != nil && *r.Changes == elastic.ReconcileChanges{}
	})
	begun := time.Now()
	filetest.Put(t, elsewhere, "two") // written in place: the directory does not change
	reply := ask()
	if took := time.Since(begun); took > apply.Rescan/2 {
		t.Errorf("it was answered after %v", took)
	}
	if reply.Status != elastic.ReconcilePlanned || reply.Changes == nil || reply.Changes.Add != 1 {
		t.Errorf("the answer is %+v, with the changes %+v", reply, reply.Changes)
	}
	eventually(t, "the slot is replaced", func() bool {
		return strings.Contains(eltrain(t, dir, "status", "-json").out, `"incarnation": 2`)
	})
}
