package view

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/job"
)

// schemaFormatVersion is the version of terraform providers schema -json that the schemas follow.
const schemaFormatVersion = "1.0"

// SchemaFacts is what the schemas are shown from.
type SchemaFacts struct {
	// Providers are the types of the providers' blocks, with the tags that job.Fields reads.
	Providers map[string]reflect.Type
	// TypeOf returns the type that values of a Go type have in the language.
	TypeOf func(reflect.Type) cty.Type
}

// Schemas is the JSON of providers schema -json, in Terraform's form: for each provider its own block, and the objects
// of plans and the state. It is made from the Go types that the language is decoded into.
type Schemas struct {
	FormatVersion string                     `json:"format_version"`
	Providers     map[string]*ProviderSchema `json:"provider_schemas"`
}

// ProviderSchema is the schema of one provider. The objects are the same for all.
type ProviderSchema struct {
	Provider    *Schema            `json:"provider"`
	Resources   map[string]*Schema `json:"resource_schemas"`
	DataSources map[string]*Schema `json:"data_source_schemas"`
}

// Schema is the schema of a block, with its version.
type Schema struct {
	Version uint64       `json:"version"`
	Block   *SchemaBlock `json:"block"`
}

// SchemaBlock is what may be in a block. Labels are attributes, as they are in plans.
type SchemaBlock struct {
	Attributes      map[string]*SchemaAttribute `json:"attributes,omitempty"`
	Blocks          map[string]*SchemaNested    `json:"block_types,omitempty"`
	Description     string                      `json:"description,omitempty"`
	DescriptionKind string                      `json:"description_kind"`
}

// SchemaNested is a block in a block.
type SchemaNested struct {
	Nesting string       `json:"nesting_mode"` // "single" or "list"
	Block   *SchemaBlock `json:"block"`
}

// SchemaAttribute is an argument, or with Computed what only eltrain sets.
type SchemaAttribute struct {
	Type            json.RawMessage `json:"type"` // as cty writes types
	Description     string          `json:"description,omitempty"`
	DescriptionKind string          `json:"description_kind"`
	Required        bool            `json:"required,omitempty"`
	Optional        bool            `json:"optional,omitempty"`
	Computed        bool            `json:"computed,omitempty"`
}

// plainDescription is Terraform's kind of a description that is not Markdown.
const plainDescription = "plain"

// NewSchemas makes the schemas.
func NewSchemas(f SchemaFacts) (*Schemas, error) {
	b := schemaBuilder{typeOf: f.TypeOf}
	jobs, err := b.block(reflect.TypeFor[job.Job](), "A training job.")
	if err != nil {
		return nil, err
	}
	slots, err := b.block(reflect.TypeFor[job.Role](), "A slot: one member of a role, and what it runs.")
	if err != nil {
		return nil, err
	}
	for _, ofRole := range notOfSlots {
		delete(slots.Attributes, ofRole)
		delete(slots.Blocks, ofRole)
	}
	b.compute(jobs, "uid", cty.String, "The job's unique ID. A later job of the same name has another.")
	b.compute(slots, "job", cty.String, "The job's name.")
	b.compute(slots, "role", cty.String, "The role's name.")
	b.compute(slots, "node", cty.String, "Where it runs.")
	b.compute(slots, "incarnation", cty.Number, "Which start of the slot it is, counted from 1.")
	out := &Schemas{FormatVersion: schemaFormatVersion, Providers: map[string]*ProviderSchema{}}
	for name, t := range f.Providers {
		own, err := b.block(t, "")
		if err != nil {
			return nil, fmt.Errorf("provider %q: %w", name, err)
		}
		out.Providers[name] = &ProviderSchema{
			Provider:    &Schema{Block: own},
			Resources:   map[string]*Schema{jobType: {Block: jobs}, slotType: {Block: slots}},
			DataSources: map[string]*Schema{},
		}
	}
	return out, b.err
}

type schemaBuilder struct {
	typeOf func(reflect.Type) cty.Type
	err    error // of a computed attribute
}

func (b *schemaBuilder) compute(to *SchemaBlock, name string, t cty.Type, doc string) {
	text, err := json.Marshal(t)
	if err != nil {
		b.err = err
	}
	to.Attributes[name] = &SchemaAttribute{Type: text, Description: doc, DescriptionKind: plainDescription, Computed: true}
}

// block returns the schema of a struct type.
func (b *schemaBuilder) block(t reflect.Type, doc string) (*SchemaBlock, error) {
	out := &SchemaBlock{
		Attributes: map[string]*SchemaAttribute{}, Blocks: map[string]*SchemaNested{},
		Description: doc, DescriptionKind: plainDescription,
	}
	for _, f := range job.Fields(t) {
		if f.Kind == job.Block {
			inner, err := b.block(f.ElemType(), f.Doc)
			if err != nil {
				return nil, err
			}
			out.Blocks[f.Name] = &SchemaNested{Nesting: nestingOf(f), Block: inner}
			continue
		}
		text, err := json.Marshal(b.typeOf(f.Type))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		needed := f.Kind == job.Required || f.Kind == job.Label
		out.Attributes[f.Name] = &SchemaAttribute{
			Type: text, Description: f.Doc, DescriptionKind: plainDescription, Required: needed, Optional: !needed,
		}
	}
	return out, nil
}

func nestingOf(f job.Field) string {
	if f.Repeated() {
		return "list"
	}
	return "single"
}
