package apply

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/state"
)

// oneJob is the status of one recorded job.
func oneJob() Live {
	l := New(jobtest.Epoch, Setup{State: state.State{}.Next(job.Records{"a": {UID: "u", Phase: job.JobRunning}})})
	return l.Live(jobtest.Epoch, nil)
}

func TestFetchGivesWhatTheMasterKnows(t *testing.T) {
	dir := t.TempDir()
	if _, err := Fetch(t.Context(), dir); !errors.Is(err, ErrNoMaster) {
		t.Errorf("without a master: %v", err)
	}
	s, err := ServeLive(oneJob, dir)
	must(t, err)
	live, err := Fetch(t.Context(), dir)
	if err != nil || live.Records["a"] == nil || live.Records["a"].Phase != job.JobRunning {
		t.Errorf("fetched %+v, %v", live, err)
	}
	info, err := os.Stat(filepath.Join(dir, liveFile))
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the file with the token has mode %v", info.Mode())
	}
	s.Close()
	http.DefaultClient.CloseIdleConnections()
	if _, err := Fetch(t.Context(), dir); !errors.Is(err, ErrNoMaster) {
		t.Errorf("after Close: %v", err)
	}
}

// A master that exits in the middle of its answer counts as none, like one that does not answer.
func TestAMasterThatEndsAmidItsAnswerIsNoMaster(t *testing.T) {
	dying := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"records": {"a": `))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer dying.Close()
	dir := t.TempDir()
	text, err := json.Marshal(liveAddress{dying.URL, "token"})
	must(t, err)
	write(t, filepath.Join(dir, liveFile), string(text))
	if _, err := Fetch(t.Context(), dir); !errors.Is(err, ErrNoMaster) {
		t.Errorf("after half an answer: %v", err)
	}
}

func TestLiveWantsItsToken(t *testing.T) {
	dir := t.TempDir()
	s, err := ServeLive(oneJob, dir)
	must(t, err)
	defer s.Close()
	text, err := os.ReadFile(filepath.Join(dir, liveFile))
	must(t, err)
	var at liveAddress
	must(t, json.Unmarshal(text, &at))
	for _, token := range []string{"", "Bearer ", "Bearer wrong", at.Token[1:]} {
		req, err := http.NewRequest(http.MethodGet, at.URL+"/v1/live", nil)
		must(t, err)
		req.Header.Set("Authorization", token)
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("token %q: status %d", token, resp.StatusCode)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// The file of a killed master names a closed port, or one that another process has taken.
func TestAStaleMasterFileIsNoMaster(t *testing.T) {
	dir := t.TempDir()
	stranger, err := ServeLive(oneJob, t.TempDir())
	must(t, err)
	defer stranger.Close()
	text, err := os.ReadFile(stranger.file)
	must(t, err)
	var at liveAddress
	must(t, json.Unmarshal(text, &at))
	for _, stale := range []liveAddress{{"http://127.0.0.1:1", "x"}, {at.URL, "another token"}} {
		text, err := json.Marshal(stale)
		must(t, err)
		write(t, filepath.Join(dir, liveFile), string(text))
		ctx, cancel := context.WithTimeout(t.Context(), hang.Bound)
		if _, err := Fetch(ctx, dir); !errors.Is(err, ErrNoMaster) {
			t.Errorf("%s: %v", stale.URL, err)
		}
		cancel()
	}
	http.DefaultClient.CloseIdleConnections()
}
