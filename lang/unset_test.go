package lang

import (
	"strings"
	"testing"
)

// everyKind uses variables in every kind of place that accepts them.
const everyKind = `
eltrain {
  required_version = ">= 0.1"
  state "file" {
    path = "x.state"
  }
  service {
    listen   = "127.0.0.1:0"
    tls_cert = "a"
    tls_key  = "b"
  }
}
provider "local" {
  dynamic "node" {
    for_each = { n1 = 2, n2 = 4 }
    labels   = [node.key]
    content {
      cpu    = node.value
      memory = "4GiB"
      labels = { rack = "r" }
    }
  }
}
provider "kubernetes" {
  namespace = "ml"
}
variable "checked" {
  type = object({ a = string, b = optional(number, 3), c = optional(list(string), ["x"]) })
  default = { a = "y" }
  validation {
    condition     = var.checked.b > 1 && length(var.checked.c) > 0
    error_message = "No."
  }
}
locals {
  sizes   = { de = 2, fr = 4 }
  list    = [for k, v in local.sizes : "${k}-${v}"]
  total   = sum(values(local.sizes))
  first   = local.list[index(local.list, "de-2")]
  all     = alltrue([true, local.total > 3])
  only    = one([for k, v in local.sizes : v if k == "de"])
  nothing = null
  elastic = true
}
job "gpt" {
  for_each = local.sizes
  provider = "kubernetes"
  priority = 3
  limits {
    cpu     = 64
    memory  = "64GiB"
    devices = { "nvidia.com/gpu" = 64 }
  }
  role "worker" {
    replicas = each.value
    dynamic "scaling" {
      for_each = local.elastic ? [1] : []
      content {
        min  = 2
        max  = 8
        step = 2
      }
    }
    command = ["python3", "train.py", "--shard=${slot.index}", "--of=${each.key}", slot.job]
    env     = { TOKEN = "t0ken", SIZE = tostring(role.worker.scaling.max) }
    image   = "registry/image:${local.first}"
    resources {
      cpu     = 1
      memory  = "1GiB"
      devices = { "nvidia.com/gpu" = 1 }
    }
    pod = { spec = { nodeSelector = { a = "b" } } }
  }
  dynamic "role" {
    for_each = toset(["ps", "eval"])
    labels   = [role.value]
    content {
      replicas = 1
      command  = ["x", role.key]
    }
  }
  role "last" {
    replicas   = ceil(role.worker.replicas / 4) + role.ps.replicas
    command    = ["x"]
    depends_on = [role.ps, role.worker]
  }
  progress {
    pattern = "step (?P<step>\\d+)"
  }
  rendezvous {
    settle  = "5s"
    timeout = "10m"
  }
  heal {
    budget {
      restarts = 10
      window   = "24h"
    }
    on "oom" {
      memory = "x1.5"
      limit  = 3
    }
  }
  lifecycle {
    prevent_destroy = true
    ignore_changes  = [role.ps.replicas]
    precondition {
      condition     = each.value > 1 && local.total < 100
      error_message = "Of ${each.key}."
    }
    postcondition {
      condition     = self.role.worker.replicas >= 2 && self.role.last.resources.cpu == 0 && self.name != "x" && length(self.role) == 4
      error_message = "No."
    }
  }
}
job "plain" {
  role "worker" {
    replicas = local.only
    command  = ["x"]
  }
}
module "base" {
  source   = "./base"
  for_each = toset(["k"])
  entry    = ["x", each.key]
}
output "sizes" {
  value = [for k, j in job.gpt : j.role.worker.replicas]
  precondition {
    condition     = job.gpt["de"].role.worker.replicas == 2
    error_message = "No."
  }
}
output "one" {
  value       = job.plain.role.worker.replicas + 1
  description = "text"
}
check "c" {
  assert {
    condition     = job.plain.role.worker.replicas < 3 && job.gpt["fr"].priority == 3
    error_message = "No."
  }
}
import {
  for_each = toset(["de", "fr"])
  to       = job.gpt[each.key]
  id       = "uid-${each.key}"
}
import {
  to = job.plain.worker[1]
  id = "pod"
}
import {
  to = job.gpt["de"].eval[0]
  id = "pod2"
}
moved {
  from = job.old["de"]
  to   = job.gpt["de"]
}
removed {
  from    = job.older
  destroy = false
}
`

// withoutValues parses a file, and returns the errors that do not depend on the values of its variables.
func withoutValues(t *testing.T, src string) (*Config, string) {
	t.Helper()
	cfg, diags := parseText(t, src)
	if !diags.HasErrors() || !cfg.Invalid {
		t.Error("planning with variables that have no value is not an error")
	}
	return cfg, render(cfg, WithoutUnset(diags))
}

const unsetVariables = `
variable "any" {}
variable "n" {
  type = number
}
variable "list" {
  type = list(string)
}
variable "set" {
  type = set(string)
}
variable "token" {
  type      = string
  sensitive = true
}
`

func TestEveryKindIsValid(t *testing.T) {
	o := options()
	o.BaseDir = "testdata/teams"
	cfg, diags := Parse(map[string][]byte{"job.hcl": []byte(everyKind)}, o)
	if len(diags) > 0 {
		t.Error(render(cfg, diags))
	}
	if len(cfg.Unknown)+len(cfg.Templates) > 0 {
		t.Errorf("all variables have values, but %v is unknown; templates are %v", cfg.Unknown, cfg.Templates)
	}
}

// Errors that do not depend on the values are reported, and no others.
func TestWhatDoesNotDependOnAMissingValueIsChecked(t *testing.T) {
	role := func(lines string) string { return unsetVariables + inRole(lines) }
	with := func(lines string) string { return unsetVariables + inJob(lines) }
	post := func(condition string) string {
		return unsetVariables + inRole("replicas = var.n")[:len(inRole("replicas = var.n"))-2] +
			"lifecycle {\n  postcondition {\n    condition = " + condition + "\n    error_message = \"Broken.\"\n  }\n}\n}\n"
	}
	for name, c := range map[string]struct{ src, want string }{
		"a count":                     {role("replicas = var.n"), ""},
		"a count of another type":     {role("replicas = var.list"), "number required"},
		"a bound":                     {role("scaling {\n  min = var.n\n  max = 2\n}"), ""},
		"bounds that are known":       {role("env = { A = var.any }\nscaling {\n  min = 4\n  max = 2\n}"), "Minimum above maximum"},
		"a number that is a word":     {role("processes = \"many\"\nreplicas = var.n"), "number is required"},
		"a limit above the others":    {role("resources {\n  cpu = 8\n  memory = var.any\n}\n}\nlimits {\n  cpu = 2\n  memory = var.any\n  devices = var.any"), "8 cpu, but the limits allow 2 cpu."},
		"limits that may be enough":   {role("resources {\n  cpu = var.n\n  memory = \"8GiB\"\n}\n}\nlimits {\n  cpu = 2\n  memory = var.any"), ""},
		"a gang of unknown size":      {role("replicas = var.n\nresources {\n  cpu = 1\n}\n}\nlimits {\n  cpu = 0.5"), ""},
		"eltrain's own variable":      {role("env = { RANK = \"0\", A = var.any }"), "sets \"RANK\" for each"},
		"a variable in each slot":     {role("env = { \"A=\" = slot.role, A = slot.job, B = var.token }"), "is not a valid name of an environment variable"},
		"a variable that may be null": {role("env = { RANK = var.any }"), ""},
		"one that is no null":         {role("env = { RANK = \"r${var.any}\" }"), "sets \"RANK\" for each"},
		"one that is null":            {role("env = { RANK = null, A = var.any }"), ""},
		"names that are not known":    {role("env = merge({ RANK = \"0\" }, var.any)"), ""},
		"a division":                  {with("priority = var.n == 0 ? 1 : 6 / var.n"), ""},
		"limits":                      {with("limits {\n  cpu = var.n\n}"), ""},
		"for_each":                    {with("") + "job \"k\" {\n  for_each = var.set\n  role \"w\" {\n    replicas = length(each.key)\n    command = [each.value, slot.job]\n  }\n}\n", ""},
		"a mistake in each":           {with("") + "job \"k\" {\n  for_each = var.set\n  role \"w\" {\n    replicas = 0\n    command = [each.key, each.valeu]\n  }\n}\n", "Unknown attribute of each|at least 1 slot"},
		"for_each over a list":        {with("") + "job \"k\" {\n  for_each = var.list\n  role \"w\" {\n    command = [\"x\"]\n  }\n}\n", "not a list"},
		"for_each over a secret":      {with("") + "job \"k\" {\n  for_each = toset([var.token])\n  role \"w\" {\n    command = [\"x\"]\n  }\n}\n", "sensitive value cannot be used"},
		"each of something else":      {with("") + "output \"o\" {\n  value = job.j.role.worker.replicsa\n}\n", "no argument \"replicsa\""},
		"an output":                   {role("replicas = var.n") + "output \"o\" {\n  value = job.j.role.worker.replicas + var.any.count\n}\n", ""},
		"an output that is a secret":  {with("") + "output \"o\" {\n  value = upper(var.token)\n}\n", "Output refers to sensitive values"},
		"a check":                     {role("replicas = var.n") + "check \"c\" {\n  assert {\n    condition = job.j.role.worker.replicas > 3\n    error_message = \"Few.\"\n  }\n}\n", ""},
		"a condition":                 {post("self.role.worker.replicas > 3"), ""},
		"a condition that is broken":  {post("self.priority > 3"), "Broken."},
		"a dynamic role":              {with("dynamic \"role\" {\n  for_each = var.set\n  labels = [role.key]\n  content {\n    command = [\"x\"]\n  }\n}\nrole \"last\" {\n  command = [role.ps.image]\n  depends_on = [role.ps]\n}"), ""},
		"a wrong name in it":          {with("dynamic \"role\" {\n  for_each = var.set\n  labels = [role.key]\n  content {\n    command = [var.nope]\n  }\n}"), "Unknown variable"},
		"a label":                     {with("dynamic \"role\" {\n  for_each = [1]\n  labels = [var.any]\n  content {\n    command = [\"x\"]\n  }\n}"), ""},
		"a dynamic block of a number": {with("dynamic \"limits\" {\n  for_each = var.n\n  content {}\n}"), "iterable collection"},
		"an import":                   {with("") + "import {\n  to = job.j\n  id = var.any\n}\n", ""},
		"an import to nothing":        {with("") + "import {\n  to = job.nothing\n  id = var.any\n}\n", "undeclared job"},
		"an import to one of several": {with("") + "job \"k\" {\n  for_each = var.set\n  role \"w\" {\n    command = [\"x\"]\n  }\n}\nimport {\n  to = job.k[\"a\"].w[0]\n  id = \"x\"\n}\n", ""},
		"an import to a slot":         {role("replicas = var.n") + "import {\n  to = job.j.worker[7]\n  id = \"x\"\n}\n", ""},
		"a key":                       {with("") + "import {\n  to = job.k[var.any]\n  id = \"x\"\n}\n", ""},
		"a provider":                  {with("") + "provider \"kubernetes\" {\n  namespace = var.any\n}\n", ""},
		"a secret in a provider":      {with("") + "provider \"kubernetes\" {\n  namespace = var.token\n}\n", "Sensitive value outside of a job"},
		"settings":                    {with("") + "eltrain {\n  required_version = var.any\n  state \"kubernetes\" {\n    name = var.any\n  }\n}\n", ""},
		"a rule":                      {with("") + "variable \"r\" {\n  validation {\n    condition = var.r > 3\n    error_message = \"No.\"\n  }\n}\n", ""},
		"a mistake in a rule":         {with("") + "variable \"r\" {\n  validation {\n    condition = var.s > 3\n    error_message = \"No.\"\n  }\n}\n", "Unknown variable"},
		"the name of one of several":  {with("") + "job \"k\" {\n  for_each = var.set\n  role \"w\" {\n    command = [{ k-a = \"x\" }[slot.job]]\n  }\n  lifecycle {\n    postcondition {\n      condition = self.name == \"k-a\"\n      error_message = \"Broken.\"\n    }\n  }\n}\n", ""},
		"the place of an element":     {with("priority = index([var.any, \"b\"], \"b\")"), ""},
		"an import to a dynamic role": {with("dynamic \"role\" {\n  for_each = var.set\n  labels = [role.key]\n  content {\n    command = [\"x\"]\n  }\n}\nlifecycle {\n  ignore_changes = [role.ps.replicas]\n}") + "import {\n  to = job.j.ps[0]\n  id = \"x\"\n}\n", ""},
		"a gang that may be elastic":  {role("replicas = 8\nresources {\n  cpu = 1\n}\ndynamic \"scaling\" {\n  for_each = var.set\n  content {\n    min = 2\n    max = 8\n  }\n}\n}\nlimits {\n  cpu = 2"), ""},
		"a function":                  {role("env = { A = parseint(\"x\", 10), B = var.any }"), "cannot parse"},
	} {
		t.Run(name, func(t *testing.T) {
			_, told := withoutValues(t, c.src)
			if c.want == "" && told != "" {
				t.Errorf("want no diagnostics, got\n%s", told)
			}
			for _, want := range strings.Split(c.want, "|") {
				if !strings.Contains(strings.Join(strings.Fields(told), " "), want) {
					t.Errorf("want %q, got\n%s", want, told)
				}
			}
		})
	}
}

// A variable of a module is set in the files: a missing one is an error whatever the values are.
func TestAModuleWantsItsVariables(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"job.hcl": unsetVariables + "module \"a\" {\n  source = \"./m\"\n}\nmodule \"b\" {\n  source = \"./m\"\n  for_each = var.set\n  x = { name = var.any }\n}\n" +
			"output \"o\" {\n  value = module.b[\"k\"].rate / 2\n}\nimport {\n  to = module.b[\"k\"].job.j\n  id = \"x\"\n}\n",
		"m/job.hcl": inRole("replicas = var.x.rate") + "variable \"x\" {\n  type = object({ name = string, rate = optional(number, 3) })\n}\n" +
			"output \"rate\" {\n  value = job.j.role.worker.replicas\n}\n",
	})
	cfg, diags := Load(dir, options())
	rest := WithoutUnset(diags)
	if len(rest) != 1 || !strings.Contains(rest[0].Detail, `The variable "x" of the module "a" has no default.`) {
		t.Errorf("the diagnostics are\n%s", render(cfg, rest))
	}
	if len(cfg.Templates) != 1 || cfg.Templates[0].Name != "b-*-j" || cfg.Templates[0].Roles[0].Replicas != 3 {
		t.Errorf("the templates are %+v", cfg.Templates)
	}
}

// Given values are checked as usual, even if others are missing.
func TestGivenValuesAreCheckedWithoutOthers(t *testing.T) {
	for value, want := range map[string]string{"7": "", "x": "does not match its type number", "2": "Too few."} {
		o := options()
		o.Assignments = []Assignment{{Name: "given", Value: value}}
		src := unsetVariables + inJob("") + "variable \"given\" {\n  type = number\n  validation {\n    condition = var.given > 3\n    error_message = \"Too few.\"\n  }\n}\n"
		cfg, diags := Parse(map[string][]byte{"job.hcl": []byte(src)}, o)
		if told := render(cfg, WithoutUnset(diags)); (told != "") != (want != "") || !strings.Contains(told, want) {
			t.Errorf("%s: the diagnostics are\n%s", value, told)
		}
	}
}

// Callers that display a configuration get what is unknown in it.
func TestUnknownAndTemplates(t *testing.T) {
	cfg, told := withoutValues(t, unsetVariables+`
job "j" {
  priority = var.n
  role "worker" {
    command = ["x"]
    env     = { A = var.token }
    scaling {
      min = var.n
      max = 8
    }
  }
  dynamic "role" {
    for_each = var.set
    labels   = [role.key]
    content {
      command = ["x"]
    }
  }
}
job "k" {
  for_each = var.any
  role "w" {
    command = [each.key]
  }
}
provider "kubernetes" {
  context = var.any
}
provider "local" {}
`)
	if told != "" {
		t.Error(told)
	}
	if got, want := strings.Join(cfg.Unknown["j"], " "), "priority role role.worker.env role.worker.replicas role.worker.scaling.min"; got != want {
		t.Errorf("unknown are %q, want %q", got, want)
	}
	if len(cfg.Jobs) != 1 || len(cfg.Templates) != 1 || cfg.Templates[0].Name != "k-*" || cfg.Templates[0].Address != "job.k[*]" {
		t.Errorf("jobs %+v, templates %+v", cfg.Jobs, cfg.Templates)
	}
	for _, p := range cfg.Providers {
		if p.Unknown != (p.Name == "kubernetes") {
			t.Errorf("provider %s: Unknown = %t", p.Name, p.Unknown)
		}
	}
	for expr, known := range map[string]bool{
		"var.n": false, "job.j.priority": false, "job.j.role.worker.scaling.min": false, "job.j.role.ps": false, `job.k["a"]`: false,
		"job.j.name": true, "job.j.role": false, "[var.token]": false,
	} {
		val, diags := cfg.Evaluate(expr)
		if plain, _ := val.UnmarkDeep(); diags.HasErrors() || plain.IsWhollyKnown() != known {
			t.Errorf("%s is %#v, %v", expr, val, diags)
		}
	}
}

// Missing values beyond the limit of diagnostics do not become other errors.
func TestMissingValuesBeyondTheCut(t *testing.T) {
	missing := inJob("") + lines("variable \"v#\" {}\n", 50_000)
	_, diags := parseText(t, missing)
	if rest := WithoutUnset(diags); len(diags) != maxDiagnostics+1 || rest.HasErrors() {
		t.Errorf("of %d diagnostics %d are left: %v", len(diags), len(rest), rest)
	}
	_, diags = parseText(t, missing+"nonsense {}\n")
	if rest := WithoutUnset(diags); len(diags) != maxDiagnostics+1 || len(rest) != 1 || !strings.Contains(rest[0].Detail, "nonsense") {
		t.Errorf("of %d diagnostics with a mistake %d are left: %v", len(diags), len(rest), rest)
	}
	_, diags = parseText(t, missing+lines("check \"c#\" {\n  assert {\n    condition = false\n    error_message = \"No.\"\n  }\n}\n", 200_000))
	if rest := WithoutUnset(diags); !diags.HasErrors() || len(diags) != maxDiagnostics+2 || len(rest) != maxDiagnostics+1 || rest.HasErrors() {
		t.Errorf("of %d diagnostics with warnings %d are left, errors: %t", len(diags), len(rest), rest.HasErrors())
	}
}
