package lang

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// seeds adds the golden cases, and inputs that have broken parsers before.
func seeds(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.hcl")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	f.Add([]byte(full))
	for _, bomb := range bombs {
		if len(bomb.src) < 4096 && bomb.want != "Too much to evaluate" {
			f.Add([]byte(bomb.src))
		}
	}
	f.Add([]byte("a = <<EOT\n%{ if true }${\"${1}\"}%{ endif }\nEOT\n"))
	f.Add([]byte("locals {\n  a = [for k, v in { x = 1 } : \"${k}${v}\" if v > 0]\n  b = local.a[*]\n}\n"))
	f.Add([]byte("job \"a\" {\n  dynamic \"role\" {\n    for_each = { x = 1 }\n    labels   = [role.key]\n    content {\n      command = [role.value, slot.index]\n    }\n  }\n}\n"))
	f.Add([]byte("\xef\xbb\xbflocals {\r\n  a = 1\r\n}\r\n"))
}

// FuzzParse checks that no input panics or takes long, and that errors always have a position and a text.
func FuzzParse(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		o := options()
		o.BaseDir = "testdata/nothing"
		l := newLoader(o)
		l.meter.limit = maxSteps / 10
		start := time.Now()
		cfg, diags := l.run(map[string][]byte{"job.hcl": src, "eltrain.vars": src})
		// Far above the time of the step budget, so that it does not fail on a loaded machine.
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("took %s", took)
		}
		for _, d := range diags {
			if d.Summary == "No configuration" {
				continue // a missing file has no position
			}
			if d.Subject == nil || d.Summary == "" || d.Detail == "" {
				t.Errorf("diagnostic without position or text: %#v", d)
			}
		}
		render(cfg, diags)
	})
}

// FuzzFormat checks that formatting is idempotent, changes no token, and rejects what does not parse.
func FuzzFormat(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		once, diags := Format(src, "x.hcl")
		if diags.HasErrors() {
			return
		}
		twice, diags := Format(once, "x.hcl")
		if diags.HasErrors() {
			t.Fatalf("the formatted text does not parse: %v\n%q\n%q", diags, src, once)
		}
		if !bytes.Equal(once, twice) {
			t.Errorf("not idempotent:\n%q\n%q\n%q", src, once, twice)
		}
		if a, b := tokens(src), tokens(once); a != b {
			t.Errorf("the tokens changed:\n%q\n%q", a, b)
		}
	})
}

// tokens returns the source without white space.
func tokens(src []byte) string {
	lexed, _ := hclsyntax.LexConfig(normalLines(src), "", hclInitial)
	var b strings.Builder
	for _, tok := range lexed {
		if tok.Type != hclsyntax.TokenNewline && tok.Type != hclsyntax.TokenComment {
			b.Write(bytes.TrimSpace(tok.Bytes))
			b.WriteByte(' ')
		}
	}
	return b.String()
}
