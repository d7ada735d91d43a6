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
	"strings"
	"sync"
	"time"

	"github.com/eltrain/eltrain/internal/atomicfile"
	"github.com/eltrain/eltrain/internal/connlimit"
	"github.com/eltrain/eltrain/internal/regular"
)

// liveFile holds the address and token of the directory's master. It is in the run directory, readable by its owner alone.
const liveFile = "master.json"

// Bounds of a request to a master, which is on this machine and answers from memory.
const (
	liveTimeout  = 5 * time.Second
	liveMaxBytes = 256 << 20
	// liveConns is how many requests are open at once; others wait. It is part of the descriptors that connlimit keeps from agents.
	liveConns   = 32
	liveMaxFile = 64 << 10
)

type liveAddress struct {
	URL   string `json:"url"`
	Token string `json:"token"`
}

// LiveServer serves Fetch on this machine until Close.
type LiveServer struct {
	http    *http.Server
	file    string
	text    []byte // of file
	serving sync.WaitGroup
}

// ServeLive serves what the master knows to other processes of the same user. It listens on loopback only; the
// address and a token are in a file in runDir that only its owner can read.
func ServeLive(live func() Live, runDir string) (*LiveServer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for status: %w", err)
	}
	listener = connlimit.Limit(listener, liveConns, func() {})
	token := rand.Text()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/live", func(w http.ResponseWriter, req *http.Request) {
		given := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
		if subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1 {
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(live()) // an error is the client's broken connection
	})
	s := &LiveServer{
		http: &http.Server{Handler: mux, ReadHeaderTimeout: liveTimeout, ReadTimeout: liveTimeout, WriteTimeout: time.Minute, MaxHeaderBytes: 8 << 10},
		file: filepath.Join(runDir, liveFile),
	}
	s.serving.Go(func() { s.http.Serve(listener) })
	s.text, err = json.Marshal(liveAddress{"http://" + listener.Addr().String(), token})
	if err == nil {
		atomicfile.Sweep(s.file) // temporary files of killed masters
		err = atomicfile.Write(s.file, s.text, 0o600)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("publish the status address: %w", err)
	}
	return s, nil
}

// Close stops serving. It leaves the file alone if a successor, which took over while this process was suspended, has
// replaced it.
func (s *LiveServer) Close() {
	if text, err := regular.Read(s.file, liveMaxFile); err == nil && bytes.Equal(text, s.text) {
		os.Remove(s.file)
	}
	s.http.Close()
	s.serving.Wait()
}

// ErrNoMaster means that no master answers for the directory.
var ErrNoMaster = errors.New("no master is running")

// Fetch asks the master of a run directory what it knows. It returns ErrNoMaster if there is none.
func Fetch(ctx context.Context, runDir string) (Live, error) {
	var live Live
	text, err := regular.Read(filepath.Join(runDir, liveFile), liveMaxFile)
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
		return live, ErrNoMaster // another process has taken its port
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, liveMaxBytes))
	if err != nil && ctx.Err() == nil {
		return live, ErrNoMaster // it exited in the middle of its answer
	}
	if err != nil {
		return live, fmt.Errorf("ask the master: %w", err)
	}
	if err := json.Unmarshal(body, &live); err != nil {
		return live, fmt.Errorf("ask the master: %w", err)
	}
	return live, nil
}
