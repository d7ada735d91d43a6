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
	Name    string       // as written in HCL; a label's name
	Kind    FieldKind    //
	Type    reflect.Type // of the Go field
	Index   []int        // for reflect.Value.FieldByIndex; embedded structs are flattened
	Default string       // HCL text of the default; "" is the zero value
	Doc     string
	Change  Change // what an edit does to what runs
	Late    bool   // may refer to slot.*
}

// FieldKind is how a field is written.
type FieldKind string

const (
	Required   FieldKind = "required"   // argument that must be there
	Optional   FieldKind = "optional"   // argument
	References FieldKind = "references" // argument: a list of role.NAME
	Paths      FieldKind = "paths"      // argument: a list of the block's own arguments, as FieldChange.Path has them
	Any        FieldKind = "any"        // argument of any shape
	Block      FieldKind = "block"      // nested block: a struct or pointer once, a slice repeatedly
	Label      FieldKind = "label"      // label of the block that the struct is
)

// Change is what an edit of a field does to what runs.
type Change string

const (
	Update   Change = "update"  // taken up in place, no process is touched
	Replaces Change = "replace" // the slots it concerns are replaced
)

var fieldCache sync.Map // reflect.Type -> []Field

// Fields lists the language fields of a struct type (or a pointer to one), in order. Fields tagged
// hcl:"-" or not tagged are not of the language. A malformed tag panics: it is a mistake in the source.
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
		}
		switch f.Kind {
		case Required, Optional, References, Paths, Any, Block, Label:
		default:
			panic(fmt.Sprintf("job: %s.%s: unknown kind %q in its hcl tag", t, sf.Name, kind))
		}
		fields = append(fields, f)
	}
	fields = outermost(fields)
	fieldCache.Store(t, fields)
	return fields
}

// outermost drops the fields of inlined structs that the struct around them has under the same name: it says
// more about them.
func outermost(fields []Field) []Field {
	depth := map[string]int{}
	for _, f := range fields {
		if d, seen := depth[f.Name]; !seen || len(f.Index) < d {
			depth[f.Name] = len(f.Index)
		}
	}
	return slices.DeleteFunc(fields, func(f Field) bool { return len(f.Index) > depth[f.Name] })
}

// ElemType is the struct type of a block field: of its pointer, its slice elements, or itself.
func (f Field) ElemType() reflect.Type {
	t := f.Type
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}

// Repeated reports whether a block may occur more than once.
func (f Field) Repeated() bool { return f.Kind == Block && f.Type.Kind() == reflect.Slice }
