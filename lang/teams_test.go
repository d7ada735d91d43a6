package lang

import (
	"fmt"
	"maps"
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

// each is available everywhere in a job, including repeated blocks and arguments that are evaluated per slot.
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

// A secret given to a module is secret in its jobs too, by itself and as part of other values.
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
		t.Errorf("want one error that does not show the secret, got:\n%s", text)
	}
}

// Values of a module's variables are checked, and errors point at the module block.
func TestModuleVariables(t *testing.T) {
	for name, c := range map[string]struct{ decl, given, want, err string }{
		"default":            {"default = \"d\"", "", `"d"`, ""},
		"converted":          {"type = string", "v = 7", `"7"`, ""},
		"optional attribute": {"type = object({ a = optional(number, 3) })", "v = {}", `{"a":3}`, ""},
		"sensitive object":   {"type = object({ a = optional(number, 3) })", "v = sensitive({})", `{"a":3}`, ""},
		"null":               {"default = \"d\"", "v = null", `null`, ""},
		"null means default": {"default = \"d\"\n  nullable = false", "v = null", `"d"`, ""},
		"wrong type":         {"type = number", "v = [1]", "", "does not match its type number"},
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

// The file watcher needs all files that were read, and those that were missing. An existing file that is only passed to
// fileexists was not read.
func TestNamedFilesAreTold(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"job.hcl":    use("a", "./a") + "locals {\n  there = [fileexists(\"none.txt\"), fileexists(\"log\")]\n  lacks = try(file(\"gone.txt\"), \"\")\n  twice = [file(\"/dev/null/no\"), file(\"t.txt\"), file(\"t.txt\")]\n}\n",
		"a/main.hcl": inJob("") + "locals {\n  t = templatefile(\"../lib/t.tmpl\", {})\n}\n",
		"lib/t.tmpl": "text", "t.txt": "text", "log": "", "more.vars": "",
	})
	o := options()
	o.Assignments = []Assignment{{File: filepath.Join(dir, "more.vars")}}
	cfg, _ := Load(dir, o)
	want := []string{"/dev/null/no"}
	for _, name := range []string{"gone.txt", "lib/t.tmpl", "more.vars", "none.txt", "t.txt"} {
		want = append(want, filepath.Join(dir, name))
	}
	if diff := cmp.Diff(want, cfg.Named); diff != "" {
		t.Error(diff)
	}
}

// The file watcher needs every directory, each once.
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

// A mistake in a module that is used many times is reported once.
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

// Conditions on invalid values are not reported in addition.
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

// A renamed module keeps its jobs, through chains of renames of the module and of the jobs in it.
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

// A removed block can name a module like a job, unless the module is still declared or its name is ambiguous.
func TestRemovedModules(t *testing.T) {
	const removed = "removed {\n  from    = module.x\n  destroy = false\n}\n"
	module := map[string]string{"m/main.hcl": inJob("") + use("deep", "../d"), "d/main.hcl": inJob("")}
	for name, c := range map[string]struct{ files, want, err string }{
		"gone":             {inJob("") + removed, "module.x: x-", ""},
		"one key":          {"module \"x\" {\n  source   = \"./m\"\n  for_each = toset([\"b\"])\n}\nremoved {\n  from = module.x[\"a\"]\n}\n", `module.x["a"]: x-a-`, ""},
		"in a module":      {use("y", "./m") + "removed {\n  from = module.y.module.gone\n}\n", "module.y.module.gone: y-gone-", ""},
		"still there":      {use("x", "./m") + removed, "", "Removed module still exists: module.x is still declared, at"},
		"key still there":  {"module \"x\" {\n  source   = \"./m\"\n  for_each = toset([\"b\"])\n}\nremoved {\n  from = module.x[\"b\"]\n}\n", "", "Remove its key from the module's for_each"},
		"empty but there":  {"module \"x\" {\n  source   = \"./m\"\n  for_each = {}\n}\n" + removed, "", "Removed module still exists"},
		"inner one there":  {use("y", "./m") + "removed {\n  from = module.y.module.deep\n}\n", "", "Removed module still exists: module.y.module.deep is still declared"},
		"a namesake":       {strings.ReplaceAll(inJob(""), `"j"`, `"x-other"`) + removed, "", `Ambiguous name of a removed module's job: job.x-other, at`},
		"namesake module":  {use("x-y", "./m") + removed, "", `Ambiguous name of a removed module's job: module.x-y.module.deep.job.j, at`},
		"moved":            {use("z", "./m") + "moved {\n  from = module.x\n  to = module.z\n}\n" + removed, "", "Removed module was moved: module.x becomes module.z"},
		"one moved out":    {inJob("") + "moved {\n  from = module.x.job.a\n  to   = job.j\n}\n" + removed, "module.x: x-", ""},
		"twice":            {inJob("") + removed + removed, "", "Duplicate removed block: There is already one for module.x"},
		"one of its jobs":  {inJob("") + removed + "removed {\n  from = module.x[\"a\"].job.j\n}\n", "", `module.x["a"].job.j is in module.x, which already has one`},
		"one of its keys":  {inJob("") + "removed {\n  from = job.x\n}\nremoved {\n  from = job.x[\"a\"]\n}\n", "", `job.x["a"] is in job.x, which already has one`},
		"one of many keys": {inJob("") + "removed {\n  from = module.x.job.y\n}\nremoved {\n  from = module.x[\"a\"].job.y[\"b\"]\n}\n", "", `module.x["a"].job.y["b"] is in module.x.job.y, which already has one`},
		"keys beside":      {inJob("") + "removed {\n  from = module.x[\"a\"].job.y\n}\nremoved {\n  from = module.x.job.y[\"b\"]\n}\n", `module.x["a"].job.y: `, ""},
		"all keys gone":    {inJob("") + "removed {\n  from = job.x\n}\n", "job.x: ", ""},
		"keys of a job":    {strings.Replace(inJob("for_each = toset([\"a\", \"b\"])"), `"j"`, `"x"`, 1) + "removed {\n  from = job.x\n}\n", "", `Removed job still exists: job.x["a"] is still declared`},
		"other keys":       {strings.Replace(inJob("for_each = toset([\"a\", \"b\"])"), `"j"`, `"x"`, 1) + "removed {\n  from = job.x[\"c\"]\n}\n", `job.x["c"]: `, ""},
		"keys of a module": {"module \"x\" {\n  source   = \"./m\"\n  for_each = toset([\"a\"])\n}\nremoved {\n  from = module.x.job.j\n}\n", "", `Removed job still exists: module.x["a"].job.j is still declared`},
		"of a module":      {"module \"x\" {\n  source   = \"./m\"\n  for_each = toset([\"a\"])\n}\nremoved {\n  from = module.x.job.gone\n}\n", "module.x.job.gone: ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			files := maps.Clone(module)
			files["job.hcl"] = c.files
			dir := writeTree(t, files)
			if c.err != "" {
				wantOne(t, dir, c.err)
				return
			}
			cfg, diags := Load(dir, options())
			if len(diags) > 0 || cfg.Removed[0].Address+": "+cfg.Removed[0].Module != c.want {
				t.Errorf("removed is %+v\n%s", cfg.Removed, render(cfg, diags))
			}
		})
	}
}

// Every job has its address, in the form that removed blocks use.
func TestJobsKnowTheirAddresses(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"job.hcl": inJob("") + strings.Replace(inJob("for_each = toset([\"a\"])"), `"j"`, `"k"`, 1) +
			"module \"x\" {\n  source   = \"./m\"\n  for_each = toset([\"b\"])\n}\n",
		"m/main.hcl": inJob("") + use("deep", "../d"), "d/main.hcl": inJob("for_each = toset([\"c\"])"),
	})
	cfg, diags := Load(dir, options())
	if len(diags) > 0 {
		t.Fatal(render(cfg, diags))
	}
	got := map[string]string{}
	for _, j := range cfg.Jobs {
		got[j.Name] = j.Address
	}
	want := map[string]string{"j": "job.j", "k-a": `job.k["a"]`, "x-b-j": `module.x["b"].job.j`, "x-b-deep-j-c": `module.x["b"].module.deep.job.j["c"]`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Moving a block with for_each moves all its instances, as in Terraform: each keeps its key.
func TestMovedWithAllKeys(t *testing.T) {
	moved := func(from, to string) string { return fmt.Sprintf("moved {\n  from = %s\n  to   = %s\n}\n", from, to) }
	dir := writeTree(t, map[string]string{
		"job.hcl": strings.Replace(inJob("for_each = toset([\"a\", \"b\"])"), `"j"`, `"new"`, 1) +
			"module \"n\" {\n  source   = \"./m\"\n  for_each = toset([\"k\"])\n}\n" +
			moved("job.older", "job.old") + moved("job.old", "job.new") + moved("module.o", "module.n") + moved(`job.single`, `job.new["a"]`) + moved("job.loose", `module.n["k"].job.j`) + moved("module.q.job.j", `job.new["b"]`),
		"m/main.hcl": inJob(""),
	})
	cfg, diags := Load(dir, options())
	if len(diags) > 0 {
		t.Fatal(render(cfg, diags))
	}
	got := map[string]string{}
	for _, m := range cfg.Moved {
		got[m.From] = m.To
	}
	for _, block := range []string{"old", "older"} {
		delete(got, block) // the block without a key, which may have existed
	}
	want := map[string]string{"old-a": "new-a", "old-b": "new-b", "older-a": "new-a", "older-b": "new-b", "o-k-j": "n-k-j", "single": "new-a", "loose": "n-k-j", "q-j": "new-b"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A moved block may omit the key of any module around the job.
func TestMovedWithAllKeysOfModules(t *testing.T) {
	each := func(name, source string) string {
		return fmt.Sprintf("module %q {\n  source   = %q\n  for_each = toset([\"k\", \"l\"])\n}\n", name, source)
	}
	keyed := inJob("for_each = toset([\"a\"])")
	for name, c := range map[string]struct {
		job, m, from, to string
		want             map[string]string
	}{
		"of the module":       {each("z", "./m"), inJob(""), "module.x.job.j", "module.z.job.j", map[string]string{"x-k-j": "z-k-j", "x-l-j": "z-l-j"}},
		"of both":             {each("z", "./m"), keyed, "module.x.job.i", "module.z.job.j", map[string]string{"x-k-i-a": "z-k-j-a", "x-l-i-a": "z-l-j-a"}},
		"of the job alone":    {each("z", "./m"), keyed, `module.x["k"].job.i`, `module.z["l"].job.j`, map[string]string{"x-k-i-a": "z-l-j-a"}},
		"of the module alone": {each("z", "./m"), keyed, `module.x.job.i["q"]`, `module.z.job.j["a"]`, map[string]string{"x-k-i-q": "z-k-j-a", "x-l-i-q": "z-l-j-a"}},
		"into a module":       {use("z", "./m"), keyed, "job.i", "module.z.job.j", map[string]string{"i-a": "z-j-a"}},
		"out of a module":     {strings.Replace(keyed, `"j"`, `"new"`, 1), keyed, "module.x.job.j", "job.new", map[string]string{"x-j-a": "new-a"}},
		"of an outer module":  {each("z", "./m"), use("y", "../d"), "module.x.module.w", "module.z.module.y", map[string]string{"x-k-w-j": "z-k-y-j", "x-l-w-j": "z-l-y-j"}},
		"by way of another": {each("z", "./m") + "moved {\n  from = module.v.job.h\n  to   = module.x.job.i\n}\n", inJob(""), "module.x.job.i", "module.z.job.j",
			map[string]string{"v-k-h": "z-k-j", "v-l-h": "z-l-j", "x-k-i": "z-k-j", "x-l-i": "z-l-j"}},
		// It is ambiguous which of the two it becomes.
		"of nothing": {each("z", "./m"), inJob(""), "job.j", "module.z.job.j", map[string]string{}},
		"of another": {each("z", "./m"), inJob(""), `module.x["k"].job.j`, "module.z.job.j", map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeTree(t, map[string]string{
				"job.hcl":    c.job + fmt.Sprintf("moved {\n  from = %s\n  to   = %s\n}\n", c.from, c.to),
				"m/main.hcl": c.m, "d/main.hcl": inJob(""),
			})
			cfg, diags := Load(dir, options())
			if len(diags) > 0 {
				t.Fatal(render(cfg, diags))
			}
			got, declared := map[string]string{}, map[string]bool{}
			for _, j := range cfg.Jobs {
				declared[j.Name] = true
			}
			for _, m := range cfg.Moved {
				if declared[m.To] { // not the block without a key, which may have existed
					got[m.From] = m.To
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A removed block with destroy = false also covers the addresses that moved blocks moved away from: the instances of a
// for_each block that is no longer declared are not known otherwise.
func TestRemovedAfterMoved(t *testing.T) {
	moved := func(from, to string) string { return fmt.Sprintf("moved {\n  from = %s\n  to   = %s\n}\n", from, to) }
	long := strings.Repeat("j", 57) // with the prefix "b-x-y-" it has the maximum length of a name
	for name, c := range map[string]struct{ moved, from, was string }{
		"a job":                    {moved("job.ev", "job.ev2"), "job.ev2", "ev job.ev"},
		"by way of others":         {moved("job.ev", "job.ev1") + moved("job.ev1", "job.ev2"), "job.ev2", "ev1 job.ev1, ev job.ev"},
		"one key":                  {moved("job.ev", "job.ev2"), `job.ev2["a"]`, `ev-a job.ev["a"]`},
		"into one key":             {moved("job.ev", `job.ev2["a"]`), "job.ev2", `ev2-a job.ev2["a"], ev job.ev`},
		"another key":              {moved("job.ev", `job.ev2["a"]`), `job.ev2["b"]`, ""},
		"a module":                 {moved("module.a", "module.b"), "module.b", "a- module.a"},
		"a module's job":           {moved("module.a", "module.b"), `module.b.job.ev["k"]`, `a-ev-k module.a.job.ev["k"]`},
		"a job that went into one": {moved("job.ev", "module.b.job.ev2"), "module.b", "b-ev2 module.b.job.ev2, ev job.ev"},
		"a module's, of its keys":  {moved("module.a", `module.b["k"]`), "module.b.job.ev", `b-k-ev module.b["k"].job.ev, a-ev module.a.job.ev`},
		"something else":           {moved("job.ev", "job.ev3") + moved("module.a", "module.c"), "job.ev2", ""},
		"what goes on as another":  {moved("job.ev", "job.ev2") + moved(`job.ev["a"]`, "job.j"), `job.ev2["a"]`, ""},
		"rounds that grow":         {moved("module.b.module.x", "module.b"), "module.b.module.y.job." + long, "b-x-y-" + long + " module.b.module.x.module.y.job." + long},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeTree(t, map[string]string{"job.hcl": inJob("") + c.moved + fmt.Sprintf("removed {\n  from    = %s\n  destroy = false\n}\n", c.from)})
			cfg, diags := Load(dir, options())
			if len(diags) > 0 || len(cfg.Removed) != 1 {
				t.Fatal(render(cfg, diags))
			}
			var was []string
			for _, r := range cfg.Removed[0].Was {
				if r.Destroy || r.Source != cfg.Removed[0].Source || (r.Job == "") == (r.Module == "") {
					t.Errorf("it was %+v", r)
				}
				was = append(was, r.Job+r.Module+" "+r.Address)
			}
			if got := strings.Join(was, ", "); got != c.was {
				t.Errorf("it was %q, want %q", got, c.was)
			}
			destroyed := writeTree(t, map[string]string{"job.hcl": inJob("") + c.moved + fmt.Sprintf("removed {\n  from = %s\n}\n", c.from)})
			if cfg, _ := Load(destroyed, options()); len(cfg.Removed) != 1 || cfg.Removed[0].Was != nil {
				t.Errorf("ended are %+v", cfg.Removed)
			}
		})
	}
}

// The error about an address without a key shows the correct form, and a misspelled one gets a suggestion; an invalid key is
// reported once.
func TestMistakesInAddresses(t *testing.T) {
	repeated := strings.Replace(inJob("for_each = toset([\"a\", \"b\"])"), `"j"`, `"train"`, 1)
	within := "module \"x\" {\n  source   = \"./m\"\n  for_each = toset([\"k\"])\n}\n"
	importTo := func(to string) string { return fmt.Sprintf("import {\n  to = %s\n  id = \"1\"\n}\n", to) }
	for name, c := range map[string]struct{ files, want string }{
		"no key":              {repeated + importTo("job.train"), `Import to an undeclared job: job.train stands for all instances of for_each: write the key of one, as in job.train["a"].`},
		"no key, of a slot":   {repeated + importTo("job.train.worker[0]"), `as in job.train["a"].`},
		"no key, of a module": {within + importTo("module.x.job.j"), `as in module.x["k"].job.j.`},
		"a slip":              {repeated + importTo(`job.tarin["b"]`), `job.tarin["b"] is not declared. Did you mean job.train["b"]? Declare it`},
		"another key":         {repeated + importTo(`job.train["z"]`), `job.train["z"] is not declared. Did you mean job.train["a"]?`},
		"something else":      {repeated + importTo("job.other"), "job.other is not declared. Declare it"},
		"each, in moved":      {inJob("") + "moved {\n  from = job.a\n  to   = job.b[each.key]\n}\n", "each"},
		"each, in removed":    {inJob("") + "removed {\n  from = module.a[each.key].job.b\n}\n", "each"},
	} {
		t.Run(name, func(t *testing.T) {
			wantOne(t, writeTree(t, map[string]string{"job.hcl": c.files, "m/main.hcl": inJob("")}), c.want)
		})
	}
}

// Moves of a module into itself, which could be followed back without end, exceed the budget quickly.
func TestMovesThatGrowAreTooMuch(t *testing.T) {
	wantOne(t, writeTree(t, map[string]string{"job.hcl": inJob("") +
		"moved {\n  from = module.b.module.x\n  to = module.b\n}\nmoved {\n  from = module.b.module.y\n  to = module.b\n}\nremoved {\n  from = module.b\n  destroy = false\n}\n"}),
		"Too much to evaluate")
}
