package lang

import (
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fileBlock matches a code block of a multi-file example: its first line names the file.
var fileBlock = regexp.MustCompile("(?s)```hcl ([a-z./]+)\n(.*?)```")

// TestModulesInThePage loads the language page's example of a module verbatim.
func TestModulesInThePage(t *testing.T) {
	page, err := os.ReadFile("../docs/language.md")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, m := range fileBlock.FindAllStringSubmatch(string(page), -1) {
		files[m[1]] = m[2]
		if clean, _ := Format([]byte(m[2]), m[1]); string(clean) != m[2] {
			t.Errorf("%s is not in canonical format, which is\n%s", m[1], clean)
		}
	}
	cfg, diags := Load(writeTree(t, files), options())
	if len(diags) > 0 {
		t.Fatal(render(cfg, diags))
	}
	var names []string
	for _, j := range cfg.Jobs {
		names = append(names, j.Name)
	}
	if diff := cmp.Diff([]string{"bert-train", "region-eu-train", "region-us-train"}, names); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"workers": "10"}, outputTexts(t, cfg)); diff != "" {
		t.Error(diff)
	}
}
