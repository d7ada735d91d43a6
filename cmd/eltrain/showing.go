package main

import "github.com/eltrain/eltrain/cmd/view"

// showing are the options of a command that shows something.
type showing struct {
	json bool
	vars assignments
}

func (a *showing) declare(fs *flags) {
	fs.BoolVar(&a.json, "json", false, "Print JSON.")
	a.vars.declare(fs)
	declareTrust(fs)
}

// show writes a model as JSON or, by text, as text.
func (a *showing) show(s *session, model any, text func() error) error {
	if a.json {
		return view.WriteJSON(s.streams.Out, model)
	}
	return text()
}
