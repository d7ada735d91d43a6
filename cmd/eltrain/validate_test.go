package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// unsetJobs need values for all their variables before they can run.
const unsetJobs = `
variable "n" {
  type = number
}
variable "teams" {
  type = set(string)
}
variable "token" {
  type      = string
  sensitive = true
}
variable "image" {}
provider "kubernetes" {}
job "gpt" {
  provider = "kubernetes"
  role "worker" {
    replicas = var.n
    command  = ["python3", "train.py"]
    image    = var.image
    env      = { TOKEN = var.token }
  }
  role "elastic" {
    replicas = var.n
    command  = ["x"]
    image    = "x"
    scaling {
      min = 2
      max = 8
    }
  }
}
job "eval" {
  for_each = var.teams
  role "worker" {
    command = ["x", each.key]
  }
  role "ps" {
    replicas = role.worker.replicas
    command  = ["x"]
  }
  dynamic "role" {
    for_each = var.teams
    labels   = [role.key]
    content {
      command = ["x"]
    }
  }
}
`

// A pipeline without secrets can validate the files; a plan needs all values.
func TestValidateWantsNoValues(t *testing.T) {
	for name, c := range map[string]struct {
		more, want string
		args       []string
	}{
		"none":                      {want: "The configuration is valid."},
		"one that does not fit":     {args: []string{"-var", "n=many"}, want: "does not match its type number"},
		"one too few":               {args: []string{"-var", "n=0"}, want: "at least 1 slot"},
		"one that is not declared":  {args: []string{"-var", "m=1"}, want: "Value for an undeclared variable"},
		"another mistake":           {more: "output \"o\" {\n  value = vra.n\n}\n", want: "Unknown reference"},
		"a mistake of a provider":   {more: wrongPod, want: "nodeSelectr"},
		"a mistake in its template": {more: strings.Replace(wrongPod, "{\n", "{\n  for_each = var.teams\n", 1), want: "nodeSelectr"},
		"a provider's argument":     {more: "provider \"volcano\" {\n  queue = var.image\n}\n", want: "The configuration is valid."},
	} {
		t.Run(name, func(t *testing.T) {
			jobDir(t, unsetJobs+c.more)
			s := newScreenless("")
			code := s.run(append([]string{"validate"}, c.args...))
			told := s.out.String() + strings.Join(strings.Fields(s.err.String()), " ")
			if valid := c.want == "The configuration is valid."; (code == exitDone) != valid || valid && s.err.Len() > 0 || !strings.Contains(strings.ToLower(told), strings.ToLower(c.want)) {
				t.Errorf("exit code %d, %s", code, told)
			}
		})
	}
}

const wrongPod = "job \"x\" {\n  provider = \"kubernetes\"\n  role \"w\" {\n    replicas = var.n\n    command = [\"x\"]\n    pod = { spec = { nodeSelectr = {} } }\n  }\n}\n"

func TestValidateJSONWithoutValues(t *testing.T) {
	jobDir(t, unsetJobs)
	s := newScreenless("")
	var result struct {
		Valid       bool  `json:"valid"`
		Diagnostics []any `json:"diagnostics"`
	}
	if code := s.run([]string{"validate", "-json"}); code != exitDone || json.Unmarshal(s.out.Bytes(), &result) != nil || !result.Valid || len(result.Diagnostics) > 0 {
		t.Errorf("exit code %d, %s", code, s.out.String())
	}
	planned := newScreenless("")
	if code := planned.run([]string{"plan"}); code != exitError || strings.Count(planned.err.String(), "No value for a required variable") != 4 {
		t.Errorf("plan: exit code %d, %s", code, planned.err.String())
	}
}

func TestGraphWithoutValues(t *testing.T) {
	jobDir(t, unsetJobs)
	s := newScreenless("")
	if code := s.run([]string{"graph"}); code != exitDone {
		t.Fatalf("exit code %d\n%s", code, s.err.String())
	}
	for _, part := range []string{
		`"job.gpt.worker" [label = "worker\n?"`, `"job.gpt.elastic" [label = "elastic\n2..8"`,
		`label = "job.eval-*"`, `"job.eval-*.worker" [label = "worker\n1"`, `"job.eval-*.?" [label = "?"`,
		`"job.eval-*.ps" -> "job.eval-*.worker"`,
	} {
		if !strings.Contains(s.out.String(), part) {
			t.Errorf("no %s in\n%s", part, s.out.String())
		}
	}
}

func TestConsoleWithoutValues(t *testing.T) {
	jobDir(t, unsetJobs)
	s := newScreenless("var.n + 1\n[1, var.n]\nvar.token\njob.gpt.role.elastic.scaling.max\njob.eval\n")
	const unknown = "(not known)"
	want := strings.Join([]string{unknown, "[\n  1,\n  " + unknown + ",\n]", "(sensitive value)", "8", unknown, ""}, "\n")
	if code := s.run([]string{"console"}); code != exitDone || s.out.String() != want || s.err.Len() > 0 {
		t.Errorf("exit code %d, output\n%s\nerrors\n%s", code, s.out.String(), s.err.String())
	}
}
