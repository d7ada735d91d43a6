package apply

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/eltrain/eltrain/internal/atomicfile"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// Live is what a running master knows now: what `eltrain status` shows.
type Live struct {
	Records  job.Records  `json:"records"`
	Snapshot job.Snapshot `json:"snapshot"`
	Waits    []plan.Wait  `json:"waits,omitempty"`
	// Released are the jobs that the state was told to forget and that may run on, by UID.
	Released map[string]job.Released `json:"released,omitempty"`
}

// liveFile holds, in the run directory and for its owner alone, where the master of the directory answers.
const liveFile = "master.json"

// Bounds of asking a master: it is on this machine and answers from memory.
const (
	liveTimeout  = 5 * time.Second
	liveMaxBytes = 256 << 20
)

type liveAddress struct {
	URL   string `json:"url"`
	Token string `json:"token"`
}

// Live is a copy of what the master knows now.
func (r *Reconciler) Live() Live {
	snapshot, refusals := r.Snapshot(), r.refusals()
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.o.Clock()
	unstored := r.unstoredJobs()
	records := make(job.Records, len(r.state.Jobs))
	for name, rec := range r.state.Jobs {
		copied := *rec
		if r.unstored != "" && rec.Phase == job.JobRunning {
			copied.Phase = job.JobDegraded // nothing of it is healed, and its record cannot say so
		}
		if !rec.Phase.Ended() {
			copied.Goodput = rec.Goodput.Until(now)
		}
		records[name] = &copied
	}
	return Live{Records: records, Snapshot: snapshot, Waits: slices.Concat(unstored, r.waits, refusals, r.left, r.lostJobs()), Released: r.state.Released}
}

// LiveServer answers Fetch on this machine until Close.
type LiveServer struct {
	http    *http.Server
	file    string
	text    []byte // of file
	serving sync.WaitGroup
}

// ServeLive lets other processes of the same user ask what the master knows. It listens on loopback only; the
// address and a token are in a file in runDir that only its owner can read.
func ServeLive(r *Reconciler, runDir string) (*LiveServer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for status: %w", err)
	}
	token := rand.Text()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/live", func(w http.ResponseWriter, req *http.Request) {
		given := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
		if subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1 {
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(r.Live()) // an error is the client's broken connection
	})
	s := &LiveServer{
		http: &http.Server{Handler: mux, ReadHeaderTimeout: liveTimeout, ReadTimeout: liveTimeout, WriteTimeout: time.Minute, MaxHeaderBytes: 8 << 10},
		file: filepath.Join(runDir, liveFile),
	}
	s.serving.Go(func() { s.http.Serve(listener) })
	s.text, err = json.Marshal(liveAddress{"http://" + listener.Addr().String(), token})
	if err == nil {
		atomicfile.Sweep(s.file) // of masters that were killed
		err = atomicfile.Write(s.file, s.text, 0o600)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("publish the status address: %w", err)
	}
	return s, nil
}

// Close stops answering. The file may be a successor's by now, which took over while this process was stopped.
func (s *LiveServer) Close() {
	if text, err := os.ReadFile(s.file); err == nil && bytes.Equal(text, s.text) {
		os.Remove(s.file)
	}
	s.http.Close()
	s.serving.Wait()
}

// ErrNoMaster: nobody answers for the directory.
var ErrNoMaster = errors.New("no master is running")

// Fetch asks the master of a run directory what it knows. ErrNoMaster if there is none.
func Fetch(ctx context.Context, runDir string) (Live, error) {
	var live Live
	text, err := os.ReadFile(filepath.Join(runDir, liveFile))
	if errors.Is(err, fs.ErrNotExist) {
		return live, ErrNoMaster
	}
	if err != nil {
		return live, fmt.Errorf("find the master: %w", err)
	}
	var at liveAddress
	if err := json.Unmarshal(text, &at); err != nil {
		return live, fmt.Errorf("find the master: %s: %w", liveFile, err)
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.URL+"/v1/live", nil)
	if err != nil {
		return live, fmt.Errorf("ask the master: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+at.Token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return live, ErrNoMaster // it died without removing its file
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return live, ErrNoMaster // another process has its port by now
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, liveMaxBytes))
	if err != nil && ctx.Err() == nil {
		return live, ErrNoMaster // it ended amid its answer
	}
	if err != nil {
		return live, fmt.Errorf("ask the master: %w", err)
	}
	if err := json.Unmarshal(body, &live); err != nil {
		return live, fmt.Errorf("ask the master: %w", err)
	}
	return live, nil
}
