package main

import (
	"encoding/json"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
)

func TestProvidersSchemaIsTerraforms(t *testing.T) {
	s := newScreenless("")
	if code := s.run([]string{"providers", "schema", "-json"}); code != exitDone {
		t.Fatalf("exit code %d\n%s", code, s.err.String())
	}
	var schemas tfjson.ProviderSchemas
	if err := json.Unmarshal(s.out.Bytes(), &schemas); err != nil {
		t.Fatal(err)
	}
	for name, typ := range workspace.ProviderTypes() {
		schema := schemas.Schemas[name]
		if schema == nil {
			t.Errorf("there is none for provider %q", name)
			continue
		}
		hasAllFields(t, "provider."+name, typ, schema.ConfigSchema.Block)
		hasAllFields(t, "eltrain_job", reflect.TypeFor[job.Job](), schema.ResourceSchemas["eltrain_job"].Block)
		if schema.ResourceSchemas["eltrain_slot"].Block.Attributes["command"] == nil {
			t.Error("eltrain_slot has no command")
		}
	}
	cpu := schemas.Schemas["local"].ConfigSchema.Block.NestedBlocks["node"].Block.Attributes["cpu"]
	if cpu == nil || cpu.AttributeType.FriendlyName() != "number" || !cpu.Optional || cpu.Description == "" {
		t.Errorf("a node's cpu is %+v", cpu)
	}
}

// hasAllFields checks a schema against a Go type: it has every field, and otherwise only computed attributes.
func hasAllFields(t *testing.T, path string, typ reflect.Type, block *tfjson.SchemaBlock) {
	t.Helper()
	declared := map[string]bool{}
	for _, f := range job.Fields(typ) {
		declared[f.Name] = true
		if f.Kind == job.Block {
			inner := block.NestedBlocks[f.Name]
			if inner == nil {
				t.Errorf("%s.%s is missing", path, f.Name)
				continue
			}
			if (inner.NestingMode == tfjson.SchemaNestingModeList) != f.Repeated() {
				t.Errorf("%s.%s is nested as %q", path, f.Name, inner.NestingMode)
			}
			hasAllFields(t, path+"."+f.Name, f.ElemType(), inner.Block)
			continue
		}
		a := block.Attributes[f.Name]
		if a == nil || a.Required != (f.Kind == job.Required || f.Kind == job.Label) || a.Optional == a.Required || a.Description != f.Doc {
			t.Errorf("%s.%s is %+v", path, f.Name, a)
		}
	}
	for name, a := range block.Attributes {
		if !declared[name] && !a.Computed {
			t.Errorf("%s.%s is declared nowhere", path, name)
		}
	}
}

func TestProvidersSchemaWantsJSON(t *testing.T) {
	for args, want := range map[string]string{
		"providers schema":         "-json is required",
		"providers schema -json x": "not expected",
		"providers":                "Subcommands:\n    schema    ",
		"providers schem":          `Did you mean "schema"?`,
	} {
		s := newScreenless("")
		if code := s.run(strings.Fields(args)); code != exitError || !strings.Contains(s.err.String(), want) || s.out.Len() > 0 {
			t.Errorf("%s: exit code %d, %s%s", args, code, s.out.String(), s.err.String())
		}
	}
}

func TestValidateJSONIsTerraforms(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		code   int
		errors int
	}{
		"valid":   {consoleJobs, exitDone, 0},
		"invalid": {consoleJobs + "job \"b\" {\n  prority = 1\n  role \"w\" {\n    command = [var.nn]\n  }\n}\n", exitError, 2},
		"empty":   {"", exitError, 1},
		"cut":     {"job \"a\" {", exitError, 1},
	} {
		t.Run(name, func(t *testing.T) {
			jobDir(t, c.text)
			s := newScreenless("")
			code := s.run([]string{"validate", "-json"})
			dec := json.NewDecoder(&s.out)
			dec.DisallowUnknownFields()
			var got tfjson.ValidateOutput
			if err := dec.Decode(&got); err != nil {
				t.Fatal(err)
			}
			if code != c.code || got.Valid != (code == exitDone) || got.ErrorCount != c.errors || len(got.Diagnostics) != c.errors+got.WarningCount || s.err.Len() > 0 {
				t.Errorf("exit code %d, %+v, errors %q", code, got, s.err.String())
			}
			for _, d := range got.Diagnostics {
				if d.Severity == "" || d.Summary == "" || c.text != "" && (d.Range == nil || d.Range.Filename != "job.hcl" || d.Snippet == nil) {
					t.Errorf("a diagnostic is %+v", d)
				}
			}
		})
	}
}

func TestVersionJSON(t *testing.T) {
	for _, args := range [][]string{{"version", "-json"}, {"version"}, {"-version"}} {
		s := newScreenless("")
		if code := s.run(args); code != exitDone || !strings.Contains(s.out.String(), version) || !strings.Contains(s.out.String(), platform()) {
			t.Errorf("%v: exit code %d, %s", args, code, s.out.String())
		}
		if !slices.Contains(args, "-json") {
			continue
		}
		var got map[string]string
		if err := json.Unmarshal(s.out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if got["eltrain_version"] != version || got["platform"] != platform() || got["go"] != runtime.Version() {
			t.Errorf("it is %v", got)
		}
	}
}
