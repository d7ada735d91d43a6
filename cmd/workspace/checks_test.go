package workspace

import (
	"errors"
	"testing"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
)

type pickyConfig struct{ wrong []error }

func (c pickyConfig) Validate() []error { return c.wrong }

func (c pickyConfig) Check(r *job.Role) error {
	if r.Name == "ps" {
		return errors.New("it has no image")
	}
	return nil
}

func TestMisfits(t *testing.T) {
	cfg := &lang.Config{
		Providers: []lang.ProviderConfig{{Name: "picky", Value: pickyConfig{}}},
		Jobs: []job.Job{
			{Name: "a", Provider: "picky", Roles: []job.Role{{Name: "worker"}, {Name: "ps"}}},
			{Name: "b", Provider: "local", Roles: []job.Role{{Name: "ps"}}},
		},
	}
	diags := misfits(cfg)
	if len(diags) != 1 || diags[0].Summary != "Role ps cannot run on provider picky" || diags[0].Detail != "It has no image." || diags[0].Subject != nil {
		t.Errorf("a role that does not fit gives %v", diags)
	}
	cfg.Providers[0].Value = pickyConfig{wrong: []error{errors.New("a"), errors.New("b")}}
	if diags := misfits(cfg); len(diags) != 2 {
		t.Errorf("two mistakes in the block give %v", diags)
	}
}
