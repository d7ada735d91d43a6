package workspace

import (
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/state/memory"
)

// What is not known now cannot be hidden in the output of a job that was started with it.
func TestUnknown(t *testing.T) {
	store := memory.New()
	started := func(secret string) job.Job {
		return job.Job{Name: "a", Secrets: []string{secret}, Roles: []job.Role{{Program: job.Program{Command: []string{"train", secret}}}}}
	}
	was := &Workspace{Store: store, Sealer: new(job.Sealer), Config: new(lang.Config)}
	sealed, err := was.Sealed(t.Context(), []job.Job{started("hunter2")})
	if err != nil {
		t.Fatal(err)
	}
	record := &job.Record{Spec: sealed[0]}
	unset := lang.Variable{Name: "token", Sensitive: true, Value: cty.UnknownVal(cty.String)}
	for name, c := range map[string]struct {
		cfg    lang.Config
		record *job.Record
		want   string
	}{
		"nothing is sensitive":       {lang.Config{}, &job.Record{Spec: job.Job{Name: "a"}}, ""},
		"the same value":             {lang.Config{Jobs: []job.Job{started("hunter2")}}, record, ""},
		"another value":              {lang.Config{Jobs: []job.Job{started("other")}}, record, "job.a was started with differs"},
		"a variable without a value": {lang.Config{Variables: []lang.Variable{unset}}, record, "No value for the sensitive variable token"},
	} {
		w := &Workspace{Store: store, Sealer: new(job.Sealer), Config: &c.cfg}
		if why, err := w.Unknown(t.Context(), c.record); err != nil || (why == "") != (c.want == "") || !strings.Contains(why, c.want) {
			t.Errorf("%s: %q, %v; want %q", name, why, err, c.want)
		}
	}
}
