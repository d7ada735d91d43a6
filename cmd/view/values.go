package view

import (
	"maps"
	"reflect"

	"github.com/eltrain/eltrain/job"
)

// attributes returns a declared value in the form that tools for Terraform read: arguments under their names, a nested
// block as an object, repeatable blocks as a list of objects, a label under its name. Sizes and times are written as in the
// files ("4GiB", "30s"), cores are a number, and what is not set is null.
func attributes(v reflect.Value) map[string]any {
	out := map[string]any{}
	for _, f := range job.Fields(v.Type()) {
		out[f.Name] = attribute(f, v.FieldByIndex(f.Index))
	}
	return out
}

func attribute(f job.Field, v reflect.Value) any {
	switch {
	case f.Repeated():
		list := make([]any, v.Len())
		for i := range list {
			list[i] = attributes(v.Index(i))
		}
		return list
	case f.Kind == job.Block && v.Kind() == reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return attributes(v.Elem())
	case f.Kind == job.Block:
		return attributes(v)
	}
	return plainValue(v)
}

// plainValue returns an argument's value; null if job.Text returns "" for it.
func plainValue(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return plainValue(v.Elem())
	}
	if job.Text(v) == "" {
		return nil
	}
	switch x := v.Interface().(type) {
	case job.CPU:
		return x.Cores()
	case interface{ String() string }:
		return x.String()
	}
	switch v.Kind() {
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = plainValue(v.Index(i))
		}
		return list
	case reflect.Map:
		entries := make(map[string]any, v.Len())
		for _, k := range v.MapKeys() {
			entries[k.String()] = plainValue(v.MapIndex(k))
		}
		return entries
	}
	return v.Interface()
}

// slotAttributes returns what a slot is started from: the role's arguments, except those about the number of slots, and what
// is the slot's own.
func slotAttributes(r *job.Role, index int) map[string]any {
	one := *r
	one.Program = r.For(index)
	out := attributes(reflect.ValueOf(one))
	for _, ofRole := range notOfSlots {
		delete(out, ofRole)
	}
	return out
}

// notOfSlots are the arguments of a role about its number of slots, and its name.
var notOfSlots = []string{"name", "replicas", "scaling"}

// hidden returns a value with every sensitive text replaced, and marks for what was replaced in Terraform's form of sensitive
// values: true for a text, an object of the marked ones, a list with false for the others; nil if nothing is sensitive.
func (r *Redactor) hidden(v any) (shown, marks any) {
	switch v := v.(type) {
	case string:
		if text := r.Value(v); text != sensitive {
			return text, nil
		}
		return sensitive, true
	case []any:
		return r.hiddenList(v)
	case map[string]any:
		return r.hiddenObject(v)
	}
	return v, nil
}

func (r *Redactor) hiddenList(list []any) (shown, marks any) {
	out, marked := make([]any, len(list)), make([]any, len(list))
	found := false
	for i, elem := range list {
		out[i], marked[i] = r.hidden(elem)
		if marked[i] == nil {
			marked[i] = false
			continue
		}
		found = true
	}
	if !found {
		return out, nil
	}
	return out, marked
}

func (r *Redactor) hiddenObject(entries map[string]any) (shown, marks any) {
	out, marked := make(map[string]any, len(entries)), map[string]any{}
	for name, elem := range entries {
		var mark any
		if out[name], mark = r.hidden(elem); mark != nil {
			marked[name] = mark
		}
	}
	if len(marked) == 0 {
		return out, nil
	}
	return out, marked
}

// AddFormer hides the former values of the declared job's sensitive arguments: an old password is still a secret, and
// nothing else records that it was sensitive.
func (r *Redactor) AddFormer(before, after *job.Job) {
	if len(after.Secrets) == 0 {
		return
	}
	old, now := *before, *after
	old.Roles, now.Roles = nil, nil
	r.addFormer(attributes(reflect.ValueOf(old)), attributes(reflect.ValueOf(now)))
	for i := range after.Roles {
		role := &after.Roles[i]
		was := before.Role(role.Name)
		if was == nil {
			continue
		}
		r.addFormer(slotAttributes(was, len(was.PerSlot)), slotAttributes(role, len(role.PerSlot)))
		for index := range min(len(was.PerSlot), len(role.PerSlot)) {
			r.addFormer(slotAttributes(was, index), slotAttributes(role, index))
		}
	}
}

func (r *Redactor) addFormer(before, after any) {
	switch after := after.(type) {
	case string:
		old, isText := before.(string)
		if isText && old != after && r.Value(after) == sensitive {
			r.AddTexts(old)
		}
	case []any:
		old, _ := before.([]any)
		for i := range min(len(old), len(after)) {
			r.addFormer(old[i], after[i])
		}
	case map[string]any:
		old, _ := before.(map[string]any)
		for name := range maps.Keys(old) {
			r.addFormer(old[name], after[name])
		}
	}
}
