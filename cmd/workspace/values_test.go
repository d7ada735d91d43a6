package workspace

import (
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/lang"
)

// The type of a sensitive value is kept, as in Terraform's state, unless attribute names in it would reveal the value.
func TestTheTypeOfWhatIsSensitive(t *testing.T) {
	const secret = "hunter2hunter2"
	hidden := cty.StringVal(secret).Mark(lang.Sensitive)
	named := func(name string) cty.Value {
		return cty.ObjectVal(map[string]cty.Value{name: cty.True}).Mark(lang.Sensitive)
	}
	cfg := &lang.Config{
		Variables: []lang.Variable{{Name: "token", Sensitive: true, Value: hidden}},
		Outputs: []lang.Output{
			{Name: "text", Sensitive: true, Value: hidden},
			{Name: "object", Sensitive: true, Value: named("user")},
			{Name: "named", Sensitive: true, Value: named(secret)},
			{Name: "deep", Sensitive: true, Value: cty.TupleVal([]cty.Value{cty.ListVal([]cty.Value{named("key-" + secret)})}).Mark(lang.Sensitive)},
			{Name: "none", Sensitive: true, Value: cty.DynamicVal}, // after an error
			{Name: "plain", Value: cty.NumberIntVal(3)},
		},
	}
	given, err := Given(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"text": `"string"`, "object": `["object",{"user":"bool"}]`, "named": "", "deep": "", "none": `"dynamic"`} {
		if v := given.Outputs[name]; string(v.Type) != want || v.Value != nil || !v.Sensitive {
			t.Errorf("%s is of the type %s, with the value %s", name, v.Type, v.Value)
		}
	}
	if v := given.Outputs["plain"]; string(v.Value) != "3" || v.Sensitive {
		t.Errorf("what is not sensitive has the value %s", v.Value)
	}
	if v := given.Variables["token"]; strings.Contains(string(v.Type)+string(v.Value), secret) || !v.Sensitive {
		t.Errorf("the variable is %s", v.Value)
	}
}
