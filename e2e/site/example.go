package site

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// Steps of stepMillis each are some twelve seconds of training, enough for a fault and its healing in the middle.
	Steps      = 300
	stepMillis = 40

	// Lenient is a lease for jobs whose healthy slots must not be replaced: longer than the pause between two tries of an
	// agent, even on a busy machine.
	Lenient = 15 * time.Second
)

// Script is the example's training script.
var Script = filepath.Join(Root, "examples", "mnist-local", "train.py")

// Example reads a file of an example.
func (s *Site) Example(dir, name string) string {
	s.T.Helper()
	text, err := os.ReadFile(filepath.Join(Root, "examples", dir, name))
	s.OK(err)
	return string(text)
}

// UseExample writes an example's script, and its job with the given provider.
func (s *Site) UseExample(dir, provider string) {
	s.T.Helper()
	for _, name := range []string{"job.hcl", "train.py"} {
		s.Write(name, s.Example(dir, name))
	}
	s.Edit("job.hcl", `provider = "local"`, fmt.Sprintf("provider = %q", provider))
	if dir == "mnist-local" {
		s.Edit("job.hcl", `"--steps=${var.steps}"`, fmt.Sprintf(`"--steps=${var.steps}", "--step-ms=%d", "--ckpt-every=%d"`, stepMillis, ProgressSteps))
	}
	s.SetSteps(Steps)
}

// SetSteps writes the variables: the example's number of steps, and Vars.
func (s *Site) SetSteps(n int) {
	s.T.Helper()
	s.Write("eltrain.vars", fmt.Sprintf("steps = %d\n%s", n, s.Vars))
}

// NotByLease gives the job a lease so long that failures are found from the place's reports, even on a slow machine.
func (s *Site) NotByLease() {
	s.T.Helper()
	s.SetLease(Bound / 2)
}

// SetLease sets the job's lease. It must be long enough that healthy slots keep it on a busy machine.
func (s *Site) SetLease(lease time.Duration) {
	s.T.Helper()
	s.Edit("job.hcl", `lease = "5s"`, fmt.Sprintf("lease = %q", lease))
}

// Together makes the first world wait for all slots: on a busy machine the last may join later than the example's settle
// time allows.
func (s *Site) Together() {
	s.T.Helper()
	s.Edit("job.hcl", `settle  = "1s"`, fmt.Sprintf("settle  = %q", Bound/2))
}

// DropBlock removes a block from a file. The block must exist.
func (s *Site) DropBlock(name, header string) {
	s.T.Helper()
	text := s.Read(name)
	before, rest, there := strings.Cut(text, header+" {\n")
	indent := before[strings.LastIndexByte(before, '\n')+1:]
	_, after, ends := strings.Cut(rest, "\n"+indent+"}\n")
	if !there || !ends {
		s.T.Fatalf("%s has no block %s to be dropped", name, header)
	}
	s.Write(name, before+after)
}
