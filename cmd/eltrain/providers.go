package main

import (
	"errors"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/lang"
)

type schemaArgs struct{ json bool }

func (a *schemaArgs) declare(fs *flags) {
	fs.BoolVar(&a.json, "json", false, "Print JSON.")
}

func (a *schemaArgs) take(*session, []string) error {
	if !a.json {
		return errors.New("-json is required: the schemas have no other format")
	}
	return nil
}

func providersCommand() *command {
	return group("providers", "Describe the providers",
		"Describes the providers that are compiled into this eltrain.", providersSchemaCommand())
}

func providersSchemaCommand() *command {
	return taking(command{
		name: "providers schema", usage: "-json",
		synopsis: "Print the providers' schemas",
		about: `Prints the arguments of each provider's block, and the attributes of jobs (eltrain_job) and slots (eltrain_slot)
in plans and in the state, with types and descriptions. No file is read and nothing is contacted.

The JSON has the format of terraform providers schema -json, with format_version 1.0. There is no other output, so
-json is required.`,
	}, 0, (*session).providersSchema)
}

func (s *session) providersSchema(*schemaArgs) int {
	schemas, err := view.NewSchemas(view.SchemaFacts{Providers: workspace.ProviderTypes(), TypeOf: lang.ValueType})
	if err != nil {
		return s.fail("Cannot make the schemas", err)
	}
	if err := view.WriteJSON(s.streams.Out, schemas); err != nil {
		return s.fail("Cannot show the schemas", err)
	}
	return exitDone
}
