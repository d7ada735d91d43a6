package lang

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eltrain/eltrain/job"
)

// Sensitive numbers are secrets, as strings are; short ones, and booleans, are hidden by their place. Numeric arguments
// are neither.
func TestSensitiveNumbersAndTruthValues(t *testing.T) {
	j := mustParse(t, `
variable "pin" {
  type      = number
  sensitive = true
  default   = 987654
}
variable "on" {
  type      = bool
  sensitive = true
  default   = true
}
job "j" {
  role "worker" {
    replicas = sensitive(5555)
    command  = ["sleep", var.pin, sensitive(7), 7]
    env      = { A = var.pin, ON = var.on, PLAIN = true, S = "${slot.index}", MANY = "x-${var.pin}" }
    pod      = { spec = { tolerations = [{ seconds = sensitive(30), plain = 30 }], hostNetwork = var.on } }
  }
  role "ps" {
    command = ["true"]
    env     = sensitive({ B = 12, C = "text" })
  }
}
`).Jobs[0]
	if want := []string{"987654", "text", "x-987654"}; !slices.Equal(j.Secrets, want) {
		t.Errorf("secrets %q, want %q", j.Secrets, want)
	}
	at := func(role, argument string, within ...string) job.Place {
		return job.Place{Role: role, Argument: argument, Within: within}
	}
	want := []job.Place{
		at("worker", "command", "1"), at("worker", "command", "2"),
		at("worker", "pod", "spec", "hostNetwork"), at("worker", "pod", "spec", "tolerations", "0", "seconds"),
		at("ps", "env", "B"), at("worker", "env", "A"), at("worker", "env", "ON"),
	}
	if diff := cmp.Diff(want, j.Places); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
}

// All bad keys are reported in one pass.
func TestEveryBadKeyIsTold(t *testing.T) {
	_, diags := Parse(map[string][]byte{"job.hcl": []byte("job \"j\" {\n  for_each = toset([\"a.b\", \"fine\", \"c d\", \"-e\"])\n  role \"w\" {\n    command = [\"true\"]\n  }\n}\n")}, Options{})
	if len(diags) != 3 {
		t.Errorf("%d of 3 bad keys are reported: %v", len(diags), diags)
	}
}
