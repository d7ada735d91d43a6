package main

import (
	"errors"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/lang"
)

type schemaArgs struct{ json bool }

func (a *schemaArgs) declare(fs *flags) {
	fs.BoolVar(&a.json, "json", false, "Print the schemas as JSON. That is the only form, and the option is required, as Terraform's is.")
}

func providersCommand() *command {
	return group("providers", "Show what the providers of this eltrain take",
		"Shows what is known of the providers that are compiled into this eltrain.", providersSchemaCommand())
}

func providersSchemaCommand() *command {
	return &command{
		name: "providers schema", usage: "-json",
		synopsis: "Describe what may be written, for tools",
		about: `Prints, for each provider of this eltrain, what its block may have in it, and the attributes of jobs (eltrain_job)
and slots (eltrain_slot) as they are in plans and in the state, with types and meanings. No file is read and nothing
is contacted.

The JSON is that of terraform providers schema -json, with format_version 1.0.`,
		declare: new(schemaArgs).declare,
		run:     runProvidersSchema,
	}
}

func runProvidersSchema(s *session, args []string) int {
	var a schemaArgs
	_, err := s.parse(newFlags("providers schema", a.declare), args, 0)
	if err == nil && !a.json {
		err = errors.New("-json is required: the schemas have no other form")
	}
	if err != nil {
		return s.misused("providers schema", err)
	}
	schemas, err := view.NewSchemas(view.SchemaFacts{Providers: s.options(nil).Providers, TypeOf: lang.ValueType})
	if err != nil {
		return s.fail("The schemas cannot be made", err)
	}
	if err := view.WriteJSON(s.streams.Out, schemas); err != nil {
		return s.fail("The schemas cannot be shown", err)
	}
	return exitDone
}
