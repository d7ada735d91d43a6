package workspace

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/internal/filetest"
	"github.com/eltrain/eltrain/job"
)

// readEverything has something of all that a reading returns.
const readEverything = `
eltrain {
  state "file" { path = "other.state" }
}
variable "token" {
  sensitive = true
  default   = "a long secret"
}
variable "steps" { default = 5 }
locals { said = file("said.txt") }
provider "local" {
  node "n1" {
    cpu     = 2
    devices = { "example.com/gpu" = 1 }
  }
}
provider "kubernetes" { namespace = "ml" }
job "a" {
  role "worker" {
    replicas = 2
    command  = ["sh", "-c", local.said, slot.index]
    env      = { TOKEN = var.token, EMPTY = "" }
    resources { cpu = 0.5 }
  }
  limits { memory = "1GiB" }
  lifecycle { prevent_destroy = true }
}
job "b" {
  for_each = toset(["x", "y"])
  provider = "kubernetes"
  role "worker" {
    image   = "i"
    command = ["c"]
    pod     = { spec = { priority = 5, tolerations = [], nodeName = null, hostNetwork = sensitive(true) } }
  }
}
output "steps" { value = { n = var.steps, list = [1, "a", null] } }
output "token" {
  sensitive = true
  value     = { (var.token) = var.token }
}
check "c" {
  assert {
    condition     = var.steps == 6
    error_message = "no"
  }
}
moved {
  from = job.old
  to   = job.a
}
removed {
  from = job.gone
  lifecycle { destroy = false }
}
import {
  to = job.a
  id = "u1"
}
`

// What crosses to a watch is as if it had read the files itself.
func TestAReadingIsTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	filetest.Put(t, filepath.Join(dir, "main.hcl"), readEverything)
	filetest.Put(t, filepath.Join(dir, "said.txt"), "echo hi")
	t.Chdir(dir)
	d := at(dir)
	cfg, diags := d.Load(nil)
	sent, err := d.readAll(request{})
	if err != nil || diags.HasErrors() {
		t.Fatal(err, diags)
	}
	text, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	var r Reading
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if err := r.decode(); err != nil {
		t.Fatal(err)
	}
	same := func(what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v\nwant %+v", what, got, want)
		}
	}
	for i := range cfg.Jobs { // all but empty lists as nil ones
		if changes := job.Diff(r.Config.Jobs[i], cfg.Jobs[i]); len(changes) > 0 {
			t.Errorf("job %s: %+v", cfg.Jobs[i].Name, changes)
		}
		same("secrets", r.Config.Jobs[i].Secrets, cfg.Jobs[i].Secrets)
		same("places", r.Config.Jobs[i].Places, cfg.Jobs[i].Places)
		same("source", r.Config.Jobs[i].Source, cfg.Jobs[i].Source)
	}
	same("settings", r.Config.Settings, cfg.Settings)
	same("providers", Configurations(r.Config), Configurations(cfg))
	same("blocks", BlocksOf(r.Config), BlocksOf(cfg))
	same("checks", r.Config.Checked, cfg.Checked)
	same("paths", r.Config.Further(), cfg.Further())
	same("sizes", r.Config.Sizes, cfg.Sizes)
	same("diagnostics", r.Diagnostics, view.DiagnoseHCL(diags, cfg.Files))
	given, err := Given(r.Config)
	want, wantErr := Given(cfg)
	if err != nil || wantErr != nil {
		t.Fatal(err, wantErr)
	}
	same("variables", given.Variables, want.Variables)
	for name, want := range want.Outputs {
		if want.Sensitive && want.Type == nil { // its type has a secret in it, and is left out
			want.Type = json.RawMessage(`"dynamic"`)
		}
		same("output "+name, given.Outputs[name], want)
	}
	for _, secret := range cfg.Secrets() {
		if !slices.Contains(r.Secrets, secret) {
			t.Errorf("a secret is missing: %q", secret)
		}
	}
	for _, j := range cfg.Jobs {
		at := cfg.SourceOf(j.Name)
		same("line", r.Config.LineOf(at), cfg.LineOf(at))
	}
	same("files", slices.Sorted(maps.Keys(r.Config.Files)), slices.Sorted(maps.Keys(cfg.Files)))
}
