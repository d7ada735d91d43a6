package master

import (
	"context"
	"errors"
	"sync"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/notify"
	"github.com/eltrain/eltrain/sources"
)

// hooks are those of the notify blocks in force. They may have sensitive values, so the loop knows none of them.
type hooks struct {
	mu sync.Mutex
	of *lang.Config
}

func (h *hooks) set(cfg *lang.Config) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of = cfg
}

func (h *hooks) get(name string) (job.Hook, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.of.HookOf(name)
}

// sample asks a source of a scaling policy. The error has no sensitive value in it.
func (m *Master) sample(ctx context.Context, s *job.MetricSource) (float64, error) {
	value, err := sources.Ask(ctx, s)
	if err != nil {
		return 0, errors.New(m.o.Redactor.Hide(err.Error()))
	}
	return value, nil
}

// notify delivers a message to the hook of its notify block. The error has no sensitive value in it.
func (m *Master) notify(ctx context.Context, message job.Message, sentence string) error {
	hook, declared := m.hooks.get(message.Notify)
	if !declared {
		return errors.New("the notify block was removed")
	}
	if err := notify.Deliver(ctx, hook, notify.BodyOf(message, hook.Text, sentence)); err != nil {
		return errors.New(m.o.Redactor.Hide(err.Error()))
	}
	return nil
}
