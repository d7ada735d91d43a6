package job

import (
	"maps"
	"slices"
	"strings"
)

// Code names a reason. Codes are stable: programs match them. docs/reasons.md lists them.
type Code string

// Reason is why something is as it is: a code, and what it is about. It holds no sentence: cmd/view has those. What others
// wrote, as a scheduler or an error, is an argument in their own words.
type Reason struct {
	Code Code              `json:"code"`
	Args map[string]string `json:"args,omitempty"`
	// Of are the parts of a list or a cause, as the nodes of a shortage.
	Of []Reason `json:"of,omitempty"`
}

// Because is a reason with arguments: names and values in turn. An empty value is left out.
func Because(code Code, args ...string) Reason {
	r := Reason{Code: code}
	for i := 0; i+1 < len(args); i += 2 {
		if args[i+1] == "" {
			continue
		}
		if r.Args == nil {
			r.Args = make(map[string]string, len(args)/2)
		}
		r.Args[args[i]] = args[i+1]
	}
	return r
}

// Equal reports whether two reasons are the same.
func (r Reason) Equal(o Reason) bool {
	return r.Code == o.Code && maps.Equal(r.Args, o.Args) && slices.EqualFunc(r.Of, o.Of, Reason.Equal)
}

// String is for tests and logs: code(name=value …).
func (r Reason) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r.Args)) {
		parts = append(parts, name+"="+r.Args[name])
	}
	for _, o := range r.Of {
		parts = append(parts, o.String())
	}
	if len(parts) == 0 {
		return string(r.Code)
	}
	return string(r.Code) + "(" + strings.Join(parts, " ") + ")"
}
