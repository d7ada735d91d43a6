package kubernetes

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/testbed"
)

// mayExec is what an operator needs to run commands in pods: the API server asks for both verbs, depending on the client.
const mayExec = `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: eltrain-exec
rules:
- apiGroups: [""]
  resources: [pods/exec]
  verbs: [get, create]
`

// operator is a user who may also run commands in pods.
func operator(s *podsite.Demo) testbed.User {
	rights := filepath.Join(s.T.TempDir(), "exec.yaml")
	s.OK(os.WriteFile(rights, []byte(mayExec), 0o600))
	user := s.User()
	user.Name, user.Roles = "operator", append(slices.Clone(user.Roles), rights)
	return user
}

// Commands run in the environment of the training processes, which the container does not have, with the rights of whoever asks.
func TestExecAndStacksOfPods(t *testing.T) {
	s := newDemo(t, 4)
	s.SetSteps(100 * site.Steps)
	s.Watch()
	j := s.AwaitWorld(4, 1)
	slot := j.Ranked(2)

	out, code := s.Run("exec", slot.Address, "--", "true")
	if code != 1 {
		t.Errorf("without the right: exit code %d", code)
	}
	site.Has(t, out, "Cannot run the command", slot.Address, "pods/exec")

	user := operator(s)
	s.As(user)
	out, code = s.Run("exec", slot.Address, "--", "sh", "-c", `echo "$ELTRAIN_JOB $ELTRAIN_SLOT rank $RANK of $WORLD_SIZE${TORCHELASTIC_ERROR_FILE}"; exit 7`)
	short := strings.TrimPrefix(slot.Address, "job.mnist.")
	if code != 7 || out != "mnist "+short+" rank 2 of 4\n" {
		t.Errorf("exit code %d, output %q", code, out)
	}
	if out, code := s.Run("exec", slot.Address, "--", "no-such-command"); code != 127 || !strings.Contains(out, "no-such-command") {
		t.Errorf("no such command: exit code %d, %s", code, out)
	}
	if out := s.Must("exec", "-t", slot.Address, "--", "sh", "-c", "test -t 0 && test -t 1 && echo a terminal"); out != "a terminal\r\n" {
		t.Errorf("on a terminal: %q", out)
	}
	large := strings.Repeat("0123456789\n", 200_000)
	cat := s.Command(t.Context(), "exec", "-i", slot.Address, "--", "cat")
	cat.Stdin = strings.NewReader(large)
	same, err := cat.Output()
	if err != nil || string(same) != large {
		t.Errorf("%d bytes of %d came back, %v", len(same), len(large), err)
	}

	var stacks struct {
		Slots []struct {
			Processes []struct {
				Rank    int
				Child   bool
				Threads []struct{ State string }
			}
		}
		Unreachable []any
	}
	s.OK(json.Unmarshal([]byte(s.Must("stacks", "-json", "job.mnist")), &stacks))
	var ranks []int
	for _, slot := range stacks.Slots {
		for _, p := range slot.Processes {
			if !p.Child && len(p.Threads) > 0 {
				ranks = append(ranks, p.Rank)
			}
		}
	}
	if slices.Sort(ranks); !slices.Equal(ranks, []int{0, 1, 2, 3}) || len(stacks.Unreachable) > 0 {
		t.Errorf("stacks of the ranks %v, and not of %v", ranks, stacks.Unreachable)
	}

	s.As(s.User())
	s.Must("suspend", "job.mnist")
	s.As(user)
	out, code = s.Run("exec", slot.Address, "--", "true")
	if code != 1 {
		t.Errorf("in a suspended job: exit code %d", code)
	}
	site.Has(t, out, "Cannot run the command", slot.Address, "no agent runs in the slot")
	s.As(s.User())
}
