package lang

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
)

// TestPrecedence sets one variable in every possible way and removes them one by one, strongest first.
func TestPrecedence(t *testing.T) {
	const src = `
variable "x" { default = "default" }
job "j" {
  role "w" { command = [var.x] }
}`
	files := map[string][]byte{
		"job.hcl":      []byte(src),
		"eltrain.vars": []byte(`x = "eltrain.vars"`),
		"a.auto.vars":  []byte(`x = "a.auto.vars"`),
		"b.auto.vars":  []byte(`x = "b.auto.vars"`),
		"first.vars":   []byte(`x = "first.vars"`),
	}
	env := []string{"ELTRAIN_VAR_x=environment"}
	file := Assignment{File: "first.vars"}
	flag := Assignment{Name: "x", Value: "-var"}
	tests := []struct {
		want    string
		assign  []Assignment
		without []string
		env     []string
	}{
		{"-var", []Assignment{file, flag}, nil, env},
		{"first.vars", []Assignment{flag, file}, nil, env},
		{"second", []Assignment{flag, {Name: "x", Value: "second"}}, nil, env},
		{"b.auto.vars", nil, nil, env},
		{"a.auto.vars", nil, []string{"b.auto.vars"}, env},
		{"eltrain.vars", nil, []string{"b.auto.vars", "a.auto.vars"}, env},
		{"environment", nil, []string{"b.auto.vars", "a.auto.vars", "eltrain.vars"}, env},
		{"default", nil, []string{"b.auto.vars", "a.auto.vars", "eltrain.vars"}, nil},
		// A file that is read automatically is read in the order of the flags if a flag names it.
		{"a.auto.vars", []Assignment{{File: "a.auto.vars"}}, nil, env},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			in := map[string][]byte{}
			for name, src := range files {
				in[name] = src
			}
			for _, name := range tt.without {
				delete(in, name)
			}
			o := options()
			o.Assignments, o.Environ = tt.assign, tt.env
			cfg, diags := Parse(in, o)
			if len(diags) > 0 {
				t.Fatal(render(cfg, diags))
			}
			if got := cfg.Jobs[0].Roles[0].Command[0]; got != tt.want {
				t.Errorf("x = %q, want %q", got, tt.want)
			}
		})
	}
}

func withVars(t *testing.T, decl string, assign ...Assignment) (*Config, hcl.Diagnostics) {
	t.Helper()
	o := options()
	for _, a := range assign {
		a.From = "-var"
		o.Assignments = append(o.Assignments, a)
	}
	return Parse(map[string][]byte{"job.hcl": []byte(decl)}, o)
}

func TestVariableTypes(t *testing.T) {
	const use = "\njob \"j\" {\n  role \"w\" { command = [jsonencode(var.x)] }\n}\n"
	tests := []struct{ name, decl, value, want, err string }{
		{"string as it is", `variable "x" { type = string }`, `a "b" ${c}`, `"a \"b\" ${c}"`, ""},
		{"no type is literal", `variable "x" {}`, `[1]`, `"[1]"`, ""},
		{"number", `variable "x" { type = number }`, "4", "4", ""},
		{"bool", `variable "x" { type = bool }`, "true", "true", ""},
		{"wrong number", `variable "x" { type = number }`, "four", "", "a number is required"},
		{"list", `variable "x" { type = list(string) }`, `["a", "b"]`, `["a","b"]`, ""},
		{"any is an expression", `variable "x" { type = any }`, `{ a = 1 }`, `{"a":1}`, ""},
		{"object with optional", `variable "x" { type = object({ a = string, b = optional(number, 3), c = optional(string) }) }`, `{ a = "x" }`, `{"a":"x","b":3,"c":null}`, ""},
		{"object without what it needs", `variable "x" { type = object({ a = string }) }`, `{}`, "", `attribute "a" is required`},
		{"deep", `variable "x" { type = list(object({ n = number })) }`, `[{ n = 1 }, { n = "x" }]`, "", "[1].n: a number is required"},
		{"not constant", `variable "x" { type = list(string) }`, `[foo]`, "", "A string must be quoted"},
		{"syntax", `variable "x" { type = list(string) }`, `[`, "", "-var x"},
		{"bad type", `variable "x" { type = strin }`, "a", "", "strin"},
		{"null", "variable \"x\" {\n  type = list(string)\n  nullable = false\n}", "null", "", "must not be null"},
		{"null means default", "variable \"x\" {\n  type = list(string)\n  nullable = false\n  default = [\"d\"]\n}", "null", `["d"]`, ""},
		{"null stays null", "variable \"x\" {\n  type = list(string)\n  default = [\"d\"]\n}", "null", `null`, ""},
		{"rule kept", "variable \"x\" {\n  type = number\n  validation {\n    condition = var.x > 2\n    error_message = \"More than 2, not ${var.x}.\"\n  }\n}", "3", "3", ""},
		{"rule broken", "variable \"x\" {\n  type = number\n  validation {\n    condition = var.x > 2\n    error_message = \"More than 2, not ${var.x}.\"\n  }\n}", "2", "", "More than 2, not 2."},
		{"second rule broken", "variable \"x\" {\n  type = number\n  validation {\n    condition = true\n    error_message = \"First.\"\n  }\n  validation {\n    condition = var.x != 2\n    error_message = \"Second.\"\n  }\n}", "2", "", "Second."},
		{"rule with unknown name", "variable \"x\" {\n  validation {\n    condition = var.y > 2\n    error_message = \"No.\"\n  }\n}", "2", "", `There is no variable "y"`},
		{"rule is no bool", "variable \"x\" {\n  validation {\n    condition = [var.x]\n    error_message = \"No.\"\n  }\n}", "2", "", "The condition must be true or false"},
		{"default refers", "variable \"x\" { default = var.y }", "2", `"2"`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg, diags := withVars(t, tt.decl+use, Assignment{Name: "x", Value: tt.value})
			if tt.err != "" {
				if text := render(cfg, diags); !diags.HasErrors() || !strings.Contains(text, tt.err) {
					t.Fatalf("want an error with %q, got:\n%s", tt.err, text)
				}
				return
			}
			if diags.HasErrors() {
				t.Fatal(render(cfg, diags))
			}
			if got := cfg.Jobs[0].Roles[0].Command[0]; got != tt.want {
				t.Errorf("x = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestDefaultMustBeConstant(t *testing.T) {
	text := mustFail(t, "variable \"y\" { default = 1 }\nvariable \"x\" { default = var.y }\n"+inJob(""))
	if !strings.Contains(text, "must be a constant") {
		t.Error(text)
	}
}

func TestUndeclaredVariables(t *testing.T) {
	src := "variable \"image\" { default = \"x\" }\n" + inJob("")
	cfg, diags := withVars(t, src, Assignment{Name: "imag", Value: "y"})
	if text := render(cfg, diags); !diags.HasErrors() || !strings.Contains(text, `Did you mean "image"?`) {
		t.Errorf("-var of an undeclared variable must be an error with a suggestion, got:\n%s", text)
	}

	cfg, diags = Parse(map[string][]byte{"job.hcl": []byte(src), "eltrain.vars": []byte("imag = 1\n")}, options())
	if text := render(cfg, diags); diags.HasErrors() || len(diags) != 1 || !strings.Contains(text, `Did you mean "image"?`) {
		t.Errorf("an undeclared variable in a file must be one warning with a suggestion, got:\n%s", text)
	}

	o := options()
	o.Environ = []string{"ELTRAIN_VAR_other=1"}
	if cfg, diags := Parse(map[string][]byte{"job.hcl": []byte(src)}, o); len(diags) > 0 {
		t.Errorf("the environment may set variables of other directories, got:\n%s", render(cfg, diags))
	}
}

func TestSensitive(t *testing.T) {
	src := `
variable "token" {
  sensitive = true
}
variable "keys" {
  type      = map(string)
  sensitive = true
  default   = { a = "k1-secret", b = "k2-unused" }
}
job "j" {
  role "w" {
    command = ["run", "--token=${var.token}"]
    env = {
      KEY    = var.keys.a
      HASH   = sha256(var.token)
      PLAIN  = "plain"
      OPENED = nonsensitive(var.keys.b)
      OWN    = sensitive("own-secret")
    }
  }
}`
	cfg, diags := withVars(t, src, Assignment{Name: "token", Value: "hunter2"})
	if len(diags) > 0 {
		t.Fatal(render(cfg, diags))
	}
	j := cfg.Jobs[0]
	if got := j.Roles[0].Command[1]; got != "--token=hunter2" {
		t.Errorf("the program must get the secret itself, got %q", got)
	}
	have := map[string]bool{}
	for _, s := range j.Secrets {
		have[s] = true
	}
	hash := j.Roles[0].Env["HASH"]
	for _, want := range []string{"hunter2", "--token=hunter2", "k1-secret", hash, "own-secret"} {
		if !have[want] {
			t.Errorf("Secrets = %q, without %q", j.Secrets, want)
		}
	}
	for _, not := range []string{"plain", "run", "k2-unused"} {
		if have[not] {
			t.Errorf("Secrets has %q", not)
		}
	}
	for name, f := range cfg.Files {
		if strings.Contains(string(f.Bytes), "hunter2") {
			t.Errorf("%s holds the secret, where a snippet would show it", name)
		}
	}
}

// TestErrorsKeepSecrets checks that no diagnostic quotes a sensitive value.
func TestErrorsKeepSecrets(t *testing.T) {
	const secret = "hunter2"
	decl := "variable \"s\" {\n  sensitive = true\n%RULE%}\n"
	tests := map[string]string{
		"unit":      inRole(`stop_grace = var.s`),
		"number":    inRole(`replicas = var.s`),
		"in string": inRole(`stop_grace = "${var.s}x"`),
		"for_each":  "job \"j\" {\n  dynamic \"role\" {\n    for_each = [var.s]\n    labels = [role.value]\n    content {\n      command = [\"x\"]\n    }\n  }\n}\n",
		"per slot":  inRole(`env = { A = ["${var.s}${slot.index}"] }`),
		"call":      inRole(`replicas = parseint(var.s, 10)`),
	}
	for name, src := range tests {
		t.Run(name, func(t *testing.T) {
			cfg, diags := withVars(t, strings.ReplaceAll(decl, "%RULE%", "")+src, Assignment{Name: "s", Value: secret})
			text := render(cfg, diags)
			if !diags.HasErrors() || strings.Contains(text, secret) {
				t.Errorf("want errors without the secret, got:\n%s", text)
			}
		})
	}
	rule := "  validation {\n    condition = var.s == \"x\"\n    error_message = \"Not ${var.s}.\"\n  }\n"
	cfg, diags := withVars(t, strings.ReplaceAll(decl, "%RULE%", rule)+inJob(""), Assignment{Name: "s", Value: secret})
	if text := render(cfg, diags); !diags.HasErrors() || strings.Contains(text, secret) {
		t.Errorf("rule: want errors without the secret, got:\n%s", text)
	}
	typed := strings.ReplaceAll(decl, "%RULE%", "  type = number\n")
	cfg, diags = withVars(t, typed+inJob(""), Assignment{Name: "s", Value: secret})
	if text := render(cfg, diags); !diags.HasErrors() || strings.Contains(text, secret) {
		t.Errorf("type: want errors without the secret, got:\n%s", text)
	}
}

// TestNoFileOfVariablesIsQuoted checks that diagnostics show only positions in variables files: if one does not parse, or
// misspells a name, it is unknown what in it is sensitive. Sensitive defaults and module arguments that do not fit are not
// quoted either.
func TestNoFileOfVariablesIsQuoted(t *testing.T) {
	const secret = "hunter2"
	decl := "variable \"token\" {\n  sensitive = true\n  type      = object({ key = string })\n%MORE%}\nvariable \"n\" {\n  type    = number\n  default = 1\n}\n"
	plain := strings.ReplaceAll(decl, "%MORE%", "")
	for name, c := range map[string]struct{ job, vars, want string }{
		"another type":      {plain, "# first\ntoken = \"hunter2\"\n", "eltrain.vars:2"},
		"an object":         {plain, "token = { kye = \"hunter2\" }\n", "eltrain.vars:1"},
		"several lines":     {plain, "token = {\n  kye = \"hunter2\"\n}\n", "eltrain.vars:1"},
		"an undeclared one": {plain, "token = { key = \"a\" }\ntokken = \"hunter2\"\n", "eltrain.vars:2"},
		"a syntax error":    {plain, "token = { key = \"hunter2\" \n", "eltrain.vars:"},
		"an open quote":     {plain, "token = { key = \"hunter2 }\n", "eltrain.vars:1"},
		"no quotes":         {plain, "token = hunter2\n", "eltrain.vars:1"},
		"a block":           {plain, "token \"hunter2\" {\n}\n", "eltrain.vars:1"},
		"twice":             {plain, "token = { key = \"a\" }\ntoken = { key = \"hunter2\" }\n", "eltrain.vars:2"},
		"one beside it":     {plain, "token = { key = \"hunter2\" }\nn = \"x\"\n", "eltrain.vars:2"},
		"on its line":       {plain, "n = { a = \"hunter2\" }\n", "eltrain.vars:1"},
		"a default":         {strings.ReplaceAll(decl, "%MORE%", "  default = \"hunter2\"\n"), "", "job.hcl:1"},
		"an argument":       {plain + "module \"m\" {\n  source = \"./m\"\n  token = \"hunter2\"\n}\n", "token = { key = \"a\" }\n", "job.hcl:9"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeTree(t, map[string]string{"job.hcl": c.job + inJob(""), "eltrain.vars": c.vars, "m/main.hcl": plain + inJob("")})
			cfg, diags := Load(dir, options())
			text := render(cfg, diags)
			if len(diags) == 0 || strings.Contains(text, secret) {
				t.Errorf("want diagnostics without the secret, got:\n%s", text)
			}
			for name, f := range cfg.Files {
				if isVars(baseName(name)) {
					t.Errorf("%s could be quoted: %s", name, f.Bytes)
				}
			}
			told := ""
			for _, d := range diags {
				told += fmt.Sprintf("%s:%d\n", baseName(d.Subject.Filename), d.Subject.Start.Line)
			}
			if !strings.Contains(told, c.want) {
				t.Errorf("the positions are %s, want %s", told, c.want)
			}
		})
	}
}

// Blocks that are stored unchanged take no sensitive value, at any depth. The error says where it is and what to do, and the
// decoded configuration does not contain the value.
func TestOnlyJobsTakeSensitiveValues(t *testing.T) {
	const secret = "hunter2"
	decl := "variable \"s\" {\n  sensitive = true\n}\n"
	for where, src := range map[string]string{
		`"labels" in a provider block`:    "provider \"local\" {\n  node \"n\" {\n    cpu    = 1\n    labels = { rack = \"a\", tok = \"x-${var.s}\" }\n  }\n}\n",
		`"namespace" in a provider block`: "provider \"kubernetes\" {\n  namespace = var.s\n}\n",
		`"path" in the eltrain block`:     "eltrain {\n  state \"file\" {\n    path = var.s\n  }\n}\n",
		`"listen" in the eltrain block`:   "eltrain {\n  service {\n    listen = \"${var.s}:1\"\n  }\n}\n",
	} {
		cfg, diags := withVars(t, decl+src, Assignment{Name: "s", Value: secret})
		text := render(cfg, diags)
		if !diags.HasErrors() || !strings.Contains(text, where) || !strings.Contains(text, "Use it in a job") || strings.Contains(text, secret) {
			t.Errorf("want an error about %s without the secret, got:\n%s", where, text)
		}
		if kept := fmt.Sprintf("%+v %+v", cfg.Settings, cfg.Providers); strings.Contains(kept, secret) {
			t.Errorf("%s: the secret was decoded: %s", where, kept)
		}
	}
	label := "provider \"local\" {\n  dynamic \"node\" {\n    for_each = [var.s]\n    labels   = [node.value]\n    content {\n      cpu = 1\n    }\n  }\n}\n"
	if cfg, diags := withVars(t, decl+label, Assignment{Name: "s", Value: secret}); !diags.HasErrors() || strings.Contains(render(cfg, diags), secret) {
		t.Errorf("a node's name: want an error without the secret, got:\n%s", render(cfg, diags))
	}
	mustParse(t, "provider \"local\" {\n  node \"n\" {\n    cpu    = 1\n    labels = { rack = nonsensitive(sensitive(\"r1\")) }\n  }\n}\n")
}
