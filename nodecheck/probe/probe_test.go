package probe

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
)

var runner = Runner{Start: (*exec.Cmd).Start, Attributes: &syscall.SysProcAttr{Setpgid: true}, Env: os.Environ()}

func TestAGoodNodePasses(t *testing.T) {
	var out bytes.Buffer
	if err := Patterns(&out); err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(t.TempDir(), "found")
	if err := os.WriteFile(text, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir()) // without a driver
	if got := runner.Own(t.Context(), []string{cat, text}); got.Failed != "" || got.Unknown || got.Seconds <= 0 {
		t.Errorf("%+v", got)
	}
}

func TestOwnChecksThatEndOtherwise(t *testing.T) {
	for script, want := range map[string]job.Checked{
		`echo '{"failed": "memory", "message": "wrong", "seconds": 1}'`: {Failed: job.CheckMemory, Message: "wrong", Seconds: 1},
		`kill -9 $$`:                         {Unknown: true, Message: "it exited with 137"},
		`echo 'fatal error: no' >&2; exit 2`: {Unknown: true, Message: "fatal error: no"},
		`echo '{"seconds": 1}'; exit 1`:      {Unknown: true, Message: `{"seconds": 1}`},
		`echo nothing`:                       {Unknown: true, Message: "nothing"},
	} {
		got := runner.Own(t.Context(), []string{"sh", "-c", script})
		if want.Unknown {
			got.Seconds = 0
		}
		if got.Failed != want.Failed || got.Message != want.Message || got.Unknown != want.Unknown || got.Seconds != want.Seconds {
			t.Errorf("%s: %+v", script, got)
		}
	}
	if got := runner.Own(t.Context(), []string{"/no/such/program"}); !got.Unknown || !strings.Contains(got.Message, "no such file") {
		t.Errorf("%+v", got)
	}
}

func TestWrongProductsAreFound(t *testing.T) {
	a, b, c := make([]float64, side*side), make([]float64, side*side), make([]float64, side*side)
	small := generator(1)
	for i := range a {
		a[i], b[i] = small(), small()
	}
	if err := multiply(t.Context(), c, a, b); err != nil || !isProduct(c, a, b) {
		t.Fatalf("a product is not recognized: %v", err)
	}
	c[side*side/2+3]++
	if isProduct(c, a, b) {
		t.Error("a wrong product is not found")
	}
}

func TestFlippedBitsAreFound(t *testing.T) {
	words := make([]uint64, 3*pageWords)
	for n, pattern := range patterns {
		if err := write(t.Context(), words, pattern); err != nil {
			t.Fatal(err)
		}
		if err := verify(t.Context(), words, pattern); err != nil {
			t.Errorf("pattern %d: %v", n, err)
		}
		words[pageWords+n] ^= 1 << n
		var f *fault
		if err := verify(t.Context(), words, pattern); !errors.As(err, &f) || f.part != job.CheckMemory {
			t.Errorf("pattern %d: a flipped bit gives %v", n, err)
		}
	}
}

func TestWorkEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := runner.Own(ctx, []string{"sleep", "300"}); got.Failed != job.CheckTime {
		t.Errorf("%+v", got)
	}
}

func TestPrograms(t *testing.T) {
	long := strings.Repeat("x", 3000)
	tests := []struct {
		name, script string
		failed       job.CheckPart
		message      string
	}{
		{"good", "echo fine", "", ""},
		{"faulty", "echo 'disk sda fails'; echo more; exit 1", job.CheckCommand, "disk sda fails"},
		{"says it on the other stream", "echo; echo 'no bus' >&2; exit 1", job.CheckCommand, "no bus"},
		{"says nothing", "exit 1", job.CheckCommand, "it exited with 1"},
		{"cannot tell", "echo 'no sensor'; exit 2", "", "no sensor"},
		{"has another code", "exit 3", "", "it exited with 3"},
		{"misses a tool", "no-such-tool 2>/dev/null", "", "it exited with 127"},
		{"is killed", "kill -9 $$", "", "it exited with 137"},
		{"long line", "echo " + long + "; exit 1", job.CheckCommand, long[:job.MaxCheckMessage]},
		{"controls the terminal", `printf '\033[31mred\001\377\n'; exit 1`, job.CheckCommand, "[31mred \uFFFD"},
		{"leaves its output open", "sleep 300 & echo gone; exit 1", job.CheckCommand, "gone"},
		{"a gigabyte", "head -c 1073741824 /dev/zero; echo; echo far too much; exit 1", job.CheckCommand, "it exited with 1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), hang.Bound)
			defer cancel()
			got, err := runner.Program(ctx, []string{"sh", "-c", test.script})
			if err != nil || got.Failed != test.failed || got.Message != test.message || got.Unknown != (test.failed == "" && test.message != "") {
				t.Errorf("%q %.100q, unknown %t, %v", got.Failed, got.Message, got.Unknown, err)
			}
		})
	}
}

// A program that hangs is killed with all that it has started, and so is one that prints without end.
func TestProgramsThatHang(t *testing.T) {
	for name, script := range map[string]string{
		"sleeps": "echo begins; sleep 300 & echo $! > child; wait", "ignores": "trap '' TERM INT; echo begins; sleep 300 & echo $! > child; while :; do wait; done",
		"prints": "echo begins; sleep 300 & echo $! > child; exec yes",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runner
			r.Dir = t.TempDir()
			ctx, cancel := context.WithTimeout(t.Context(), hang.Bound)
			defer cancel()
			go func() { // once it runs
				for ctx.Err() == nil {
					if text, _ := os.ReadFile(filepath.Join(r.Dir, "child")); bytes.HasSuffix(text, []byte("\n")) {
						cancel()
					}
					time.Sleep(10 * time.Millisecond)
				}
			}()
			got, err := r.Program(ctx, []string{"sh", "-c", script})
			if err != nil || got.Failed != job.CheckTime || got.Message != "begins" {
				t.Errorf("%q %q, %v", got.Failed, got.Message, err)
			}
			text, err := os.ReadFile(filepath.Join(r.Dir, "child"))
			if err != nil {
				t.Fatal(err)
			}
			child, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(hang.Bound); lives(child); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("what it has started still runs")
				}
			}
		})
	}
}

// lives reports whether a process runs: a zombie does not.
func lives(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestProgramsThatCannotBeStarted(t *testing.T) {
	if got, err := runner.Program(t.Context(), []string{"no-such-program"}); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestDriversOfGPUs(t *testing.T) {
	for _, test := range []struct {
		name, script string
		failed       job.CheckPart
		message      string
	}{
		{"good", `printf '0, 0\n1, 0\n'`, "", ""},
		{"without such memory", `printf '0, [N/A]\n'`, "", ""},
		{"errors", `printf '0, 0\n1, 12\n'`, job.CheckGPU, "GPU 1 has 12 uncorrected memory errors"},
		{"lost", `echo 'Unable to determine the device handle for GPU 0000:1A:00.0: GPU is lost.'; exit 15`, job.CheckGPU, "Unable to determine the device handle for GPU 0000:1A:00.0: GPU is lost."},
		{"hangs", `sleep 300`, job.CheckGPU, "the driver does not answer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, gpuQuery[0]), []byte("#!/bin/sh\n"+test.script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			ctx, cancel := context.WithTimeout(t.Context(), hang.Bound)
			if test.name == "hangs" {
				ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
			}
			defer cancel()
			got := checked(runner.gpus(ctx), 0)
			if got.Failed != test.failed || got.Message != test.message {
				t.Errorf("%+v", got)
			}
		})
	}
}
