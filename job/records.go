package job

import (
	"fmt"
	"maps"
	"slices"
)

// Move is the records with the job from under the name to. What runs of it continues.
func (r Records) Move(from, to string) (Records, error) {
	rec := r[from]
	switch {
	case rec == nil:
		return nil, fmt.Errorf("cannot move job.%s: it does not match anything in the current state", from)
	case r[to] != nil:
		return nil, fmt.Errorf("cannot move to job.%s: there is already a job at that address in the current state", to)
	}
	moved := maps.Clone(r)
	delete(moved, from)
	moved[to] = rec.Renamed(from, to)
	return moved, nil
}

// Forgotten is what Records.Forget takes out.
type Forgotten struct {
	Jobs  []string  // names
	Slots []Address // with those of the jobs
	// Released are the jobs, by UID: what runs of them is nobody's from then on.
	Released map[string]Released
}

// Forget is the records without what the selectors name: whole jobs, or single slots. What is running keeps running. A slot that
// runs and whose job stays is found again, without its history.
func (r Records) Forget(selectors []Selector) (Records, Forgotten) {
	left := maps.Clone(r)
	gone := Forgotten{Released: map[string]Released{}}
	for _, sel := range selectors {
		rec := left[sel.Job]
		if rec == nil {
			continue
		}
		if sel.Role == "" {
			delete(left, sel.Job)
			gone.Jobs = append(gone.Jobs, sel.Job)
			gone.Slots = append(gone.Slots, rec.Matching(sel)...)
			gone.Released[rec.UID] = Released{Name: rec.LaunchedAs(sel.Job), Provider: rec.Spec.Provider}
			continue
		}
		matching := rec.Matching(sel)
		copied := *rec
		copied.Slots = slices.DeleteFunc(slices.Clone(rec.Slots), func(s Slot) bool { return sel.Matches(s.Address) })
		left[sel.Job] = &copied
		gone.Slots = append(gone.Slots, matching...)
	}
	return left, gone
}

// Matching are the addresses of the record's slots that a selector names, in their order.
func (r *Record) Matching(sel Selector) []Address {
	var found []Address
	for i := range r.Slots {
		if sel.Matches(r.Slots[i].Address) {
			found = append(found, r.Slots[i].Address)
		}
	}
	return found
}

// Check reports what is wrong with records that did not come from here: a slot under another job's name, one twice, or no
// UID. It puts slots in their order.
func (r Records) Check() error {
	uids := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(r)) {
		rec := r[name]
		switch {
		case !ValidName(name):
			return fmt.Errorf("%q cannot be the name of a job", name)
		case rec == nil:
			return fmt.Errorf("job.%s is null", name)
		case rec.UID == "":
			return fmt.Errorf("job.%s has no uid", name)
		case uids[rec.UID] != "":
			return fmt.Errorf("job.%s and job.%s have the same uid", uids[rec.UID], name)
		case rec.Spec.Name != name:
			return fmt.Errorf("job.%s has the specification of job.%s", name, rec.Spec.Name)
		}
		uids[rec.UID] = name
		slices.SortFunc(rec.Slots, func(a, b Slot) int { return a.Address.Compare(b.Address) })
		for i := range rec.Slots {
			a := rec.Slots[i].Address
			if a.Job != name {
				return fmt.Errorf("job.%s has the slot %s", name, a)
			}
			if i > 0 && a == rec.Slots[i-1].Address {
				return fmt.Errorf("%s appears twice", a)
			}
		}
	}
	return nil
}
