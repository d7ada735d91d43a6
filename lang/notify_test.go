package lang

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eltrain/eltrain/job"
)

func TestNotify(t *testing.T) {
	cfg, diags := Load(writeTree(t, map[string]string{
		"job.hcl": `
variable "token" {
  type      = string
  default   = "hunter2"
  sensitive = true
}

module "m" {
  source   = "./m"
  for_each = toset(["x", "y"])
}

job "a" {
  for_each = toset(["k", "l"])
  role "worker" { command = ["true"] }
}

job "b" {
  role "worker" { command = ["true"] }
}

notify "all" {
  on  = ["failed"]
  url = "https://example.com/${base64encode(var.token)}"
}

notify "some" {
  on      = ["incident", "recovered"]
  for     = "5m"
  jobs    = [job.a, job.b, module.m["y"]]
  url     = "http://example.com"
  headers = { Authorization = "Bearer ${var.token}" }
  text    = "{job}"
}

notify "command" {
  on      = ["succeeded"]
  jobs    = []
  command = ["./page.sh", var.token]
}
`,
		"m/job.hcl": `job "c" {
  role "worker" { command = ["true"] }
}
`}), options())
	if len(diags) > 0 {
		t.Fatal(render(cfg, diags))
	}
	want := []Notify{
		{Notify: job.Notify{Name: "all", On: []job.NotifyEvent{job.NotifyFailed}, All: true},
			Hook: job.Hook{URL: "https://example.com/aHVudGVyMg==", Text: "{job} {event}: {message}"}},
		{Notify: job.Notify{Name: "some", On: []job.NotifyEvent{job.NotifyIncident, job.NotifyRecovered}, Jobs: []string{"a-k", "a-l", "b", "m-y-c"}, For: 300e9},
			Hook: job.Hook{URL: "http://example.com", Headers: map[string]string{"Authorization": "Bearer hunter2"}, Text: "{job}"}},
		{Notify: job.Notify{Name: "command", On: []job.NotifyEvent{job.NotifySucceeded}},
			Hook: job.Hook{Command: []string{"./page.sh", "hunter2"}, Text: "{job} {event}: {message}"}},
	}
	got := slices.Clone(cfg.Notify)
	for i := range got {
		got[i].Secrets = nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// What is derived from a sensitive value is hidden as well.
	for _, secret := range []string{"hunter2", "https://example.com/aHVudGVyMg==", "Bearer hunter2"} {
		if !slices.Contains(cfg.Secrets(), secret) {
			t.Errorf("%q is not hidden", secret)
		}
	}
}

// A Config without files, as that of a saved plan, does not say that there are no notify blocks.
func TestNotifyBlocksAreKnownFromFilesOnly(t *testing.T) {
	cfg, _ := Parse(map[string][]byte{"job.hcl": []byte("job \"a\" {\n  role \"worker\" {\n    command = [\"true\"]\n  }\n}\n")}, options())
	if got := cfg.Notified(); got == nil || len(got) > 0 {
		t.Errorf("of files without blocks: %v", got)
	}
	if new(Config).Notified() != nil {
		t.Error("without files there are blocks")
	}
}
