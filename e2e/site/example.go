package site

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// Steps of stepMillis: some twelve seconds of training, enough for a fault and its healing in the middle.
	Steps      = 300
	stepMillis = 40

	// Lenient is a lease for jobs whose other slots are to be left alone: it outlasts a pause between two tries of an agent,
	// and what a machine that is busy adds.
	Lenient = 15 * time.Second
)

// Script is what the example trains with.
var Script = filepath.Join(Root, "examples", "mnist-local", "train.py")

// Example reads a file of an example.
func (s *Site) Example(dir, name string) string {
	s.T.Helper()
	text, err := os.ReadFile(filepath.Join(Root, "examples", dir, name))
	s.OK(err)
	return string(text)
}

// UseExample writes the job of an example with another provider, and its script.
func (s *Site) UseExample(dir, provider string) {
	s.T.Helper()
	for _, name := range []string{"job.hcl", "train.py"} {
		s.Write(name, s.Example(dir, name))
	}
	s.Edit("job.hcl", `provider = "local"`, fmt.Sprintf("provider = %q", provider))
	if dir == "mnist-local" {
		s.Edit("job.hcl", `"--steps=${var.steps}"`, fmt.Sprintf(`"--steps=${var.steps}", "--step-ms=%d", "--ckpt-every=%d"`, stepMillis, Onward))
	}
	s.SetSteps(Steps)
}

// SetSteps writes the variables: for how many steps the example trains, and what else it has.
func (s *Site) SetSteps(n int) {
	s.T.Helper()
	s.Write("eltrain.vars", fmt.Sprintf("steps = %d\n%s", n, s.Vars))
}

// NotByLease gives the job a lease that outlasts any wait for the place's own word on a machine that is slow: an end is then
// found by that word.
func (s *Site) NotByLease() {
	s.T.Helper()
	s.SetLease(Bound / 2)
}

// SetLease gives the job another lease: one that outlasts what a machine that is busy does to those of whom nothing is wanted.
func (s *Site) SetLease(lease time.Duration) {
	s.T.Helper()
	s.Edit("job.hcl", `lease = "5s"`, fmt.Sprintf("lease = %q", lease))
}

// Together has the job wait for all who are to come, and so there is one world of them: on a machine that is busy the last
// may come later than the settle time of the example allows, and is then waited for by nobody.
func (s *Site) Together() {
	s.T.Helper()
	s.Edit("job.hcl", `settle  = "1s"`, fmt.Sprintf("settle  = %q", Bound/2))
}

// DropBlock takes a block out of a file, which has to be there.
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
