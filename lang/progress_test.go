package lang

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A job's own recognizers are in a file beside the declaration, as any text can be.
func TestRecognizersOfAFile(t *testing.T) {
	const recognizers = `[{"name": "mine", "patterns": ["at (?P<step>\\d+)"], "samples": [{"lines": ["at 7"], "reading": {"step": 7}}]}]`
	dir := writeTree(t, map[string]string{
		"job.hcl": `
module "m" { source = "./m" }
`,
		"m/job.hcl": `
job "a" {
  role "w" { command = ["x"] }
  progress { recognizers = file("recognizers.json") }
}
`,
		"m/recognizers.json": recognizers,
	})
	c, diags := Load(dir, Options{})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	if got := c.Jobs[0].Progress.Recognizers; got != recognizers {
		t.Errorf("the recognizers are %q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "m", "recognizers.json"), []byte("["), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, diags := Load(dir, Options{}); !strings.Contains(diags.Error(), "Invalid recognizers") {
		t.Errorf("half a list: %v", diags)
	}
}
