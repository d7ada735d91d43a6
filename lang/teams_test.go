package lang

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func jobNames(cfg *Config) []string {
	var names []string
	for _, j := range cfg.Jobs {
		names = append(names, j.Name)
	}
	return names
}

func TestForEachValues(t *testing.T) {
	for name, c := range map[string]struct {
		value string
		want  []string // name=value of each job
	}{
		"map":            {`{ b = "2", a = "1" }`, []string{"j-a=1", "j-b=2"}},
		"object":         {`{ a = "1", b = 2 }`, []string{"j-a=1", "j-b=2"}},
		"set":            {`toset(["y", "x", "x"])`, []string{"j-x=x", "j-y=y"}},
		"digits":         {`{ "7b" = 1, "70b" = 2 }`, []string{"j-70b=2", "j-7b=1"}},
		"computed":       {`{ for n in ["a", "b"] : n => upper(n) }`, []string{"j-a=A", "j-b=B"}},
		"empty map":      {`{}`, nil},
		"empty set":      {`toset([])`, nil},
		"filtered empty": {`{ for n in ["a"] : n => n if n == "b" }`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := mustParse(t, "job \"j\" {\n  for_each = "+c.value+"\n  role \"w\" { command = [each.key, each.value] }\n}\n")
			var got []string
			for _, j := range cfg.Jobs {
				got = append(got, j.Name+"="+j.Roles[0].Command[1])
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// each is known in every corner of a job, also where blocks are repeated and values are late.
func TestEachEverywhere(t *testing.T) {
	cfg := mustParse(t, `
job "j" {
  for_each = { a = { n = 2, roles = ["x", "y"], rack = "r1" } }
  priority = each.value.n
  limits { cpu = each.value.n * 100 }
  dynamic "role" {
    for_each = toset(each.value.roles)
    labels   = ["${each.key}-${role.value}"]
    content {
      replicas = each.value.n
      command  = ["${each.key}/${slot.index}"]
      resources { cpu = each.value.n }
    }
  }
  topology { rank_by = ["node.labels.${each.value.rack}"] }
  heal {
    budget { restarts = each.value.n }
  }
  lifecycle { prevent_destroy = each.key == "a" }
}`)
	j := cfg.Jobs[0]
	if j.Priority != 2 || j.Roles[1].Name != "a-y" || j.Roles[1].For(1).Command[0] != "a/1" || j.Roles[0].Resources.CPU != 2000 ||
		j.Topology.RankBy[0] != "node.labels.r1" || j.Heal.Budget.Restarts != 2 || !j.Lifecycle.PreventDestroy || *j.Limits.CPU != 200_000 {
		t.Errorf("%+v", j)
	}
}

// A secret that a module is given is one in its jobs too, whole and in what is made of it.
func TestSecretsReachModules(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"job.hcl": "variable \"token\" {\n  sensitive = true\n  default   = \"hunter2\"\n}\n" +
			"module \"m\" {\n  source = \"./m\"\n  header = \"Bearer ${var.token}\"\n}\noutput \"h\" {\n  value = module.m.header\n}\n",
		"m/main.hcl": "variable \"header\" {}\njob \"j\" {\n  role \"w\" {\n    command = [\"x\"]\n    env = { H = \"H: ${var.header}\" }\n  }\n}\n" +
			"output \"header\" {\n  value = var.header\n}\n",
	})
	cfg, diags := Load(dir, options())
	if got := cfg.Jobs[0].Secrets; !slices.Contains(got, "hunter2") || !slices.Contains(got, "Bearer hunter2") || !slices.Contains(got, "H: Bearer hunter2") {
		t.Errorf("secrets are %q", got)
	}
	text := render(cfg, diags)
	if len(diags) != 1 || !strings.Contains(text, "Output refers to sensitive values") || strings.Contains(text, "hunter2") {
		t.Errorf("want one error that does not tell the secret, got:\n%s", text)
	}
}

// What a module's variables take is checked where they are set.
func TestModuleVariables(t *testing.T) {
	for name, c := range map[string]struct{ decl, given, want, err string }{
		"default":            {"default = \"d\"", "", `"d"`, ""},
		"converted":          {"type = string", "v = 7", `"7"`, ""},
		"optional attribute": {"type = object({ a = optional(number, 3) })", "v = {}", `{"a":3}`, ""},
		"sensitive object":   {"type = object({ a = optional(number, 3) })", "v = sensitive({})", `{"a":3}`, ""},
		"null":               {"default = \"d\"", "v = null", `null`, ""},
		"null means default": {"default = \"d\"\n  nullable = false", "v = null", `"d"`, ""},
		"wrong type":         {"type = number", "v = [1]", "", "does not fit its type number"},
		"rule":               {"validation {\n    condition = var.v > 2\n    error_message = \"Not ${var.v}.\"\n  }", "v = 1", "", "Not 1."},
		"wrong and secret":   {"type = number", "v = sensitive(\"hunter2\")", "", "It is sensitive and not shown"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeTree(t, map[string]string{
				"job.hcl":    "module \"m\" {\n  source = \"./m\"\n  " + c.given + "\n}\n",
				"m/main.hcl": "variable \"v\" {\n  " + c.decl + "\n}\njob \"j\" {\n  role \"w\" {\n    command = [jsonencode(var.v)]\n  }\n}\n",
			})
			cfg, diags := Load(dir, options())
			if c.err != "" {
				if text := render(cfg, diags); len(diags) != 1 || !strings.Contains(strings.ReplaceAll(text, "\n", " "), c.err) {
					t.Errorf("want %q, got:\n%s", c.err, text)
				}
				return
			}
			if len(diags) > 0 {
				t.Fatal(render(cfg, diags))
			}
			if got := cfg.Jobs[0].Roles[0].Command[0]; got != c.want {
				t.Errorf("v is %s, want %s", got, c.want)
			}
		})
	}
}

// Whoever watches the files has to know of every directory, each once.
func TestDirectoriesAreTold(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"job.hcl":        use("a", "./a") + use("b", "./a"),
		"a/main.hcl":     inJob("") + use("deep", "../lib/deep"),
		"lib/deep/m.hcl": inJob(""),
	})
	cfg, diags := Load(dir, options())
	if len(diags) > 0 {
		t.Fatal(render(cfg, diags))
	}
	want := []string{dir, filepath.Join(dir, "a"), filepath.Join(dir, "lib/deep")}
	if diff := cmp.Diff(want, cfg.Directories); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a-j", "a-deep-j", "b-j", "b-deep-j"}, jobNames(cfg)); diff != "" {
		t.Error(diff)
	}
}

// A mistake in a module that is used many times is one mistake.
func TestMistakesAreToldOnce(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"job.hcl":    "module \"m\" {\n  source   = \"./m\"\n  for_each = toset([for i in range(100) : \"k${i}\"])\n}\n",
		"m/main.hcl": inRole("priority = 1\n    env = { A = var.x }"),
	})
	cfg, diags := Load(dir, options())
	if len(diags) != 2 {
		t.Errorf("%d diagnostics:\n%.2000s", len(diags), render(cfg, diags))
	}
}

// Conditions over values that are wrong already are not told on top.
func TestConditionsOverMistakesAreSilent(t *testing.T) {
	text := mustFail(t, `
job "j" {
  role "w" {
    command  = ["x"]
    replicas = "many"
  }
  lifecycle {
    postcondition {
      condition     = self.role.w.replicas > 3
      error_message = "Too few."
    }
  }
}`)
	if strings.Contains(text, "Too few") || strings.Count(text, "Error:") != 1 {
		t.Error(text)
	}
}

// A renamed module takes its jobs along, by chains of old names and whatever they were called inside.
func TestMovedModulesOfModules(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"job.hcl": use("c", "./m") +
			"moved {\n  from = module.a\n  to = module.b\n}\nmoved {\n  from = module.b\n  to = module.c\n}\n",
		"m/main.hcl": inJob("") + "moved {\n  from = job.old\n  to = job.j\n}\n",
	})
	cfg, diags := Load(dir, options())
	if len(diags) > 0 {
		t.Fatal(render(cfg, diags))
	}
	got := map[string]string{}
	for _, m := range cfg.Moved {
		got[m.From] = m.To
	}
	want := map[string]string{"a-j": "c-j", "b-j": "c-j", "a-old": "c-j", "b-old": "c-j", "c-old": "c-j"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
