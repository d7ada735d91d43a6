package job

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// FieldChange is one difference between two values of the same declared type.
type FieldChange struct {
	Path   string `json:"path"` // as written: "command", "resources.cpu", `env["NCCL_DEBUG"]`, "role.worker.replicas"
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	Change Change `json:"change"`
	// By is the field manager that made a change outside of eltrain, if known.
	By string `json:"by,omitempty"`
}

// Diff lists the differences between two declared values of the same type, in schema order. Before and After are
// HCL texts; an absent value is "". Repeated blocks are matched by label.
func Diff(before, after any) []FieldChange {
	var d differ
	d.structs("", reflect.ValueOf(before), reflect.ValueOf(after))
	return d.changes
}

// Fingerprints returns a function from slot index to a hash of everything that an incarnation of the role is started
// from: all fields whose change replaces it. With equal fingerprints no replacement is needed.
func Fingerprints(j *Job, r *Role) func(index int) string {
	role := *r
	role.Program, role.PerSlot = Program{}, nil
	h := sha256.New()
	enc := json.NewEncoder(h)
	hashReplaced(enc, reflect.ValueOf(*j), true)
	hashReplaced(enc, reflect.ValueOf(role), false)
	common := h.Sum(nil)
	one := func(p Program) string {
		h := sha256.New()
		h.Write(common)
		// Declared values can always be encoded, and map keys are sorted, so equal programs give equal bytes.
		json.NewEncoder(h).Encode(p)
		return hex.EncodeToString(h.Sum(nil))[:16]
	}
	if r.PerSlot == nil {
		same := one(r.Program)
		return func(int) string { return same }
	}
	return func(index int) string { return one(r.For(index)) }
}

// StartedFrom is a hash of everything that the job's slots are started from.
func (j *Job) StartedFrom() string {
	h := sha256.New()
	for i := range j.Roles {
		r := &j.Roles[i]
		fingerprint := Fingerprints(j, r)
		fmt.Fprintln(h, r.Name, fingerprint(0))
		for index := range r.PerSlot {
			fmt.Fprintln(h, fingerprint(index))
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// hashReplaced encodes every field tagged change:"replace". It skips the roles of a job, since a change in one role
// does not replace another's slots.
func hashReplaced(enc *json.Encoder, v reflect.Value, ofJob bool) {
	for _, f := range Fields(v.Type()) {
		if ofJob && f.Name == "progress" {
			// Its edits replaced slots once. Jobs without it keep the fingerprint from then.
			enc.Encode(f.Name)
			enc.Encode(nil)
			continue
		}
		if f.Change != Replaces || ofJob && f.Repeated() || f.Omitted && v.FieldByIndex(f.Index).IsZero() {
			continue
		}
		enc.Encode(f.Name)
		// The encoder sorts map keys, so equal values give equal bytes. Declared values can always be encoded.
		if err := enc.Encode(v.FieldByIndex(f.Index).Interface()); err != nil {
			panic(fmt.Sprintf("job: cannot fingerprint %s: %v", f.Name, err))
		}
	}
}

type differ struct{ changes []FieldChange }

func (d *differ) add(path string, c Change, before, after string) {
	d.changes = append(d.changes, FieldChange{Path: path, Before: before, After: after, Change: c})
}

func (d *differ) structs(prefix string, a, b reflect.Value) {
	for _, f := range Fields(a.Type()) {
		if f.Kind == Label {
			continue
		}
		d.field(f, join(prefix, f.Name), a.FieldByIndex(f.Index), b.FieldByIndex(f.Index))
	}
}

func (d *differ) field(f Field, path string, a, b reflect.Value) {
	switch {
	case f.Repeated():
		d.repeated(path, f, a, b)
	case f.Kind == Block:
		zero := reflect.New(f.ElemType()).Elem()
		d.structs(path, deref(a, zero), deref(b, zero))
	case f.Type.Kind() == reflect.Map && f.Kind != Any:
		d.maps(path, f, a, b)
	default:
		if before, after := Text(a), Text(b); before != after {
			d.add(path, f.Change, before, after)
		}
	}
}

func (d *differ) maps(path string, f Field, a, b reflect.Value) {
	keys := map[string]bool{}
	for _, m := range []reflect.Value{a, b} {
		for _, k := range m.MapKeys() {
			keys[k.String()] = true
		}
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		before, after := entry(a, k), entry(b, k)
		if before != after {
			d.add(path+"["+strconv.Quote(k)+"]", f.Change, before, after)
		}
	}
}

func entry(m reflect.Value, key string) string {
	if v := m.MapIndex(reflect.ValueOf(key)); v.IsValid() {
		return Text(v)
	}
	return ""
}

func (d *differ) repeated(path string, f Field, a, b reflect.Value) {
	label := labelOf(f.ElemType())
	index := func(s reflect.Value) (names []string, byName map[string]reflect.Value) {
		byName = map[string]reflect.Value{}
		for i := range s.Len() {
			name := strconv.Itoa(i)
			if label != nil {
				name = s.Index(i).FieldByIndex(label).String()
			}
			names = append(names, name)
			byName[name] = s.Index(i)
		}
		return names, byName
	}
	before, inA := index(a)
	after, inB := index(b)
	for _, name := range before {
		if _, kept := inB[name]; !kept {
			d.add(join(path, name), f.Change, "{…}", "")
		}
	}
	for _, name := range after {
		if old, had := inA[name]; had {
			d.structs(join(path, name), old, inB[name])
		} else {
			d.add(join(path, name), f.Change, "", "{…}")
		}
	}
}

func labelOf(t reflect.Type) []int {
	for _, f := range Fields(t) {
		if f.Kind == Label {
			return f.Index
		}
	}
	return nil
}

func deref(v, zero reflect.Value) reflect.Value {
	if v.Kind() != reflect.Pointer {
		return v
	}
	if v.IsNil() {
		return zero
	}
	return v.Elem()
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

// Text formats a declared value as HCL: "30s", 4, ["a", "b"], { a = 1 }. It returns "" for a nil pointer, empty list,
// empty map or empty string.
func Text(v reflect.Value) string {
	if !v.IsValid() {
		return ""
	}
	switch x := v.Interface().(type) {
	case Duration:
		return strconv.Quote(x.String())
	case Bytes:
		if x == 0 {
			return ""
		}
		return strconv.Quote(x.String())
	case CPU:
		if x == 0 {
			return ""
		}
		return x.String()
	case Factor:
		if x == 0 {
			return ""
		}
		return strconv.Quote(x.String())
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return ""
		}
		return Text(v.Elem())
	case reflect.String:
		if v.String() == "" {
			return ""
		}
		return strconv.Quote(v.String())
	case reflect.Slice:
		if v.Len() == 0 {
			return ""
		}
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = Text(v.Index(i))
			if parts[i] == "" {
				parts[i] = `""`
			}
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case reflect.Map:
		if v.Len() == 0 {
			return ""
		}
		var parts []string
		for _, k := range slices.SortedFunc(slices.Values(v.MapKeys()), func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) }) {
			parts = append(parts, strconv.Quote(k.String())+" = "+Text(v.MapIndex(k)))
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	}
	return fmt.Sprint(v.Interface())
}
