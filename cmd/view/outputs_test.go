package view

import (
	"strings"
	"testing"

	"github.com/eltrain/eltrain/state"
)

func TestRawOutput(t *testing.T) {
	for value, c := range map[string]struct{ kind, want, err string }{
		`"a <b>"`:     {`"string"`, "a <b>", ""},
		`1.50`:        {`"number"`, "1.5", ""},
		`true`:        {`"bool"`, "true", ""},
		`null`:        {`"string"`, "", "it is null"},
		`{"on":true}`: {`["object",{"on":"bool"}]`, "", "its type is object"},
		`{`:           {`"string"`, "", "string is required"},
	} {
		got, err := RawOutput(state.Value{Value: []byte(value), Type: []byte(c.kind)})
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v", value, got, err)
		}
	}
}
