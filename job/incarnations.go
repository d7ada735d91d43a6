package job

import (
	"encoding/json"
	"iter"
)

// Incarnations are observed incarnations, in parts: those of one part belong to one job. A part is never modified once others have it.
// So whoever sees the same part again knows, without looking at them, that none of its incarnations has changed.
type Incarnations [][]Incarnation

// InParts splits a list where the job changes. The list must not be modified afterwards.
func InParts(all []Incarnation) Incarnations {
	var parts Incarnations
	for from := 0; from < len(all); {
		to := from + 1
		for to < len(all) && all[to].UID == all[from].UID {
			to++
		}
		parts = append(parts, all[from:to:to])
		from = to
	}
	return parts
}

// SamePart reports whether two parts are the same, not merely equal.
func SamePart(a, b []Incarnation) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// All returns all incarnations, in order.
func (all Incarnations) All() iter.Seq[*Incarnation] {
	return func(yield func(*Incarnation) bool) {
		for _, part := range all {
			for i := range part {
				if !yield(&part[i]) {
					return
				}
			}
		}
	}
}

// Any reports whether any incarnation matches.
func (all Incarnations) Any(match func(*Incarnation) bool) bool {
	for inc := range all.All() {
		if match(inc) {
			return true
		}
	}
	return false
}

// Len is the number of incarnations.
func (all Incarnations) Len() (n int) {
	for _, part := range all {
		n += len(part)
	}
	return n
}

// List returns a copy of the incarnations as one list.
func (all Incarnations) List() []Incarnation {
	list := make([]Incarnation, 0, all.Len())
	for _, part := range all {
		list = append(list, part...)
	}
	return list
}

// With returns the incarnations and more of them.
func (all Incarnations) With(more ...Incarnation) Incarnations {
	return append(append(Incarnations{}, all...), InParts(more)...)
}

// Changed returns the incarnations with those of some jobs changed.
func (all Incarnations) Changed(uid string, change func(*Incarnation)) Incarnations {
	changed := append(Incarnations{}, all...)
	for k, part := range changed {
		if len(part) == 0 || part[0].UID != uid {
			continue
		}
		changed[k] = append([]Incarnation{}, part...)
		for i := range changed[k] {
			change(&changed[k][i])
		}
	}
	return changed
}

// MarshalJSON writes one list: parts are not part of the format.
func (all Incarnations) MarshalJSON() ([]byte, error) {
	if all == nil {
		return []byte("null"), nil
	}
	return json.Marshal(all.List())
}

// UnmarshalJSON reads one list.
func (all *Incarnations) UnmarshalJSON(text []byte) error {
	var list []Incarnation
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	*all = InParts(list)
	return nil
}
