package lang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// foreign says what to write instead of names that people know from Terraform or use in the wrong place, by block type
// ("" for the top level) and name.
var foreign = map[string]map[string]string{
	"": {
		"resource":  "Declare what should run with job blocks.",
		"data":      "Pass in data from elsewhere as a variable.",
		"terraform": "Settings of the directory belong in an eltrain block.",
		"role":      "A role is a block inside a job.",
	},
	"job": {
		"count":      "Use for_each = toset([…]): named instances keep their identity when others are added or removed. The number of slots of a role is its replicas.",
		"depends_on": "Jobs do not depend on each other. Roles within a job do: depends_on = [role.NAME].",
		"command":    "It is an argument of a role: role \"worker\" { command = […] }.",
		"replicas":   "It is an argument of a role: role \"worker\" { replicas = … }.",
		"image":      "It is an argument of a role: role \"worker\" { image = … }.",
	},
	"role": {
		"count":    "The number of slots of a role is its replicas; each slot knows its slot.index.",
		"for_each": "Repeat a role with a dynamic block: dynamic \"role\" { for_each = …, labels = [role.key], content { … } }.",
	},
	"lifecycle": {
		"create_before_destroy": "The plan decides what an edit replaces, and in which order.",
		"replace_triggered_by":  "The plan replaces slots whose declaration has changed. Others can be replaced by hand.",
	},
	"check": {
		"condition":     "It is in an assert block: assert { condition = …, error_message = … }.",
		"error_message": "It is in an assert block: assert { condition = …, error_message = … }.",
	},
}

// unexpected returns the name in HCL's diagnostic of an unknown argument or block: the first text in quotes.
func unexpected(d *hcl.Diagnostic) (name string, ok bool) {
	if d.Summary != "Unsupported argument" && d.Summary != "Unsupported block type" {
		return "", false
	}
	return inQuotes(d.Detail)
}

func inQuotes(text string) (string, bool) {
	_, rest, ok1 := strings.Cut(text, `"`)
	word, _, ok2 := strings.Cut(rest, `"`)
	return word, ok1 && ok2
}

// explain adds hints to diagnostics of unknown names in a block of the given type, which may contain the inner blocks. An
// argument that is missing only because its name is misspelled is reported as a misspelling, not twice.
func explain(block string, inner []hcl.BlockHeaderSchema, diags hcl.Diagnostics) hcl.Diagnostics {
	meant := map[string]bool{}
	for _, d := range diags {
		name, ok := unexpected(d)
		if !ok {
			continue
		}
		_, suggestion, suggested := strings.Cut(d.Detail, "Did you mean ")
		if slip, ok := inQuotes(suggestion); suggested && ok {
			meant[slip] = true
			continue
		}
		if why := foreign[block][name]; why != "" {
			d.Detail = fmt.Sprintf("%s %s", d.Detail, why)
		} else if d.Summary == "Unsupported block type" {
			d.Detail += suggestBlock(name, inner)
		}
	}
	for _, d := range diags {
		if name, ok := inQuotes(d.Detail); ok && d.Summary == "Missing required argument" && meant[name] {
			d.Extra = alreadyReported{}
		}
	}
	return diags
}

// minStem is the shortest common prefix, in letters, of two names that are taken for forms of one word.
const minStem = 4

// suggestBlock is suggest for block types. It also recognizes other forms of a word: scale for scaling.
func suggestBlock(given string, inner []hcl.BlockHeaderSchema) string {
	var known, forms []string
	for _, b := range inner {
		known = append(known, b.Type)
		stem := min(len(given)-1, len(b.Type)-1)
		if stem >= minStem && strings.EqualFold(given[:stem], b.Type[:stem]) {
			forms = append(forms, b.Type)
		}
	}
	if hint := suggest(given, known); hint != "" || len(forms) != 1 {
		return hint
	}
	return fmt.Sprintf(" Did you mean %q?", forms[0])
}

// withoutFollowUps silences errors that only follow from another syntax error: after an unclosed quote or bracket, the
// scanner takes each of the next lines for a multi-line string.
func withoutFollowUps(diags hcl.Diagnostics) hcl.Diagnostics {
	split := func(d *hcl.Diagnostic) bool { return d.Summary == "Invalid multi-line string" }
	explained := slices.ContainsFunc(diags, func(d *hcl.Diagnostic) bool { return !split(d) })
	for _, d := range diags {
		if split(d) && explained {
			d.Extra = alreadyReported{}
		}
		explained = true
	}
	return diags
}
