package lang

import (
	"reflect"
	"strconv"

	"github.com/zclconf/go-cty/cty/convert"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/eltrain/eltrain/job"
)

// maxRepeated is how many blocks of one type Differing names: nodes are declared by the hundred.
const maxRepeated = 3

// Differing returns the arguments of a block that do not have their defaults, in the order of the schema, as
// `service.listen = "0.0.0.0:7000"`. Of repeated blocks it has the labels. block is a struct with the tags that job.Fields reads.
func Differing(block any) []string {
	e := exporter{l: newLoader(Options{})}
	return e.differing("", reflect.ValueOf(block))
}

func (e *exporter) differing(prefix string, v reflect.Value) (out []string) {
	for _, f := range job.Fields(v.Type()) {
		field, name := v.FieldByIndex(f.Index), prefix+f.Name
		switch {
		case f.Repeated():
			for i := range min(field.Len(), maxRepeated) {
				out = append(out, name+" "+strconv.Quote(labelValue(field.Index(i))))
			}
			if more := field.Len() - maxRepeated; more > 0 {
				out = append(out, strconv.Itoa(more)+" more of "+name)
			}
		case f.Kind == job.Block && field.Kind() == reflect.Pointer && field.IsNil():
		case f.Kind == job.Block:
			out = append(out, e.differing(name+".", reflect.Indirect(field))...)
		case !e.isDefault(f, field):
			val := e.value(field)
			text, err := ctyjson.Marshal(val, val.Type())
			if err != nil {
				text = []byte("?") // a declared value can always be encoded
			}
			out = append(out, name+" = "+string(text))
		}
	}
	return out
}

// isDefault reports whether an argument or label has its default.
func (e *exporter) isDefault(f job.Field, v reflect.Value) bool {
	if f.Default == "" {
		return v.IsZero()
	}
	val, err := convert.Convert(e.value(v), ValueType(f.Type))
	return err == nil && val.RawEquals(defaultValue(f))
}
