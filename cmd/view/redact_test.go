package view

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/job"
)

func hiding(secrets ...string) *Redactor { return NewRedactor([]job.Job{{Secrets: secrets}}) }

// The seals of values that are not kept are hidden too, even by a Redactor that knows no values.
func TestSealsAreHidden(t *testing.T) {
	s := new(job.Sealer)
	s.SetKey([]byte("k"))
	sealed := s.Jobs([]job.Job{{Roles: []job.Role{{Program: job.Program{Command: []string{"--t=hunter2"}}}}, Secrets: []string{"hunter2"}}})[0].Roles[0].Command[0]
	r := new(Redactor)
	if got := r.Text(sealed); got != "--t=(sensitive value)" {
		t.Errorf("%q is shown as %q", sealed, got)
	}
	if got := r.Value(sealed); got != sensitive {
		t.Errorf("as an attribute it is %q", got)
	}
	// Two different seals look the same, but are a change anyway: the model compares before it hides.
	if strings.Contains(r.Text(sealed), "hunter2") || strings.Contains(r.Text(sealed), sealed[len(sealed)-10:]) {
		t.Error("a part of it is shown")
	}
}

func TestLogsHideSecretsHoweverTheyAreQuoted(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(hiding("hunter2hunter2", "pass \"word\"", "a\nsecond line").Writer(&out), nil))
	log.Info("token hunter2hunter2", "env", "T=hunter2hunter2", "quoted", `say pass "word" now`, "lines", "a\nsecond line", "error", "got second line")
	for _, secret := range []string{"hunter2", "word", "second line"} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%q is in %s", secret, &out)
		}
	}
	if strings.Count(out.String(), "\n") != 1 {
		t.Errorf("a record is not one line: %q", &out)
	}
}

// In a quoted line each byte of a secret becomes an asterisk, so that the underlined columns stay in place.
// A terminal carries out no command of a training program; a pipe gets the program's own bytes.
func TestOutputOnATerminalIsDisplayable(t *testing.T) {
	for text, want := range map[string]string{
		"plain\té\n":                        "plain\té\n",
		"\x1b[1;31mred\x1b[0m\n":            "red\n",
		"\x1b[31mhun\x1b[mter2hunter2\n":    sensitive + "\n",
		"\x1b]52;c;cm0gLXJmIH4=\a\n":        `\x1b]52;c;cm0gLXJmIH4=\a` + "\n",
		"\x1b[2J\x1b[8mx\n":                 `\x1b[2Jx` + "\n",
		"\u009b31m\x9b31m\u0085\n":          `\u009b31m` + "\uFFFD" + `31m\u0085` + "\n",
		"a\u202eb\u2066c\u2069d\u202c\n":    `a\u202eb\u2066c\u2069d\u202c` + "\n",
		"שלום \U0001F468\u200d\U0001F469\n": "שלום \U0001F468\u200d\U0001F469\n",
	} {
		var terminal, pipe strings.Builder
		r := hiding("hunter2hunter2")
		for _, w := range []io.Writer{r.Output(Screen{Writer: &terminal, Terminal: true}), r.Output(Screen{Writer: &pipe})} {
			if _, err := io.WriteString(w, text); err != nil {
				t.Fatal(err)
			}
		}
		if terminal.String() != want || pipe.String() != text {
			t.Errorf("%q: a terminal gets %q, a pipe %q", text, terminal.String(), pipe.String())
		}
	}
}

// A checkout can have any file names and texts.
func TestDiagnosticsAreDisplayable(t *testing.T) {
	evil := "a\x1b]52;c;eA==\a\u202e\u009b"
	var out strings.Builder
	WriteDiagnostics(Screen{Writer: &out}, []Diagnostic{{
		Severity: severityError, Summary: evil, Detail: evil, Range: &Range{Filename: evil + ".hcl", Start: Position{Line: 2, Byte: 9}},
		Snippet: &Snippet{Code: evil, StartLine: 2, Start: 1, End: 3, Values: []ExpressionValue{{"var.x", evil}}},
	}})
	if at := strings.IndexFunc(out.String(), func(r rune) bool { return !job.Displayable(r) }); at >= 0 {
		t.Errorf("%q", out.String())
	}
}

func TestDiagnosticsHideSecrets(t *testing.T) {
	code := `  default = "hunter2hunter2" + x`
	d := Diagnostic{Summary: "bad hunter2hunter2", Detail: "hunter2hunter2 is wrong", Snippet: &Snippet{Code: code, Start: 31, End: 32,
		Values: []ExpressionValue{{"var.x", `is "hunter2hunter2"`}}}}
	got := hiding("hunter2hunter2").Diagnostics([]Diagnostic{d})[0]
	if got.Summary != "bad (sensitive value)" || got.Detail != "(sensitive value) is wrong" || got.Snippet.Values[0].Statement != `is "(sensitive value)"` {
		t.Errorf("shown is %+v %+v", got, *got.Snippet)
	}
	if want := strings.ReplaceAll(code, "hunter2hunter2", "**************"); got.Snippet.Code != want {
		t.Errorf("the line is %q, want %q", got.Snippet.Code, want)
	}
	if d.Snippet.Code != code {
		t.Error("the diagnostic that was given was changed")
	}
}
