package lang

import (
	"fmt"
	"strings"
	"testing"
)

// A null of any type counts as omitted; for a required argument that is an error.
func TestNullOfAnotherTypeIsNothing(t *testing.T) {
	for _, null := range []string{"null", "tostring(null)", "tonumber(null)", "tobool(null)", "tolist(null)", "tomap(null)"} {
		for _, argument := range []string{"env", "image", "working_dir", "replicas"} {
			text := fmt.Sprintf("job \"a\" {\n  role \"w\" {\n    command = [\"x\"]\n    %s = %s\n  }\n}\n", argument, null)
			if _, diags := parseText(t, text); diags.HasErrors() {
				t.Errorf("%s = %s: %v", argument, null, diags)
			}
		}
		_, diags := parseText(t, fmt.Sprintf("job \"a\" {\n  role \"w\" {\n    command = %s\n  }\n}\n", null))
		if !diags.HasErrors() || !strings.Contains(diags.Error(), "it is required, and the value is null") {
			t.Errorf("command = %s: %v", null, diags)
		}
	}
}

func TestALineOfACommandIsWrittenAsAListOnlyIfThatIsTheSame(t *testing.T) {
	for line, want := range map[string]string{
		`python3 train.py`:            `write ["python3", "train.py"]`,
		`python3 -c 'import time; 1'`: "each word an item of its own",
		`echo $HOME`:                  "each word an item of its own",
		``:                            "each word an item of its own",
	} {
		_, diags := parseText(t, fmt.Sprintf("job \"a\" {\n  role \"w\" {\n    command = %q\n  }\n}\n", line))
		if !strings.Contains(diags.Error(), want) {
			t.Errorf("%s: %v", line, diags)
		}
	}
}
