package job

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Code identifies a reason, in snake_case. Codes are stable; docs/reasons.md lists them.
type Code string

// Verbatim is a reason that only has a message: from another system, or from an older version that stored sentences.
const Verbatim Code = "verbatim"

// Reason explains something by a code with arguments. It is an immutable value and may be shared; the views render it as a
// sentence.
type Reason struct {
	Code Code              `json:"code"`
	Args map[string]string `json:"args,omitempty"`
	// Of are its parts: the nodes of a shortage, or the underlying cause.
	Of []Reason `json:"of,omitempty"`
}

// Because returns a reason with arguments, given as alternating names and values. Arguments with the value "" are
// omitted.
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

// With returns the reason with the given parts.
func (r Reason) With(parts ...Reason) Reason {
	r.Of = parts
	return r
}

// IsZero reports whether there is no reason.
func (r Reason) IsZero() bool { return r.Code == "" }

// Equal reports whether two reasons are the same.
func (r Reason) Equal(other Reason) bool {
	return r.Code == other.Code && maps.Equal(r.Args, other.Args) && slices.EqualFunc(r.Of, other.Of, Reason.Equal)
}

// Map returns the reason with by applied to each argument; r itself if nothing changes.
func (r Reason) Map(by func(string) string) Reason {
	r.Of = MapReasons(r.Of, by)
	var mapped map[string]string
	for name, value := range r.Args {
		is := by(value)
		if is == value {
			continue
		}
		if mapped == nil {
			mapped = maps.Clone(r.Args)
		}
		mapped[name] = is
	}
	if mapped != nil {
		r.Args = mapped
	}
	return r
}

// MapReasons applies Map to each reason; it returns the same slice if nothing changes.
func MapReasons(reasons []Reason, by func(string) string) []Reason {
	same := true
	for i := range reasons {
		is := reasons[i].Map(by)
		if same && !is.Equal(reasons[i]) {
			reasons, same = slices.Clone(reasons), false
		}
		if !same {
			reasons[i] = is
		}
	}
	return reasons
}

// String formats the reason for logs and tests: code(arg=value …), with its parts in braces.
func (r Reason) String() string {
	var b strings.Builder
	r.write(&b)
	return b.String()
}

func (r Reason) write(b *strings.Builder) {
	b.WriteString(string(r.Code))
	for i, name := range slices.Sorted(maps.Keys(r.Args)) {
		if i == 0 {
			b.WriteByte('(')
		} else {
			b.WriteByte(' ')
		}
		value := r.Args[name]
		if strings.ContainsAny(value, " \"(){}\n") {
			value = strconv.Quote(value)
		}
		b.WriteString(name + "=" + value)
	}
	if len(r.Args) > 0 {
		b.WriteByte(')')
	}
	for i, part := range r.Of {
		if i == 0 {
			b.WriteByte('{')
		} else {
			b.WriteString(", ")
		}
		part.write(b)
	}
	if len(r.Of) > 0 {
		b.WriteByte('}')
	}
}

// UnmarshalJSON also accepts a string, as Verbatim: older versions stored sentences.
func (r *Reason) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		var message string
		if err := json.Unmarshal(text, &message); err != nil {
			return err
		}
		*r = Because(Verbatim, "message", message)
		return nil
	}
	type plain Reason
	return json.Unmarshal(text, (*plain)(r))
}
