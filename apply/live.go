package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/internal/atomicfile"
	"github.com/eltrain/eltrain/job"
)

// liveSocket is where the directory's master answers, in the run directory. Only its owner can connect.
const liveSocket = "master.sock"

// What it answers.
const (
	livePath  = "/v1/live"
	nodesPath = "/v1/nodes"
	usagePath = "/v1/usage"
)

// Bounds of a request to a master, which is on this machine and answers from memory.
const (
	liveTimeout  = 5 * time.Second
	liveMaxBytes = 256 << 20
)

// LiveServer serves Fetch on this machine until Close.
type LiveServer struct {
	http    *http.Server
	path    string
	info    fs.FileInfo // of path
	serving sync.WaitGroup
}

// UsageAsked says of which slots the history is wanted, and for how long.
type UsageAsked struct {
	History time.Duration
	Of      []job.Selector
}

func (a UsageAsked) wants(slot job.Address) bool {
	return a.History > 0 && slices.ContainsFunc(a.Of, func(s job.Selector) bool { return s.Matches(slot) })
}

// The parameters of usagePath.
const (
	historyParameter = "history"
	ofParameter      = "of"
)

func (a UsageAsked) query() string {
	q := url.Values{historyParameter: {a.History.String()}}
	for _, of := range a.Of {
		q.Add(ofParameter, of.String())
	}
	return "?" + q.Encode()
}

// askedIn is what a request asks for. What cannot be parsed is not.
func askedIn(r *http.Request) (a UsageAsked) {
	a.History, _ = time.ParseDuration(r.FormValue(historyParameter))
	for _, text := range r.Form[ofParameter] {
		if of, err := job.ParseSelector(text); err == nil {
			a.Of = append(a.Of, of)
		}
	}
	return a
}

// ServeLive serves what the master knows to other processes of the same user, on a socket in runDir.
func ServeLive(live func() Live, nodes func() Nodes, usage func(UsageAsked) map[string]elastic.Usage, runDir string) (*LiveServer, error) {
	mux := http.NewServeMux()
	serve := func(path string, content func(*http.Request) any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(content(r)) // an error is the client's broken connection
		})
	}
	serve(livePath, func(*http.Request) any { return live() })
	serve(nodesPath, func(*http.Request) any { return nodes() })
	serve(usagePath, func(r *http.Request) any { return usage(askedIn(r)) })
	s := &LiveServer{
		http: &http.Server{Handler: mux, ReadHeaderTimeout: liveTimeout, ReadTimeout: liveTimeout, WriteTimeout: time.Minute, MaxHeaderBytes: 8 << 10},
		path: filepath.Join(runDir, liveSocket),
	}
	atomicfile.Sweep(s.path) // sockets of masters that were killed before they were in place
	listener, err := s.listen(runDir)
	if err != nil {
		return nil, fmt.Errorf("listen for status: %w", err)
	}
	s.serving.Go(func() { s.http.Serve(listener) })
	return s, nil
}

// listen replaces a former master's socket. The new one is in place once only its owner can connect.
func (s *LiveServer) listen(runDir string) (listener *net.UnixListener, err error) {
	err = withShort(runDir, func(dir string) error {
		draft := fmt.Sprintf("%s/.%s.%d.tmp", dir, liveSocket, rand.Uint64())
		if listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: draft, Net: "unix"}); err != nil {
			return err
		}
		listener.SetUnlinkOnClose(false)
		err := os.Chmod(draft, 0o600)
		if err == nil {
			s.info, err = os.Lstat(draft)
		}
		if err == nil {
			err = os.Rename(draft, filepath.Join(dir, liveSocket))
		}
		if err != nil {
			listener.Close()
			os.Remove(draft)
		}
		return err
	})
	return listener, err
}

// withShort calls use with a path of a directory that is short, where the system has one: that of a socket has at most 107 bytes.
func withShort(dir string, use func(dir string) error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if short := fmt.Sprintf("/proc/self/fd/%d", d.Fd()); sameFile(d, short) {
		dir = short
	}
	return use(dir)
}

func sameFile(open *os.File, path string) bool {
	one, err1 := open.Stat()
	other, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(one, other)
}

// Close stops serving. It leaves the socket of a successor, which took over while this process was suspended.
func (s *LiveServer) Close() {
	if info, err := os.Lstat(s.path); err == nil && os.SameFile(info, s.info) {
		os.Remove(s.path)
	}
	s.http.Close()
	s.serving.Wait()
}

// ErrNoMaster means that no master answers for the directory.
var ErrNoMaster = errors.New("no master is running")

// Fetch asks the master of a run directory what it knows. It returns ErrNoMaster if there is none.
func Fetch(ctx context.Context, runDir string) (live Live, err error) {
	err = fetch(ctx, runDir, livePath, &live)
	return live, err
}

// FetchNodes asks the master of a run directory what it knows of nodes. It returns ErrNoMaster if there is none.
func FetchNodes(ctx context.Context, runDir string) (nodes Nodes, err error) {
	err = fetch(ctx, runDir, nodesPath, &nodes)
	return nodes, err
}

// FetchUsage asks the master of a run directory what training processes do and use. It returns ErrNoMaster if there is none.
func FetchUsage(ctx context.Context, runDir string, asked UsageAsked) (usage map[string]elastic.Usage, err error) {
	err = fetch(ctx, runDir, usagePath+asked.query(), &usage)
	return usage, err
}

// fetch decodes what the master of a run directory answers.
func fetch(ctx context.Context, runDir, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://master"+path, nil)
	if err != nil {
		return fmt.Errorf("ask the master: %w", err)
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
		err = withShort(runDir, func(dir string) error {
			conn, err = new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, liveSocket))
			return err
		})
		return conn, err
	}}
	resp, err := transport.RoundTrip(req)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("find the master: %w", err)
	case err != nil:
		return ErrNoMaster // it never was, or died without removing its socket
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, liveMaxBytes))
	if err != nil && ctx.Err() == nil {
		return ErrNoMaster // it exited in the middle of its answer
	}
	if err != nil {
		return fmt.Errorf("ask the master: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("ask the master: %s", resp.Status) // of an earlier version
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("ask the master: %w", err)
	}
	return nil
}
