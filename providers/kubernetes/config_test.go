package kubernetes

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/job"
)

func TestConfigMistakesAreTold(t *testing.T) {
	tests := []struct {
		config Config
		says   string
	}{
		{Config{Namespace: "Train"}, `invalid namespace "Train"`},
		{Config{Image: "a b"}, "image"},
		{Config{AgentImage: " a"}, "agent_image"},
		{Config{AgentPath: "bin/eltrain"}, "is not absolute"},
		{Config{AgentPath: "/usr/local/bin/eltrain"}, "use eltrain-agent beside it"},
		{Config{AgentPath: "/eltrain-agent", AgentImage: "i"}, "cannot be used together"},
		{Config{PriorityClass: "High!"}, "priority_class"},
		{Config{QPS: -1}, "invalid qps -1"},
		{Config{QPS: math.Inf(1)}, "qps"},
		{Config{Parallelism: -1}, "invalid parallelism -1"},
		{Config{Parallelism: 100_000}, "invalid parallelism 100000"},
		{Config{Pod: map[string]any{"spec": map[string]any{"restartPolicy": "Always", "hostname": "h"}}}, `pod of the provider: it cannot change spec.restartPolicy`},
		{Config{Pod: map[string]any{"spec": map[string]any{"nodeselector": 1}}}, `unknown field "spec.nodeselector"`},
	}
	for _, test := range tests {
		if text := errors.Join(test.config.Validate()...); text == nil || !strings.Contains(text.Error(), test.says) {
			t.Errorf("%+v: %v, want %q", test.config, text, test.says)
		}
	}
	both := Config{Pod: map[string]any{"spec": map[string]any{"restartPolicy": "Always", "hostname": "h"}}}
	if n := len(both.Validate()); n != 2 {
		t.Errorf("%d of 2 mistakes are told", n)
	}
	fine := Config{Namespace: "train", Image: "a/b:c", QPS: 50, Parallelism: 128, PriorityClass: "high", Pod: map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"team": "llm"}}, "spec": map[string]any{"nodeSelector": map[string]any{"a": "b"}, "priority": int64(3)},
	}}
	for _, c := range []Config{{}, fine} {
		if errs := c.Validate(); len(errs) > 0 {
			t.Errorf("%+v: %v", c, errs)
		}
	}
}

func TestARolesOverlayIsCheckedBeforeItRuns(t *testing.T) {
	role := &job.Role{Name: "worker", Program: job.Program{Command: []string{"a"}}}
	if err := (Config{}).Check(role); err != nil {
		t.Error(err)
	}
	role.Pod = map[string]any{"spec": map[string]any{"nodeName": "n1"}}
	if err := (Config{}).Check(role); err == nil || !strings.Contains(err.Error(), `pod of role "worker": it cannot change spec.nodeName`) {
		t.Error(err)
	}
	role = &job.Role{Name: "worker_"}
	if err := (Config{}).Check(role); err == nil || !strings.Contains(err.Error(), "end it with a letter or digit") {
		t.Error(err)
	}
}
