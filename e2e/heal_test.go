package e2e

import (
	"testing"

	"github.com/eltrain/eltrain/e2e/heal"
	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/soak"
)

var here = heal.On{Place: heal.Local, New: newDemo}

func TestHeal(t *testing.T) { here.Run(t) }

func TestHealSoak(t *testing.T) {
	soak.Only(t)
	here.Soak(t)
}

func TestOneJobsTroubleLeavesTheOthersAlone(t *testing.T) {
	soak.Only(t)
	a := newDemo(t, 4)
	a.SetLease(site.Lenient)
	for old, two := range map[string]string{"max = 4": "max = 2", "replicas   = var.replicas": "replicas = 2"} {
		a.Edit("job.hcl", old, two)
	}
	a.SetSteps(2 * site.Steps)
	b := a.Of("sleeper")
	b.Write("sleeper.hcl", sleeper("sleeper", 2, "cpu = 1"))
	a.Watch()
	before, calm := a.AwaitWorld(2, 1), b.AwaitWorld(2, 1)
	for range 3 {
		heal.KillTrainer(a, []site.Slot{before.Worker(0)})
		before = a.AwaitWorld(2, before.Generation+1)
	}
	b.Undisturbed(calm, b.Now())
	a.EndsRight(2 * site.Steps)
	b.Undisturbed(calm, b.Now())
}
