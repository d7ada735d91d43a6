package lang

import (
	"bytes"
	"regexp"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
)

// Format returns src in canonical format: HCL's own spacing and alignment, "\n" line ends and one at the end.
// It only changes white space, and is idempotent. Source with a syntax error is rejected.
func Format(src []byte, filename string) ([]byte, hcl.Diagnostics) {
	if d := checkSource(src, filename, hclsyntax.LexConfig); d != nil {
		return nil, hcl.Diagnostics{d}
	}
	if _, diags := hclsyntax.ParseConfig(src, filename, hcl.InitialPos); diags.HasErrors() {
		return nil, tidy(diags)
	}
	out := normalLines(src)
	// Moving one token can change how the next one is formatted; a second round settles it.
	for range maxFormatRounds {
		next := hclwrite.Format(out)
		if bytes.Equal(next, out) {
			break
		}
		out = next
	}
	return out, nil
}

const maxFormatRounds = 8

var lineEnd = regexp.MustCompile(`\r*\n`)

// normalLines removes a byte order mark and ends every line with "\n".
func normalLines(src []byte) []byte {
	src = bytes.TrimPrefix(src, []byte("\xef\xbb\xbf"))
	if len(src) == 0 {
		return []byte{}
	}
	return lineEnd.ReplaceAll(append(bytes.Clone(bytes.TrimSuffix(src, []byte("\n"))), '\n'), []byte("\n"))
}
