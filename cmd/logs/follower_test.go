package logs

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// slotTexts is a provider of output.
type slotTexts struct {
	providers.Provider
	texts map[int]string
}

func (p slotTexts) Logs(_ context.Context, _ string, slot job.Address, _ providers.LogOptions) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(p.texts[slot.Index])), nil
}

// Rank 0 is followed into the slot that has it next. What a slot prints with another rank is not shown, and nothing twice.
func TestRankZeroIsFollowedAcrossSlots(t *testing.T) {
	world := func(first, second int) job.Records {
		r := &job.Record{UID: "u", Spec: job.Job{Name: "j", Provider: "p", Roles: []job.Role{{Name: "worker", Ranked: true}}}}
		for i := range 2 {
			r.Slots = append(r.Slots, job.Slot{Address: job.Address{Job: "j", Role: "worker", Index: i}, Incarnation: 1})
		}
		for rank, slot := range []int{first, second} {
			r.World.Members = append(r.World.Members, job.WorldMember{Slot: r.Slots[slot].Address, Rank: rank, Processes: 1})
		}
		return job.Records{"j": r}
	}
	p := slotTexts{texts: map[int]string{0: "[eltrain] generation 1\n[rank 0] one\n[rank 1] no\n", 1: "[rank 1] no\n[rank 0] two\n"}}
	for all, want := range map[bool][]string{
		false: {"one", "two"},
		true:  {"worker[0] [eltrain] generation 1", "worker[0] [rank 0] one", "worker[0] [rank 1] no", "worker[1] [rank 0] two", "worker[1] [rank 1] no"},
	} {
		var out bytes.Buffer
		f := NewFollower([]string{"j"}, all, map[string]providers.Provider{"p": p}, nil, &out)
		for _, records := range []job.Records{{}, world(0, 1), world(1, 0), world(0, 1)} {
			f.Look(records)
		}
		if err := f.End(); err != nil {
			t.Error(err)
		}
		if lines := slices.Sorted(strings.Lines(out.String())); strings.Join(lines, "") != strings.Join(want, "\n")+"\n" {
			t.Errorf("all %t: it shows\n%s", all, out.String())
		}
	}
}
