package file

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzIndent compares the indentation with the standard library's, for everything that json.Marshal may write.
func FuzzIndent(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, `null`, `-1.5e3`, `""`, `"a\"b\\"`, `{"a":[],"b":{},"c":[{},[[]]]}`, `{"{\"[,:]}":"}],:{["}`, `[1,2,{"a":"\\"}]`, `"<&> "`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var v any
		if json.Unmarshal(text, &v) != nil {
			t.Skip()
		}
		compact, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		if err := json.Indent(&want, compact, "  ", "  "); err != nil {
			t.Fatal(err)
		}
		if got := appendIndented(nil, compact, 1); !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%s is indented as\n%s\nwant\n%s", compact, got, want.Bytes())
		}
	})
}
