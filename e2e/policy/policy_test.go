// Package policy runs an Open Policy Agent policy that was written for Terraform's plans on the output of eltrain show -json.
// It is a module of its own, since nothing else needs OPA.
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
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/rego"
)

//go:embed plan.rego
var policy string

// deadline bounds one command of eltrain: an apply waits until four small processes run.
const deadline = 2 * time.Minute

// build builds the eltrain of this checkout.
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

// plan returns the plan as JSON.
func (s site) plan(args ...string) (input any) {
	s.t.Helper()
	s.run(append([]string{"plan", "-out=plan"}, args...)...)
	dec := json.NewDecoder(bytes.NewReader(s.run("show", "-json", "plan")))
	dec.UseNumber()
	if err := dec.Decode(&input); err != nil {
		s.t.Fatal(err)
	}
	return input
}

// ask evaluates a policy's query on an input.
func ask(t *testing.T, module, query string, input, answer any) {
	t.Helper()
	results, err := rego.New(rego.Query(query), rego.Module("plan.rego", module), rego.Input(input)).Eval(context.Background())
	if err != nil || len(results) != 1 {
		t.Fatalf("the policy gives %v, %v\n%s", results, err, module)
	}
	text, err := json.Marshal(results[0].Expressions[0].Value)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// verdict plans, and evaluates the policy on the plan.
func (s site) verdict(args ...string) (allowed bool, score int, denials []string) {
	s.t.Helper()
	ask(s.t, policy, "[data.review.allow, data.review.score, data.review.deny]", s.plan(args...), &[]any{&allowed, &score, &denials})
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
    update { max_unavailable = 4 }
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

// regoBlock returns the only policy on a page of the documentation.
func regoBlock(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	const begin = "```rego\n"
	_, rest, found := strings.Cut(string(text), begin)
	module, after, closed := strings.Cut(rest, "```\n")
	if !found || !closed || strings.Contains(after, begin) {
		t.Fatalf("%s has not one policy", page)
	}
	return module
}

// The policies of the documentation do what the text above them says.
func TestThePoliciesOfTheDocumentation(t *testing.T) {
	s := site{t, build(t), t.TempDir()}
	anySlot, manySlots := regoBlock(t, "gitops.md"), regoBlock(t, "plan-json.md")
	expect := func(what string, input any, wantAny, wantMany []string) {
		t.Helper()
		for module, want := range map[string][]string{anySlot: wantAny, manySlots: wantMany} {
			var denials []string
			ask(t, module, "data.main.deny", input, &denials)
			slices.Sort(denials)
			if !slices.Equal(denials, want) {
				t.Errorf("%s is refused with %q, want %q, by\n%s", what, denials, want, module)
			}
		}
	}
	s.declare(declared, true, 4, 1, 1)
	expect("a new job", s.plan(), nil, nil)
	s.run("apply", "-auto-approve")
	defer s.run("destroy", "-auto-approve")
	expect("nothing", s.plan(), nil, nil)
	s.declare(declared, true, 3, 1, 1)
	expect("a slot less", s.plan(), []string{"job.prod-a.w[3] would be removed"}, nil)
	s.declare(declared, true, 1, 1, 1)
	expect("three slots less", s.plan(),
		[]string{"job.prod-a.w[1] would be removed", "job.prod-a.w[2] would be removed", "job.prod-a.w[3] would be removed"},
		[]string{"3 slots would be destroyed"})
}
