package lang

import (
	"reflect"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/job"
)

func TestFormat(t *testing.T) {
	tests := map[string][2]string{
		"aligns":       {"job \"a\" {\nprovider=\"local\"\n  priority =  1\n}", "job \"a\" {\n  provider = \"local\"\n  priority = 1\n}\n"},
		"line ends":    {"a = 1\r\nb = 2\r\n", "a = 1\nb = 2\n"},
		"order mark":   {"\xef\xbb\xbfa = 1\n", "a = 1\n"},
		"comments":     {"a=1 # one\n// two\n", "a = 1 # one\n// two\n"},
		"heredoc":      {"a = <<E\n  x   y\nE\n", "a = <<E\n  x   y\nE\n"},
		"empty":        {"", ""},
		"already done": {"a = 1\n", "a = 1\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, diags := Format([]byte(tt[0]), "x.hcl")
			if diags.HasErrors() {
				t.Fatal(diags)
			}
			if string(got) != tt[1] {
				t.Errorf("got  %q\nwant %q", got, tt[1])
			}
		})
	}
	for _, src := range []string{"job {", "a = ", "a = \"${\"", strings.Repeat("(", 10_000)} {
		if out, diags := Format([]byte(src), "x.hcl"); !diags.HasErrors() || out != nil {
			t.Errorf("a syntax error was not rejected: %.20q", src)
		}
	}
}

// TestReference checks that every argument of the language is in its reference, with type and default.
func TestReference(t *testing.T) {
	text := referenceOf(options().Providers)
	for _, want := range []string{
		"### job > role > scaling\n", "### eltrain > service\n", "### variable > validation\n", "### provider \"local\" > node\n",
		"| `replicas` | whole number | `1` | in place |", "| `stop_grace` | duration | `\"30s\"` | replaces slots |",
		"| `depends_on` | list of role.NAME |", "| `command` | list of string | required |", "May refer to `slot`.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing from the reference", want)
		}
	}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for _, f := range job.Fields(typ) {
			if f.Doc == "" {
				t.Errorf("%s.%s has no doc", typ, f.Name)
			}
			if !strings.Contains(text, "| `"+f.Name+"` |") {
				t.Errorf("%s of %s is missing from the reference", f.Name, typ)
			}
			if f.Kind == job.Block {
				walk(f.ElemType())
			}
		}
	}
	walk(reflect.TypeFor[job.Job]())
	walk(reflect.TypeFor[Settings]())
}
