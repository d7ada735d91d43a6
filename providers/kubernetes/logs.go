package kubernetes

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// logPause is how often a followed slot without new output is checked.
const logPause = time.Second

// cutAfter is when a stream that ended counts as cut, unless its container was reported to have ended.
const cutAfter = 10 * time.Second

// Logs reads the logs of the slot's pods from their kubelets, oldest incarnation first. Deleted pods have none.
// Following continues from one incarnation to the next. Memory does not grow with the tail.
func (p *Provider) Logs(ctx context.Context, uid string, slot job.Address, o providers.LogOptions) (io.ReadCloser, error) {
	if err := errors.Join(checkUID(uid), checkNames(slot)); err != nil {
		return nil, fmt.Errorf("logs of %s: %w", slot, err)
	}
	for _, w := range p.watches {
		if err := w.ready(ctx); err != nil {
			return nil, fmt.Errorf("logs of %s: %w", slot, err)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	l := &logs{p: p, uid: uid, slot: slot, since: o.Since, before: o.Before, out: w, cancel: cancel, ended: make(chan struct{}), PipeReader: r}
	first, lines, err := l.begin(ctx, o.Tail)
	switch {
	case err != nil || first != nil:
	case o.Before > 0:
		err = fs.ErrNotExist
	case o.Follow == nil:
		err = errors.New("it has no pod, and logs are deleted with their pod")
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("logs of %s: %w", slot, err)
	}
	p.owned.Go(func() {
		defer close(l.ended)
		stop := context.AfterFunc(p.ctx, cancel)
		defer stop()
		w.CloseWithError(l.copy(ctx, first, lines, o.Follow))
	})
	return l, nil
}

// logs is one reader. Its goroutine writes into the pipe.
type logs struct {
	*io.PipeReader
	p      *Provider
	uid    string
	slot   job.Address
	since  time.Time
	before int // only the newest incarnation before it; 0 for all
	out    *io.PipeWriter
	cancel context.CancelFunc
	ended  chan struct{}
}

// Close also ends a concurrent Read.
func (l *logs) Close() error {
	l.cancel()
	err := l.PipeReader.Close()
	<-l.ended
	return err
}

// pods are the slot's pods to read, oldest incarnation first.
func (l *logs) pods() []*pod {
	all := slices.DeleteFunc(l.p.index.ofJob(l.uid), func(p *pod) bool {
		return p.key.role != l.slot.Role || p.key.index != l.slot.Index || l.before > 0 && p.key.number >= l.before
	})
	slices.SortFunc(all, func(a, b *pod) int { return cmp.Compare(a.key.number, b.key.number) })
	if l.before > 0 && len(all) > 1 {
		all = all[len(all)-1:]
	}
	return all
}

// begin finds the pod in which the last tail lines begin, and how many of its lines are among them; -1 is all. If there
// are older pods it counts lines instead of keeping them.
func (l *logs) begin(ctx context.Context, tail int) (*pod, int, error) {
	all := l.pods()
	if len(all) == 0 {
		return nil, tail, nil
	}
	if tail < 0 {
		return all[0], -1, nil
	}
	for i := len(all) - 1; i > 0; i-- {
		n, err := l.count(ctx, all[i], tail)
		if err != nil {
			return nil, 0, err
		}
		if n >= tail {
			return all[i], tail, nil
		}
		tail -= n
	}
	return all[0], tail, nil
}

// count counts the last lines of a pod, up to most.
func (l *logs) count(ctx context.Context, one *pod, limit int) (int, error) {
	r, err := l.open(ctx, one, limit, false)
	if r == nil || err != nil {
		return 0, err
	}
	defer r.Close()
	n := 0
	for buffered := bufio.NewReader(r); ; {
		part, err := buffered.ReadSlice('\n')
		if len(part) > 0 && (err == nil || err == io.EOF) {
			n++
		}
		if err == io.EOF {
			return n, nil
		}
		if err != nil && err != bufio.ErrBufferFull {
			return 0, fmt.Errorf("read the log of pod %s/%s: %w", l.p.namespace, one.name, err)
		}
	}
}

// copy writes the logs of first and later pods, until all are read. If until is not nil, it follows them until that is closed,
// and then reads what is left: of a container that has not been reported to have ended, for cutAfter at most.
func (l *logs) copy(ctx context.Context, first *pod, lines int, until <-chan struct{}) error {
	if until == nil {
		return l.copyAll(ctx, first, lines)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-until:
			timer := time.AfterFunc(cutAfter, cancel)
			context.AfterFunc(ctx, func() { timer.Stop() })
		case <-ctx.Done():
		}
	}()
	changes, unsubscribe := l.p.index.subscribe()
	defer unsubscribe()
	at := position{lines: lines}
	if first != nil {
		at.number = first.key.number
	}
	for last := false; ; {
		if err := l.follow(ctx, &at); err != nil && ctx.Err() == nil {
			return err
		}
		if last {
			return io.EOF
		}
		select {
		case <-ctx.Done():
			return io.EOF
		case <-until:
			last = true
		case <-changes:
		case <-time.After(logPause):
		}
	}
}

// copyAll writes what is there now.
func (l *logs) copyAll(ctx context.Context, first *pod, lines int) error {
	for _, one := range l.pods() {
		if one.key.number < first.key.number {
			continue
		}
		r, err := l.open(ctx, one, lines, false)
		if err != nil {
			return err
		}
		lines = -1
		if r == nil {
			continue
		}
		_, err = io.Copy(l.out, r)
		r.Close()
		if err != nil {
			return fmt.Errorf("read the log of pod %s/%s: %w", l.p.namespace, one.name, err)
		}
	}
	return io.EOF
}

// position is how far a slot's output was followed.
type position struct {
	number  int       // of the incarnation
	lines   int       // how many of its last lines to start with; -1 is all
	written int64     // bytes of it
	ended   time.Time // when a stream of it first ended
	refusal refused
}

// follow writes the output from at on, and advances at. A stream that ends while its container runs was cut, by a restart
// of the API server or a kubelet: it is reopened, and the bytes already written are skipped.
func (l *logs) follow(ctx context.Context, at *position) error {
	all := l.pods()
	for i, one := range all {
		if one.key.number < at.number {
			continue
		}
		if one.key.number > at.number {
			*at = position{number: one.key.number, lines: -1}
		}
		over, last := one.over(), i == len(all)-1
		err := l.followOne(ctx, one, at)
		at.refusal.record(err)
		if err != nil {
			if ctx.Err() != nil || at.refusal.stands || errors.Is(err, errCut) {
				return err
			}
			if last || isRefusal(err) {
				return nil // retried later
			}
		}
		if !over && last {
			return nil
		}
		*at = position{number: one.key.number + 1, lines: -1}
	}
	return nil
}

// errCut: the position of a tail in the log is unknown, so it cannot be resumed.
var errCut = errors.New("the stream was cut: follow it again")

// followOne writes one pod's output from at on until its stream ends.
func (l *logs) followOne(ctx context.Context, one *pod, at *position) error {
	if at.lines >= 0 && at.written > 0 {
		if one.over() || time.Since(at.ended) < cutAfter {
			return nil // the pod ended, or may have
		}
		return fmt.Errorf("read the log of pod %s/%s: %w", l.p.namespace, one.name, errCut)
	}
	r, err := l.open(ctx, one, at.lines, true)
	if r == nil || err != nil {
		return err
	}
	defer r.Close()
	if _, err := io.CopyN(io.Discard, r, at.written); err == nil {
		var n int64
		n, err = io.Copy(l.out, r)
		at.written += n
		at.ended = time.Now()
		return err
	}
	return nil // shorter than before: the kubelet rotated the log, and what the new file holds was written already
}

// open requests a pod's log from its kubelet through the API server: its last lines, all if negative. It returns nil if
// the container has not started, or the pod has just been deleted.
func (l *logs) open(ctx context.Context, one *pod, lines int, follow bool) (io.ReadCloser, error) {
	options := &corev1.PodLogOptions{Container: mainContainer, Follow: follow}
	if lines >= 0 {
		n := int64(lines)
		options.TailLines = &n
	}
	if !l.since.IsZero() {
		from := metav1.NewTime(l.since)
		options.SinceTime = &from
	}
	r, err := l.p.client.CoreV1().PodLogs(l.p.namespace, one.name, options).Stream(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsBadRequest(err) && one.seen.State != job.Up: // "container is waiting to start"
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the log of pod %s/%s: %w", l.p.namespace, one.name, explain(err))
	}
	return r, nil
}
