// Package policy runs a policy that was written for Terraform's plans, by the Open Policy Agent, on what eltrain show
// -json prints. It is a module of its own: nobody else needs OPA.
package policy

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/rego"
)

//go:embed plan.rego
var policy string

// deadline bounds one command of eltrain: an apply waits until four small processes run.
const deadline = time.Minute

// build makes the eltrain of this checkout.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "eltrain")
	cmd := exec.Command("go", "build", "-o", binary, "./cmd/eltrain")
	cmd.Dir = filepath.Join("..", "..") // the root module's
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build eltrain: %v\n%s", err, out)
	}
	return binary
}

// site is a job directory.
type site struct {
	t           *testing.T
	binary, dir string
}

func (s site) run(args ...string) []byte {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary, args...)
	cmd.Dir = s.dir
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("eltrain %v: %v\n%s%s", args, err, out.String(), problems.String())
	}
	return out.Bytes()
}

// declare writes the job file.
func (s site) declare(format string, args ...any) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "job.hcl"), fmt.Appendf(nil, format, args...), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// verdict plans, and asks the policy about the plan.
func (s site) verdict(args ...string) (allowed bool, score int, denials []string) {
	s.t.Helper()
	s.run(append([]string{"plan", "-out=plan"}, args...)...)
	var input any
	dec := json.NewDecoder(bytes.NewReader(s.run("show", "-json", "plan")))
	dec.UseNumber()
	if err := dec.Decode(&input); err != nil {
		s.t.Fatal(err)
	}
	results, err := rego.New(
		rego.Query("[data.review.allow, data.review.score, data.review.deny]"), rego.Module("plan.rego", policy), rego.Input(input),
	).Eval(context.Background())
	if err != nil || len(results) != 1 {
		s.t.Fatalf("the policy gives %v, %v", results, err)
	}
	text, err := json.Marshal(results[0].Expressions[0].Value)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &[]any{&allowed, &score, &denials}); err != nil {
		s.t.Fatalf("%v: %s", err, text)
	}
	slices.Sort(denials)
	return allowed, score, denials
}

const declared = `
provider "local" {
  node "n" { cpu = 16 }
}
variable "token" {
  type      = string
  default   = "hunter22"
  sensitive = %t
}
job "prod-a" {
  role "w" {
    replicas = %d
    ranked   = false
    command  = ["sleep", "600"]
    env      = { TOKEN = var.token, ROUND = "%d" }
    resources { cpu = %d }
  }
}
`

func TestAPolicyForTerraformJudgesPlans(t *testing.T) {
	s := site{t, build(t), t.TempDir()}
	expect := func(what string, wantScore int, want []string, args ...string) {
		t.Helper()
		allowed, score, denials := s.verdict(args...)
		if allowed != (len(want) == 0) || score != wantScore || !slices.Equal(denials, want) {
			t.Errorf("%s: allowed %t, weight %d, %q; want weight %d, %q", what, allowed, score, denials, wantScore, want)
		}
	}

	s.declare(declared, true, 4, 1, 1)
	expect("a new job of four slots", 5, nil)
	s.declare(declared, false, 4, 1, 2)
	expect("too large slots, an open secret", 5, []string{
		"job.prod-a.w[0] wants 2 cores", "job.prod-a.w[1] wants 2 cores", "job.prod-a.w[2] wants 2 cores", "job.prod-a.w[3] wants 2 cores",
		"the variable token is not sensitive",
	})

	s.declare(declared, true, 4, 1, 1)
	s.run("apply", "-auto-approve")
	defer s.run("destroy", "-auto-approve")
	expect("nothing to do", 0, nil)
	s.declare(declared, true, 2, 1, 1)
	expect("two slots less", 2*10+5, nil)
	s.declare(declared, true, 4, 2, 1)
	expect("four slots anew", 4*(10+1)+5, []string{"the plan weighs 49, and 30 is the most"})
	expect("the end of a production job", 4*10+50, []string{
		"job.prod-a is a production job and is not deleted", "the plan weighs 90, and 30 is the most",
	}, "-destroy")
}
