package job

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Field is one argument or block of the language, read from a struct field's tags.
type Field struct {
	Name    string       // as written in HCL; for a label, its name in the reference
	Kind    FieldKind    // how it is written
	Type    reflect.Type // of the Go field
	Index   []int        // for reflect.Value.FieldByIndex; embedded structs are flattened
	Default string       // HCL text of the default; "" means the zero value
	Doc     string
	Change  Change // effect of an edit on running slots
	Late    bool   // may refer to slot.*
	Omitted bool   // its zero value is not in the JSON, nor in fingerprints
}

// FieldKind is how a field is written.
type FieldKind string

const (
	Required   FieldKind = "required"   // required argument
	Optional   FieldKind = "optional"   // argument
	References FieldKind = "references" // argument: a list of role.NAME
	Paths      FieldKind = "paths"      // argument: a list of paths of the job's arguments, in the form of FieldChange.Path
	Any        FieldKind = "any"        // argument of any shape
	Patterns   FieldKind = "patterns"   // argument: a list of patterns of files; the field holds the digests of the files by path
	Block      FieldKind = "block"      // nested block: at most once for a struct or pointer, repeated for a slice
	Label      FieldKind = "label"      // label of the block itself
)

// Change is the effect of an edit of a field on running slots.
type Change string

const (
	Update   Change = "update"  // applied in place, without touching processes
	Replaces Change = "replace" // the affected slots are replaced
)

var fieldCache sync.Map // reflect.Type -> []Field

// Fields lists the language fields of a struct type (or a pointer to one), in order. Fields without a tag or tagged
// hcl:"-" are not part of the language. It panics on a malformed tag, a programming error.
func Fields(t reflect.Type) []Field {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if cached, ok := fieldCache.Load(t); ok {
		return cached.([]Field)
	}
	var fields []Field
	for i := range t.NumField() {
		sf := t.Field(i)
		tag := sf.Tag.Get("hcl")
		if tag == "" || tag == "-" {
			continue
		}
		name, kind, _ := strings.Cut(tag, ",")
		if kind == "inline" {
			for _, f := range Fields(sf.Type) {
				f.Index = append([]int{i}, f.Index...)
				fields = append(fields, f)
			}
			continue
		}
		f := Field{
			Name: name, Kind: FieldKind(kind), Type: sf.Type, Index: []int{i},
			Default: sf.Tag.Get("default"), Doc: sf.Tag.Get("doc"),
			Change: Change(sf.Tag.Get("change")), Late: sf.Tag.Get("late") == "slot",
			Omitted: strings.Contains(sf.Tag.Get("json"), ",omit"),
		}
		switch f.Kind {
		case Required, Optional, References, Paths, Patterns, Any, Block, Label:
		default:
			panic(fmt.Sprintf("job: %s.%s: unknown kind %q in its hcl tag", t, sf.Name, kind))
		}
		fields = append(fields, f)
	}
	fields = outermost(fields)
	fieldCache.Store(t, fields)
	return fields
}

// outermost drops the fields of inlined structs that the outer struct overrides under the same name.
func outermost(fields []Field) []Field {
	depth := map[string]int{}
	for _, f := range fields {
		if d, seen := depth[f.Name]; !seen || len(f.Index) < d {
			depth[f.Name] = len(f.Index)
		}
	}
	return slices.DeleteFunc(fields, func(f Field) bool { return len(f.Index) > depth[f.Name] })
}

// ElemType returns the struct type of a block field: the type itself, or that of its pointer or slice elements.
func (f Field) ElemType() reflect.Type {
	t := f.Type
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}

// Repeated reports whether a block may occur more than once.
func (f Field) Repeated() bool { return f.Kind == Block && f.Type.Kind() == reflect.Slice }
