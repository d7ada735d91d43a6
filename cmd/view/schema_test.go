package view

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/job"
)

// The schema and the plans have the same attributes of jobs and slots: neither can get one without the other.
func TestSchemasAreOfWhatPlansHave(t *testing.T) {
	schemas, err := NewSchemas(SchemaFacts{
		Providers: map[string]reflect.Type{"p": reflect.TypeFor[job.Resources]()},
		TypeOf:    func(reflect.Type) cty.Type { return cty.String },
	})
	if err != nil {
		t.Fatal(err)
	}
	objects := schemas.Providers["p"].Resources
	jobSchema, slotSchema := objects[jobType].Block, objects[slotType].Block
	full := job.Job{Roles: []job.Role{{}}}
	fill(reflect.ValueOf(&full).Elem())
	b := newPlanBuilder(&PlanFacts{}, new(Redactor))
	values, _ := b.jobObject(&full, "uid")
	holds(t, "eltrain_job", jobSchema, values.(map[string]any))
	rec := &job.Record{Spec: full}
	rec.Spec.Roles[0].Name = "w"
	rec.Slots = []job.Slot{{Address: job.Address{Job: "j", Role: "w"}, Node: "n", Incarnation: 1}}
	values, _ = b.slotObject(rec, rec.Slots[0].Address, nil, false)
	holds(t, "eltrain_slot", slotSchema, values.(map[string]any))
}

// fill sets all blocks of a declared value.
func fill(v reflect.Value) {
	for _, f := range job.Fields(v.Type()) {
		if f.Kind != job.Block {
			continue
		}
		inner := v.FieldByIndex(f.Index)
		switch inner.Kind() {
		case reflect.Pointer:
			inner.Set(reflect.New(f.ElemType()))
			fill(inner.Elem())
		case reflect.Slice:
			inner.Set(reflect.MakeSlice(inner.Type(), 1, 1))
			fill(inner.Index(0))
		default:
			fill(inner)
		}
	}
}

func holds(t *testing.T, path string, schema *SchemaBlock, values map[string]any) {
	t.Helper()
	for name, v := range values {
		inner := schema.Blocks[name]
		switch {
		case inner == nil && schema.Attributes[name] == nil:
			t.Errorf("%s.%s is not in the schema", path, name)
		case inner == nil:
		case inner.Nesting == "list":
			holds(t, path+"."+name, inner.Block, v.([]any)[0].(map[string]any))
		default:
			holds(t, path+"."+name, inner.Block, v.(map[string]any))
		}
	}
	for name := range schema.Attributes {
		if _, there := values[name]; !there {
			t.Errorf("%s has no %s, which the schema promises", path, name)
		}
	}
	for name := range schema.Blocks {
		if _, there := values[name]; !there {
			t.Errorf("%s has no %s, which the schema promises", path, name)
		}
	}
}

func TestSchemaOfABlock(t *testing.T) {
	type inner struct {
		Name string `hcl:"name,label" doc:"Its name."`
		N    int    `hcl:"n,required" doc:"A number."`
	}
	type block struct {
		List []inner  `hcl:"inner,block" doc:"Things."`
		Tags []string `hcl:"tags,optional"`
	}
	b := schemaBuilder{typeOf: func(t reflect.Type) cty.Type {
		return map[reflect.Kind]cty.Type{reflect.String: cty.String, reflect.Int: cty.Number, reflect.Slice: cty.List(cty.String)}[t.Kind()]
	}}
	got, err := b.block(reflect.TypeFor[block](), "")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"attributes":{"tags":{"type":["list","string"],"description_kind":"plain","optional":true}},` +
		`"block_types":{"inner":{"nesting_mode":"list","block":{"attributes":{` +
		`"n":{"type":"number","description":"A number.","description_kind":"plain","required":true},` +
		`"name":{"type":"string","description":"Its name.","description_kind":"plain","required":true}},` +
		`"description":"Things.","description_kind":"plain"}}},"description_kind":"plain"}`
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}
