package job

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Lifecycle restricts what a plan may do to a job.
type Lifecycle struct {
	PreventDestroy bool     `hcl:"prevent_destroy,optional" change:"update" json:",omitempty" doc:"Whether a plan that would destroy the job or replace it with another is an error. It may refer to variables."`
	IgnoreChanges  []string `hcl:"ignore_changes,paths" change:"update" json:",omitempty" doc:"Arguments whose changes are ignored: running slots keep what they were started with. A list of paths, or the word all."`
}

// Ignores reports whether a change at the path, in the form of FieldChange.Path, is ignored: IgnoreChanges has the path
// itself, or a block, map or role that contains it.
func (l Lifecycle) Ignores(path string) bool {
	return slices.ContainsFunc(l.IgnoreChanges, func(ignored string) bool {
		rest, ok := strings.CutPrefix(path, ignored)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// Settled returns the declared job with its ignored arguments as last applied. Roles and blocks that were added or
// removed are taken as declared: that is not a change of their arguments.
func (j *Job) Settled(applied *Job) Job {
	out := *j
	if len(j.Lifecycle.IgnoreChanges) == 0 {
		return out
	}
	out.Roles = slices.Clone(j.Roles)
	s := settling{j.Lifecycle}
	s.structs("", reflect.ValueOf(&out).Elem(), reflect.ValueOf(applied).Elem())
	for i := range out.Roles {
		role := &out.Roles[i]
		if old := applied.Role(role.Name); old != nil && j.Lifecycle.ignoresProgram(role.Name) {
			s.perSlot("role."+role.Name, role, old)
		}
	}
	return out
}

// settling copies ignored values from the applied job. It does not modify memory shared with the declaration.
type settling struct{ Lifecycle }

func (s settling) structs(prefix string, to, from reflect.Value) {
	for _, f := range Fields(to.Type()) {
		if f.Kind == Label {
			continue
		}
		s.field(f, join(prefix, f.Name), to.FieldByIndex(f.Index), from.FieldByIndex(f.Index))
	}
}

func (s settling) field(f Field, path string, to, from reflect.Value) {
	switch {
	case f.Repeated():
		s.repeated(path, f, to, from)
	case s.Ignores(path):
		to.Set(from)
	case f.Kind == Block && to.Kind() == reflect.Pointer:
		if to.IsNil() || from.IsNil() {
			return
		}
		fresh := reflect.New(to.Type().Elem())
		fresh.Elem().Set(to.Elem())
		s.structs(path, fresh.Elem(), from.Elem())
		to.Set(fresh)
	case f.Kind == Block:
		s.structs(path, to, from)
	case f.Type.Kind() == reflect.Map && f.Kind != Any:
		s.entries(path, to, from)
	}
}

// repeated settles blocks that both jobs have, matched by label.
func (s settling) repeated(path string, f Field, to, from reflect.Value) {
	label := labelOf(f.ElemType())
	if label == nil || to.Len() == 0 {
		return
	}
	fresh := reflect.MakeSlice(to.Type(), to.Len(), to.Len())
	reflect.Copy(fresh, to)
	for i := range fresh.Len() {
		name := fresh.Index(i).FieldByIndex(label).String()
		for k := range from.Len() {
			if from.Index(k).FieldByIndex(label).String() == name {
				s.structs(join(path, name), fresh.Index(i), from.Index(k))
			}
		}
	}
	to.Set(fresh)
}

// entries settles single keys of a map: env["NAME"].
func (s settling) entries(path string, to, from reflect.Value) {
	fresh := reflect.MakeMap(to.Type())
	for _, key := range to.MapKeys() {
		if !s.Ignores(entryPath(path, key.String())) {
			fresh.SetMapIndex(key, to.MapIndex(key))
		}
	}
	for _, key := range from.MapKeys() {
		if s.Ignores(entryPath(path, key.String())) {
			fresh.SetMapIndex(key, from.MapIndex(key))
		}
	}
	if fresh.Len() > 0 || !to.IsNil() {
		to.Set(fresh)
	}
}

func entryPath(path, key string) string { return path + "[" + strconv.Quote(key) + "]" }

// ignoresProgram reports whether any part of the role's program is ignored; then the programs of slots are settled, too.
func (l Lifecycle) ignoresProgram(role string) bool {
	return slices.ContainsFunc(l.IgnoreChanges, func(ignored string) bool {
		rest, ok := strings.CutPrefix(ignored, "role."+role+".")
		if !ok {
			return l.Ignores("role." + role)
		}
		name := rest[:len(rest)-len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyz_"))]
		return slices.ContainsFunc(Fields(reflect.TypeFor[Program]()), func(f Field) bool { return f.Name == name })
	})
}

func (s settling) perSlot(path string, role, applied *Role) {
	if role.PerSlot == nil && applied.PerSlot == nil {
		return
	}
	_, declared := role.Bounds()
	_, before := applied.Bounds()
	programs := make([]Program, max(declared, before))
	for i := range programs {
		programs[i] = role.For(i)
		old := applied.For(i)
		s.structs(path, reflect.ValueOf(&programs[i]).Elem(), reflect.ValueOf(&old).Elem())
	}
	role.PerSlot = programs
}
