package site

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// torchPython is Debian's own Python, to which python3-torch belongs.
const torchPython = "/usr/bin/python3"

// NeedTorch skips a test if PyTorch is not installed, unless WITH_TORCH is set.
func NeedTorch(t *testing.T) {
	t.Helper()
	if os.Getenv("WITH_TORCH") != "" {
		return
	}
	if out, err := exec.Command(torchPython, "-c", "import torch").CombinedOutput(); err != nil {
		t.Skipf("no PyTorch for %s (apt-get install python3-torch): %v\n%s", torchPython, err, out)
	}
}

// TorchEndsRight waits for the success of a job of PyTorch and compares its losses with those of an undisturbed run.
func (s *Site) TorchEndsRight(steps int) {
	s.T.Helper()
	s.Succeeds()
	// DDP sums in another order in another world: see the script.
	const close = 1e-7
	want, got := Alone(s.T, torchPython, filepath.Join(s.Dir, "train.py"), steps, close), s.Losses(close)
	for step, loss := range want {
		if now, printed := got[step]; !printed || math.Abs(now-loss) > close {
			s.T.Errorf("the loss at step %d is %v (printed: %v), undisturbed %v", step, now, printed, loss)
		}
	}
	if _, ended := want[steps]; !ended {
		s.T.Errorf("the training alone did not end at step %d", steps)
	}
}
