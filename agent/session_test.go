package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
)

// bubbleService holds requests as the real service does, until it hangs. It works in a synctest bubble, as sockets do not.
type bubbleService struct {
	lease time.Duration
	hung  context.Context // done: nothing is answered any more

	mu       sync.Mutex
	newer    chan struct{} // closed by a newer request
	answered time.Time     // the last answer
}

func (b *bubbleService) Register(ctx context.Context, _ string, _ elastic.RegisterRequest) (elastic.RegisterReply, error) {
	if b.hung.Err() != nil {
		<-ctx.Done()
		return elastic.RegisterReply{}, ctx.Err()
	}
	return elastic.RegisterReply{BeatSeconds: b.lease.Seconds() / 3, LeaseSeconds: b.lease.Seconds()}, nil
}

func (b *bubbleService) Sync(ctx context.Context, _ string, _ elastic.SyncRequest) (elastic.SyncReply, error) {
	b.mu.Lock()
	if b.newer != nil && b.hung.Err() == nil {
		close(b.newer)
	}
	newer := make(chan struct{})
	b.newer = newer
	b.mu.Unlock()
	select {
	case <-newer:
	case <-time.After(b.lease / 3):
	case <-ctx.Done():
		return elastic.SyncReply{}, ctx.Err()
	}
	if b.hung.Err() != nil {
		<-ctx.Done()
		return elastic.SyncReply{}, ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.newer == newer {
		b.newer = nil
	}
	b.answered = time.Now()
	return elastic.SyncReply{Version: 1, Order: elastic.Order{Do: elastic.Wait}}, nil
}

func (b *bubbleService) Close() {}

// A master hangs while training reports progress, as often as it may. Its agents notice, and the registration with the next master
// is over within a lease: it loses none of them. Before that, a conversation goes on for as long as its service answers.
func TestAHungServiceIsNoticedWhateverIsSent(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 15 * time.Second, 10 * time.Minute} {
		t.Run(lease.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 20*lease)
				defer cancel()
				hung, hang := context.WithTimeout(ctx, 10*lease+lease/7)
				defer hang()
				service := &bubbleService{lease: lease, hung: hung}
				events := make(chan event)
				s := newSession(&job.AgentConfig{Job: "mnist", Slot: "worker[0]"}, func() outgoing { return outgoing{} }, events,
					make(chan time.Duration, 1), slog.New(slog.DiscardHandler))
				s.client = service
				go func() {
					news := time.NewTicker(lease / 8)
					defer news.Stop()
					for {
						select {
						case <-events:
						case <-news.C:
							s.reportNow()
						case <-ctx.Done():
							return
						}
					}
				}()
				if err := s.register(ctx); err != nil {
					t.Fatal(err)
				}
				err := s.converse(ctx)
				if hung.Err() == nil || !errors.Is(err, errUnanswered) {
					t.Fatalf("the conversation ends with %v, %v after the last answer", err, time.Since(service.answered))
				}
				s.register(ctx) // with the hung master, before the next one is known
				if silent := time.Since(service.answered); silent >= lease {
					t.Errorf("an agent finds the next master %v after the last answer, with a lease of %v", silent, lease)
				}
			})
		})
	}
}
