package view

import (
	"bytes"
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
