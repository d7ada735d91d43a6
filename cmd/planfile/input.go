package planfile

import (
	"fmt"
	"maps"
	"slices"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
)

// checkInput returns an error for what no plan is made from: jobs that no file can declare, records that no state has. Names
// become those of files, and counts take time and memory.
func (f *File) checkInput() error {
	in := &f.Facts.Input
	if err := lang.CheckJobs(in.Jobs); err != nil {
		return err
	}
	if err := in.Records.Check(); err != nil {
		return err
	}
	slots := 0
	for _, name := range slices.Sorted(maps.Keys(in.Records)) {
		for i := range in.Records[name].Spec.Roles {
			least, most := in.Records[name].Spec.Roles[i].Bounds()
			if slots += most; least < 1 || most < least || most > lang.MaxSlots || slots > lang.MaxSlots {
				return fmt.Errorf("the record of job.%s has %d to %d slots of a role", name, least, most)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.UIDs)) {
		if !job.ValidUID(f.UIDs[name]) {
			return fmt.Errorf("job.%s has the uid %q, which cannot be one", name, f.UIDs[name])
		}
	}
	return nil
}
