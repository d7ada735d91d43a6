package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/eltrain/eltrain/internal/atomicfile"
	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

const (
	requestSuffix  = ".request.json"
	acceptedSuffix = ".accepted.json"
	finalSuffix    = ".final.json"
	// maxRequest bounds a file of a request or reply, in bytes.
	maxRequest = 1 << 20
)

// Requests are files in a directory that only its owner can write to: ID.request.json each, and beside it a reply as
// ID.accepted.json or ID.final.json. Each file is written whole; only the reply of one that is accepted may be replaced.
type Requests struct {
	root, dir string
	// They write files whole: atomicfile's, except in tests of disks that take nothing.
	create, replace func(path string, content []byte, mode fs.FileMode) error

	mu     sync.Mutex
	parsed map[string]job.Request // by ID: a request does not change
	pruned time.Time
}

// NewRequests returns the requests in a directory below root, which is made, private, when the first is asked.
func NewRequests(root, dir string) *Requests {
	return &Requests{root: root, dir: dir, create: atomicfile.Create, replace: atomicfile.Write, parsed: map[string]job.Request{}}
}

// Requests are operators' requests to whoever leads the jobs of this state, from whichever directory.
func (s *Store) Requests() *Requests { return NewRequests(s.lockDir(), s.lockFile(".requests")) }

// Ask implements state.Requests. Who asks is the owner of the file.
func (q *Requests) Ask(_ context.Context, r job.Request) (job.Request, error) {
	if err := regular.MakePrivate(q.root, q.dir); err != nil {
		return r, fmt.Errorf("store a request: %w", err)
	}
	for {
		names, err := q.names()
		if err != nil {
			return r, fmt.Errorf("store a request: %w", err)
		}
		r.ID = state.NextRequestID(r.At, newest(names))
		text, err := json.Marshal(r)
		if err != nil {
			return r, err
		}
		err = q.create(q.path(r.ID, requestSuffix), text, 0o600)
		switch {
		case errors.Is(err, fs.ErrExist):
			continue // another asked at the same time
		case err != nil && !errors.As(err, new(*atomicfile.UnsyncedError)): // one in place is asked, and may be taken up already
			return r, fmt.Errorf("store a request: %w", err)
		}
		r.By, err = q.owner(r.ID)
		return r, err
	}
}

// newest returns the greatest ID among the names of files; "" if there is none.
func newest(names []string) string {
	for _, name := range slices.Backward(names) {
		if id, is := strings.CutSuffix(name, requestSuffix); is {
			return id
		}
	}
	return ""
}

func (q *Requests) path(id, suffix string) string { return filepath.Join(q.dir, id+suffix) }

// names returns the directory's files in order; none if there is no directory yet.
func (q *Requests) names() ([]string, error) {
	if err := regular.CheckPrivate(q.dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(q.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

// owner names the owner of a request's file, and this machine.
func (q *Requests) owner(id string) (string, error) {
	info, err := os.Lstat(q.path(id, requestSuffix))
	if err != nil {
		return "", err
	}
	name := strconv.Itoa(regular.Owner(info))
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name, nil
}

// read returns a request.
func (q *Requests) read(id string) (job.Request, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r, known := q.parsed[id]; known {
		return r, nil
	}
	var r job.Request
	text, err := regular.Read(q.path(id, requestSuffix), maxRequest)
	if err == nil {
		if err = json.Unmarshal(text, &r); err != nil {
			err = fmt.Errorf("%w: %w", errMalformed, err)
		}
	}
	if err != nil {
		return r, fmt.Errorf("request %s: %w", id, err)
	}
	if r.By, err = q.owner(id); err != nil {
		return r, err
	}
	r.ID = id
	q.parsed[id] = r
	return r, nil
}

// All implements state.Requests. A request that cannot be read is left out: whoever leads refuses it.
func (q *Requests) All(ctx context.Context) ([]state.Asked, error) {
	names, err := q.names()
	if err != nil {
		return nil, fmt.Errorf("read the requests: %w", err)
	}
	var all []state.Asked
	for _, name := range names {
		id, is := strings.CutSuffix(name, requestSuffix)
		if !is {
			continue
		}
		asked, err := q.Get(ctx, id)
		if err != nil {
			continue
		}
		all = append(all, asked)
	}
	return all, nil
}

// Get implements state.Requests.
func (q *Requests) Get(_ context.Context, id string) (state.Asked, error) {
	r, err := q.read(id)
	if errors.Is(err, fs.ErrNotExist) {
		return state.Asked{}, fmt.Errorf("request %s: %w", id, state.ErrNoRequest)
	}
	if err != nil {
		return state.Asked{}, err
	}
	for _, suffix := range []string{finalSuffix, acceptedSuffix} {
		var reply job.Reply
		text, err := regular.Read(q.path(id, suffix), maxRequest)
		if err == nil {
			err = json.Unmarshal(text, &reply)
		}
		if err == nil {
			return state.Asked{Request: r, Reply: reply}, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return state.Asked{}, fmt.Errorf("read the reply to request %s: %w", id, err)
		}
	}
	return state.Asked{Request: r}, nil
}

// Pending implements state.Requests.
func (q *Requests) Pending(context.Context) ([]job.Request, error) {
	names, err := q.names()
	if err != nil {
		return nil, fmt.Errorf("read the requests: %w", err)
	}
	final, requests := map[string]bool{}, []string(nil)
	for _, name := range names {
		if id, is := strings.CutSuffix(name, finalSuffix); is {
			final[id] = true
		}
		if id, is := strings.CutSuffix(name, requestSuffix); is {
			requests = append(requests, id)
		}
	}
	pending := []job.Request{}
	for _, id := range requests {
		if final[id] {
			continue
		}
		r, err := q.read(id)
		switch {
		case damaged(err):
			r = job.Request{ID: id} // asks for nothing that there is: it is refused
		case err != nil:
			return nil, err
		}
		pending = append(pending, r)
	}
	return pending, q.prune(requests, final)
}

// errMalformed is that a file has no request.
var errMalformed = errors.New("not a request")

// damaged reports whether a file can never be read as a request.
func damaged(err error) bool {
	return errors.As(err, new(*regular.Error)) || errors.Is(err, errMalformed)
}

// pruneEvery is how often old requests are removed.
const pruneEvery = time.Minute

// prune removes the requests that were answered long ago, or are more than are kept.
func (q *Requests) prune(requests []string, final map[string]bool) error {
	now := time.Now()
	if now.Sub(q.pruned) < pruneEvery {
		return nil
	}
	q.pruned = now
	finished := slices.DeleteFunc(slices.Clone(requests), func(id string) bool { return !final[id] })
	for _, id := range state.Outdated(finished, q.repliedAt, now) {
		// The request goes first: without it, it cannot be taken for one without a reply.
		for _, suffix := range []string{requestSuffix, acceptedSuffix, finalSuffix} {
			if err := os.Remove(q.path(id, suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove an old request: %w", err)
			}
		}
		q.mu.Lock()
		delete(q.parsed, id)
		q.mu.Unlock()
	}
	return nil
}

func (q *Requests) repliedAt(id string) time.Time {
	info, err := os.Lstat(q.path(id, finalSuffix))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// Reply implements state.Requests.
func (q *Requests) Reply(_ context.Context, r job.Reply) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if r.State.Final() {
		err = q.create(q.path(r.ID, finalSuffix), text, 0o600)
	} else {
		err = q.replace(q.path(r.ID, acceptedSuffix), text, 0o600) // counts only as long as there is no final one
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("reply to request %s: %w", r.ID, err)
	}
	return nil
}
