package job

import (
	"io"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// TestAgentArgsRoundTrip sets every field of AgentConfig, so that it fails for one without a flag.
func TestAgentArgsRoundTrip(t *testing.T) {
	text := rapid.StringMatching(`[ -~]{0,12}`)
	rapid.Check(t, func(t *rapid.T) {
		var c AgentConfig
		v := reflect.ValueOf(&c).Elem()
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			switch f := v.Field(i); f.Kind() {
			case reflect.String:
				f.SetString(text.Draw(t, name))
			case reflect.Int:
				f.SetInt(int64(rapid.IntRange(0, 1000).Draw(t, name)))
			case reflect.Int64: // StopGrace
				f.SetInt(rapid.Int64Range(0, 1e12).Draw(t, name))
			case reflect.Bool:
				f.SetBool(rapid.Bool().Draw(t, name))
			case reflect.Slice:
				f.Set(reflect.ValueOf(rapid.SliceOfN(text, 1, 4).Draw(t, name)))
			default:
				t.Fatalf("field %s has a kind that this test does not support", name)
			}
		}
		c.Job, c.Slot, c.Service = "gpt", "worker[3]", "http://127.0.0.1:1"
		got, err := ParseAgentArgs(c.Args(), io.Discard)
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Fatalf("%q:\n%+v\n%+v\n%v", c.Args(), c, got, err)
		}
	})
}

func TestAgentArgsThatAreWrong(t *testing.T) {
	good := AgentConfig{Job: "gpt", Slot: "worker[0]", ServiceFile: "url", Command: []string{"train"}}
	if _, err := ParseAgentArgs(good.Args(), io.Discard); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*AgentConfig){
		"no job":     func(c *AgentConfig) { c.Job = "" },
		"no slot":    func(c *AgentConfig) { c.Slot = "" },
		"a role":     func(c *AgentConfig) { c.Slot = "worker" },
		"no service": func(c *AgentConfig) { c.ServiceFile = "" },
		"no command": func(c *AgentConfig) { c.Command = nil },
	} {
		c := good
		spoil(&c)
		if _, err := ParseAgentArgs(c.Args(), io.Discard); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := ParseAgentArgs([]string{"-nonsense"}, io.Discard); err == nil {
		t.Error("an unknown flag was accepted")
	}
}
