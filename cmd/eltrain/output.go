package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/state"
)

// outputLook shows outputs of the last apply.
type outputLook struct {
	json, raw bool
	name      string // "" for all
}

func outputCommand() *command {
	return lookCommand(command{
		name: "output", usage: "[options] [NAME]",
		synopsis: "Show the outputs of the last apply",
		about: `Shows the values of the outputs that the last apply stored in the state, all or the one called NAME. Those of a module
are module.MODULE.NAME. Sensitive values are not in the state, and are not shown.`,
	}, 1, func() *outputLook { return new(outputLook) })
}

func (o *outputLook) declare(fs *flags) {
	fs.BoolVar(&o.json, "json", false, "Print JSON.")
	fs.BoolVar(&o.raw, "raw", false, "Print the string, number or bool NAME as it is, for scripts.")
}

func (o *outputLook) take(_ *session, others []string) error {
	if len(others) > 0 {
		o.name = others[0]
	}
	switch {
	case o.raw && o.name == "":
		return errors.New("-raw prints one output: name it")
	case o.raw && o.json:
		return errors.New("-raw and -json cannot be used together")
	}
	return nil
}

func (o *outputLook) look(s *session, _ *workspace.Workspace, stored state.State) error {
	all := stored.Outputs
	switch {
	case o.name != "":
		v, known := all[o.name]
		if !known {
			return fmt.Errorf("the state has no output %q%s The next apply stores those that were added to the files",
				o.name, view.DidYouMean(o.name, slices.Collect(maps.Keys(all))))
		}
		return o.one(s, v)
	case o.json:
		return view.WriteOutputsJSON(s.streams.Out, all)
	case len(all) == 0:
		s.diagnose(view.Caution("No outputs found", "The state has no outputs. Declare them as output blocks; the next apply stores their values."))
		return nil
	}
	view.ListOutputs(s.streams.Out, all)
	return nil
}

// one prints one output's value.
func (o *outputLook) one(s *session, v state.Value) error {
	if v.Sensitive {
		return fmt.Errorf("the output %q is sensitive: its value is not in the state", o.name)
	}
	text, err := view.OutputText(v)+"\n", error(nil)
	switch {
	case o.raw:
		if text, err = view.RawOutput(v); err != nil {
			return fmt.Errorf("the output %q cannot be printed with -raw: %w", o.name, err)
		}
	case o.json:
		var compact bytes.Buffer
		if err = json.Compact(&compact, v.Value); err != nil {
			return fmt.Errorf("the output %q in the state: %w", o.name, err)
		}
		text = compact.String() + "\n"
	}
	_, err = io.WriteString(s.streams.Out, text)
	return err
}
