package main

import (
	"strings"
	"testing"

	"github.com/eltrain/eltrain/cmd/view"
)

func TestMaxDestroyTakesANumberOfSlotsAndGoesWithFilesOnly(t *testing.T) {
	s := &session{streams: view.Standard()}
	for _, c := range []struct {
		args []string
		told string
	}{
		{[]string{"-max-destroy=-1", "-auto-approve"}, "a number of slots from 0"},
		{[]string{"-max-destroy=all", "-auto-approve"}, "a number of slots from 0"},
		{[]string{"-max-destroy=3", "-destroy", "-auto-approve"}, "-max-destroy cannot be used with -destroy"},
		{[]string{"-max-destroy=3", "plan.bin"}, "-max-destroy cannot be used with a saved plan"},
	} {
		if _, err := parseApply(s, c.args); err == nil || !strings.Contains(err.Error(), c.told) {
			t.Errorf("apply %v: %v", c.args, err)
		}
	}
	a, err := parseApply(s, []string{"-max-destroy=0", "-auto-approve"})
	if err != nil || a.maxDestroy == nil || *a.maxDestroy != 0 {
		t.Errorf("-max-destroy=0: %+v, %v", a.maxDestroy, err)
	}
}
