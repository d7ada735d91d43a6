package job

import (
	"fmt"
	"maps"
	"slices"
)

// Move returns the records with the job from renamed to to. Its incarnations keep running.
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

// Forgotten is what Records.Forget removed.
type Forgotten struct {
	Jobs  []string  // names
	Slots []Address // including those of the jobs
	// Released has the jobs by UID. Their incarnations are no longer managed.
	Released map[string]Released
}

// Forget returns the records without the selected jobs and slots. Incarnations keep running. A forgotten slot that runs
// while its job remains is adopted again, without its history.
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
			gone.Released[rec.UID] = rec.Released(sel.Job)
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

// Matching returns the addresses of the record's slots that a selector matches, in order.
func (r *Record) Matching(sel Selector) []Address {
	var found []Address
	for i := range r.Slots {
		if sel.Matches(r.Slots[i].Address) {
			found = append(found, r.Slots[i].Address)
		}
	}
	return found
}

// Check validates records from outside: job names, UIDs, and slots that are duplicates or belong to another job. It also
// sorts the slots.
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
		case !ValidUID(rec.UID):
			return fmt.Errorf("job.%s has the uid %q, which cannot be one", name, rec.UID)
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
