package lang

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eltrain/eltrain/job"
)

// A module's output can be a variable of the next module, a key of a third and a condition of a job, in any order of blocks,
// and through nested modules.
func TestOutputsAcrossModules(t *testing.T) {
	const number = "variable \"n\" {\n  type = number\n}\n"
	dir := writeTree(t, map[string]string{
		"job.hcl": `
module "last" {
  source   = "./sized"
  for_each = module.first.names
  n        = module.middle.twice + length(each.value)
}
module "middle" {
  source = "./double"
  n      = module.first.n
}
module "first" {
  source = "./facts"
}
job "here" {
  role "w" {
    replicas = module.last["x"].replicas
    command  = ["x"]
  }
  lifecycle {
    prevent_destroy = module.middle.twice > 5
    precondition {
      condition     = module.middle.twice == 6
      error_message = "It is ${module.middle.twice}."
    }
  }
}
output "all" {
  value = { for key, m in module.last : key => m.replicas }
}
`,
		"facts/main.hcl": "output \"names\" {\n  value = toset([\"x\", \"yy\"])\n}\noutput \"n\" {\n  value = 3\n}\n",
		"double/main.hcl": number + "module \"inner\" {\n  source = \"../inner\"\n  n = var.n\n}\n" +
			"output \"twice\" {\n  value = module.inner.n * 2\n}\n",
		"inner/main.hcl": number + "output \"n\" {\n  value = var.n\n}\n",
		"sized/main.hcl": number + "job \"j\" {\n  role \"w\" {\n    replicas = var.n\n    command  = [\"x\"]\n  }\n}\n" +
			"output \"replicas\" {\n  value = job.j.role.w.replicas\n}\n",
	})
	cfg, diags := Load(dir, options())
	if len(diags) > 0 {
		t.Fatal(render(cfg, diags))
	}
	got := map[string]int{}
	for _, j := range cfg.Jobs {
		got[j.Name] = j.Roles[0].Replicas
	}
	if diff := cmp.Diff(map[string]int{"here": 7, "last-x-j": 7, "last-yy-j": 8}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"all": `{"x":7,"yy":8}`}, outputTexts(t, cfg)); diff != "" {
		t.Error(diff)
	}
	if i := slices.IndexFunc(cfg.Jobs, func(j job.Job) bool { return j.Name == "here" }); !cfg.Jobs[i].Lifecycle.PreventDestroy {
		t.Error("prevent_destroy is not what the expression gives")
	}
}

// A value that is sensitive anywhere on its way through modules stays sensitive, and is never shown.
func TestSensitiveVariablesThroughModules(t *testing.T) {
	const used = "job \"j\" {\n  role \"w\" {\n    command = [\"x\", \"--key=${var.v}\"]\n  }\n}\noutput \"v\" {\n  value = var.v\n}\n"
	for name, c := range map[string]struct{ top, decl, out string }{
		"of the directory":  {"variable \"s\" {\n  sensitive = true\n  default = \"hunter2\"\n}\n", "variable \"v\" {}\n", "var.s"},
		"of the module":     {"", "variable \"v\" {\n  sensitive = true\n}\n", `"hunter2"`},
		"by its default":    {"", "variable \"v\" {\n  sensitive = true\n  default = \"hunter2\"\n}\n", "null"},
		"made on the way":   {"", "variable \"v\" {}\n", `sensitive("hunter2")`},
		"through a local":   {"variable \"s\" {\n  sensitive = true\n  default = \"hunter2\"\n}\nlocals {\n  l = { k = var.s }\n}\n", "variable \"v\" {}\n", "local.l.k"},
		"in a module of it": {"variable \"s\" {\n  sensitive = true\n  default = \"hunter2\"\n}\n", "variable \"v\" {}\n", "var.s"},
	} {
		t.Run(name, func(t *testing.T) {
			set := "  v      = " + c.out + "\n"
			if c.out == "null" {
				set = ""
			}
			files := map[string]string{
				"m/main.hcl": c.decl + used,
				"job.hcl":    c.top + "module \"m\" {\n  source = \"./m\"\n" + set + "}\noutput \"o\" {\n  value = module.m.v\n}\n",
			}
			if strings.HasPrefix(name, "in a module") {
				files["m/main.hcl"] = c.decl + "module \"deep\" {\n  source = \"../deep\"\n  v = var.v\n}\noutput \"v\" {\n  value = module.deep.v\n}\n"
				files["deep/main.hcl"] = "variable \"v\" {}\n" + used
			}
			cfg, diags := Load(writeTree(t, files), options())
			text := render(cfg, diags)
			if len(diags) != 1 || !strings.Contains(text, "Output refers to sensitive values") || strings.Contains(strings.ReplaceAll(text, `"hunter2"`, ""), "hunter2") {
				t.Errorf("want one error, which does not show the value:\n%s", text)
			}
			if len(cfg.Jobs) != 1 || !slices.Contains(cfg.Jobs[0].Secrets, "hunter2") {
				t.Errorf("the secrets of the job are %q", cfg.Jobs[0].Secrets)
			}
		})
	}
}

// What each kind of condition can refer to. The language page has the same table.
func TestWhatConditionsCanSee(t *testing.T) {
	references := map[string]string{
		"var": "var.v == 1", "local": "local.l == 1", "module": "module.m.one == 1", "each": `each.key == "k"`, "self": "self.role.w.replicas == 1",
		"job": "job.other.role.w.replicas == 1", "role": "role.w.replicas == 1", "slot": "slot.index == 0",
	}
	rule := func(kind, condition string) string {
		return kind + " {\n    condition     = " + condition + "\n    error_message = \"No.\"\n  }"
	}
	inLifecycle := func(kind, condition string) string {
		return "job \"j\" {\n  for_each = toset([\"k\"])\n  role \"w\" {\n    command = [\"x\"]\n  }\n  lifecycle {\n  " + rule(kind, condition) + "\n  }\n}\n"
	}
	for kind, c := range map[string]struct {
		sees string
		text func(condition string) string
	}{
		"validation": {"var", func(cond string) string {
			return "variable \"x\" {\n  default = 1\n  " + rule("validation", cond) + "\n}\n"
		}},
		"precondition":  {"var local module each", func(cond string) string { return inLifecycle("precondition", cond) }},
		"postcondition": {"var local module each self", func(cond string) string { return inLifecycle("postcondition", cond) }},
		"output's": {"var local module job", func(cond string) string {
			return "output \"o\" {\n  value = 1\n  " + rule("precondition", cond) + "\n}\n"
		}},
		"check": {"var local module job", func(cond string) string { return "check \"c\" {\n  " + rule("assert", cond) + "\n}\n" }},
		"prevent_destroy": {"var local module each role", func(cond string) string {
			return strings.Replace(inLifecycle("precondition", "true"), "precondition", "prevent_destroy = "+cond+"\n  precondition", 1)
		}},
		"check of a value": {"var local module job", func(cond string) string {
			return "check \"c\" {\n  " + strings.Replace(rule("assert", "true"), `"No."`, "tostring("+cond+")", 1) + "\n}\n"
		}},
	} {
		for name, condition := range references {
			base := "variable \"v\" {\n  default = 1\n}\nlocals {\n  l = 1\n}\nmodule \"m\" {\n  source = \"./m\"\n}\n" + strings.Replace(inJob(""), `"j"`, `"other"`, 1)
			base = strings.Replace(base, `role "worker"`, `role "w"`, 1)
			for _, where := range []string{"directory", "module"} {
				files := map[string]string{"job.hcl": base + c.text(condition), "m/main.hcl": "output \"one\" {\n  value = 1\n}\n"}
				if where == "module" {
					files["in/job.hcl"], files["in/m/main.hcl"] = files["job.hcl"], files["m/main.hcl"]
					files["job.hcl"] = use("in", "./in")
				}
				cfg, diags := Load(writeTree(t, files), options())
				allowed := slices.Contains(strings.Fields(c.sees), name)
				if allowed != (len(diags) == 0) {
					t.Errorf("%s in a %s, in a %s: want allowed = %t, got\n%s", name, kind, where, allowed, render(cfg, diags))
				}
				if !allowed && len(diags) != 1 {
					t.Errorf("%s in a %s, in a %s: %d diagnostics\n%s", name, kind, where, len(diags), render(cfg, diags))
				}
			}
		}
	}
}

// A module sees nothing of its parents except its variables.
func TestModulesSeeOnlyTheirOwn(t *testing.T) {
	for _, outer := range []string{"var.v", "local.l", "module.other.x", "job.here.name"} {
		dir := writeTree(t, map[string]string{
			"job.hcl":        "variable \"v\" {\n  default = 1\n}\nlocals {\n  l = 1\n}\n" + use("other", "./other") + use("m", "./m") + strings.Replace(inJob(""), `"j"`, `"here"`, 1),
			"other/main.hcl": "output \"x\" {\n  value = 1\n}\n",
			"m/main.hcl":     "output \"o\" {\n  value = " + outer + "\n}\n",
		})
		wantOne(t, dir, "Unknown ")
	}
}

// prevent_destroy accepts any boolean expression.
func TestPreventDestroyIsAnExpression(t *testing.T) {
	for expr, want := range map[string]string{
		`true`: "true", `"true"`: "true", `var.cluster == "prod"`: "true", `!contains(["test"], var.cluster)`: "true", `role.worker.replicas > 3`: "false", `null`: "false",
		`"maybe"`: "true or false is required", `1`: "true or false is required", `var.clutser == "prod"`: `Did you mean "cluster"?`, `slot.index == 0`: "slot not available here", `sensitive(true)`: "true",
	} {
		cfg, diags := parseText(t, "variable \"cluster\" {\n  default = \"prod\"\n}\n"+inJob("lifecycle {\n    prevent_destroy = "+expr+"\n  }"))
		switch text := render(cfg, diags); {
		case want != "true" && want != "false":
			if len(diags) != 1 || !strings.Contains(text, want) {
				t.Errorf("%s: want %q, got\n%s", expr, want, text)
			}
		case len(diags) > 0 || cfg.Jobs[0].Lifecycle.PreventDestroy != (want == "true"):
			t.Errorf("%s is %t, diagnostics are\n%s", expr, cfg.Jobs[0].Lifecycle.PreventDestroy, text)
		}
	}
}
