package job

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// Address is the permanent address of a slot: job.NAME.ROLE[INDEX]. It is independent of the processes in it.
type Address struct {
	Job   string
	Role  string
	Index int
}

func (a Address) String() string { return "job." + a.Job + "." + a.Short() }

// Short returns the address within its job: worker[3].
func (a Address) Short() string { return a.Role + "[" + strconv.Itoa(a.Index) + "]" }

func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

func (a *Address) UnmarshalText(b []byte) (err error) {
	*a, err = ParseAddress(string(b))
	return err
}

// Compare orders addresses by job, role, then index as a number.
func (a Address) Compare(b Address) int {
	if c := strings.Compare(a.Job, b.Job); c != 0 {
		return c
	}
	if c := strings.Compare(a.Role, b.Role); c != 0 {
		return c
	}
	return a.Index - b.Index
}

// ParseAddress parses the address of one slot.
func ParseAddress(s string) (Address, error) {
	sel, err := ParseSelector(s)
	if err != nil {
		return Address{}, err
	}
	if sel.Role == "" || len(sel.Ranges) != 1 || sel.Ranges[0][0] != sel.Ranges[0][1] {
		return Address{}, fmt.Errorf("%q is not one slot's address: write job.NAME.ROLE[INDEX]", s)
	}
	return Address{sel.Job, sel.Role, sel.Ranges[0][0]}, nil
}

// ParseShort parses an address within a job, as agents send it: worker[3].
func ParseShort(job, s string) (Address, error) { return ParseAddress("job." + job + "." + s) }

// Selector selects a job, a role, one slot or a set of slots, as commands take it.
// Role is "" for the whole job; Ranges is nil for all slots of the role, otherwise inclusive index ranges.
type Selector struct {
	Job    string
	Role   string
	Ranges [][2]int
	// Declared is the text given to ParseTarget, up to the role: the address of a module or job as declared. If it omits
	// keys, it stands for several jobs, see Covers. Job is "" for a module.
	Declared string `json:",omitempty"`
}

// maxIndex bounds the indices of a selector, so that a range cannot mean billions of slots.
const maxIndex = 1_000_000

// ParseSelector parses job.NAME, job.NAME.ROLE, job.NAME.ROLE[3], …[0-3,7] and …[*]. An instance of for_each, or a
// job in a module, may also be written as declared: job.NAME["KEY"] is job.NAME-KEY, and module.M["KEY"].job.NAME
// is job.M-KEY-NAME (see InstanceName).
func ParseSelector(s string) (Selector, error) {
	sel, err := ParseTarget(s)
	if err == nil && sel.Job == "" {
		return Selector{}, fmt.Errorf("%q is not the address of a job: write module.NAME.job.NAME", s)
	}
	sel.Declared = ""
	return sel, err
}

// ParseTarget parses what ParseSelector does, and also module.M and module.M["KEY"].
func ParseTarget(s string) (Selector, error) {
	bad := func(why string) (Selector, error) {
		return Selector{}, fmt.Errorf("%q is not an address (%s): write job.NAME, job.NAME.ROLE, job.NAME.ROLE[3], [0-3,7] or [*], prefixed with module.NAME. in a module", s, why)
	}
	var path []string
	rest := s
	for strings.HasPrefix(rest, "module.") {
		parts, after, ok := cutInstance(rest[len("module."):])
		switch {
		case !ok:
			return bad("the module's name or key is missing or malformed")
		case after == "":
			return Selector{Declared: s}, nil
		case after[0] == '[' && len(parts) == 1:
			return bad(unquotedKey(strings.TrimSuffix(s, after)))
		case after[0] != '.':
			return bad("expected \".\" after the module")
		}
		path, rest = append(path, parts...), after[1:]
	}
	rest, ok := strings.CutPrefix(rest, "job.")
	if !ok {
		return bad(`it does not begin with "job."`)
	}
	parts, rest, ok := cutInstance(rest)
	name := InstanceName(append(path, parts...)...)
	if !ok || !ValidName(name) {
		return bad("the job's name is missing or malformed")
	}
	declared := strings.TrimSuffix(s, rest)
	if rest == "" {
		return Selector{Job: name, Declared: declared}, nil
	}
	if rest[0] == '[' && len(parts) == 1 {
		return bad(unquotedKey(declared))
	}
	rest, ok = strings.CutPrefix(rest, ".")
	if !ok {
		return bad("expected \".\" after the job's name")
	}
	role, set, hasSet := strings.Cut(rest, "[")
	if !ValidName(role) {
		return bad("the role's name is missing or malformed")
	}
	sel := Selector{Job: name, Role: role, Declared: declared}
	if !hasSet {
		return sel, nil
	}
	set, ok = strings.CutSuffix(set, "]")
	if !ok {
		return bad(`"]" is missing`)
	}
	if set == "*" {
		return sel, nil
	}
	ranges, malformed, ok := parseRanges(set)
	if !ok {
		return bad(fmt.Sprintf("%q is not an index or a range", malformed))
	}
	sel.Ranges = ranges
	return sel, nil
}

// unquotedKey is the error about anything but a quoted key in brackets after the address of a job or module, such as
// job.NAME[*].
func unquotedKey(address string) string {
	return fmt.Sprintf(`a for_each key must be quoted: %s["KEY"]; without a key, %s selects all of them`, address, address)
}

// InstanceName returns the name of a job in modules or with a for_each key: names and keys, from the outermost module
// inwards, joined by "-". So it can be used like any other name, in addresses, labels and file names.
func InstanceName(parts ...string) string { return strings.Join(parts, "-") }

// cutInstance parses NAME or NAME["KEY"] at the beginning of s, and returns the rest.
func cutInstance(s string) (parts []string, rest string, ok bool) {
	end := strings.IndexAny(s, ".[")
	if end < 0 {
		end = len(s)
	}
	name, rest := s[:end], s[end:]
	parts = []string{name}
	if key, quoted := strings.CutPrefix(rest, `["`); quoted {
		key, rest, ok = strings.Cut(key, `"]`)
		if !ok || !ValidName(key) {
			return nil, "", false
		}
		parts = append(parts, key)
	}
	return parts, rest, ValidName(name)
}

// parseRanges parses 0-3,7. If ok is false, malformed is the first invalid part.
func parseRanges(set string) (ranges [][2]int, malformed string, ok bool) {
	for _, part := range strings.Split(set, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		if !isRange {
			hi = lo
		}
		from, _ := strconv.Atoi(lo)
		to, _ := strconv.Atoi(hi)
		if from < 0 || to < from || to > maxIndex || strconv.Itoa(from) != lo || strconv.Itoa(to) != hi { // one way to write an index
			return nil, part, false
		}
		ranges = append(ranges, [2]int{from, to})
	}
	return ranges, "", true
}

// Matches reports whether s selects the slot a.
func (s Selector) Matches(a Address) bool {
	if a.Job != s.Job || s.Role != "" && a.Role != s.Role {
		return false
	}
	for _, r := range s.Ranges {
		if r[0] <= a.Index && a.Index <= r[1] {
			return true
		}
	}
	return len(s.Ranges) == 0
}

// Overlaps reports whether some slot is selected by both.
func (s Selector) Overlaps(other Selector) bool {
	if s.Job != other.Job || s.Role != "" && other.Role != "" && s.Role != other.Role {
		return false
	}
	for _, r := range s.Ranges {
		for _, o := range other.Ranges {
			if r[0] <= o[1] && o[0] <= r[1] {
				return true
			}
		}
	}
	return len(s.Ranges) == 0 || len(other.Ranges) == 0
}

// Covers reports whether Declared includes a job: it is in that module, or it is that job, where an omitted key matches
// any key. address is the job's declared address: module.eval["de"].job.gpt.
func (s Selector) Covers(address string) bool {
	wanted, path := Steps(s.Declared), Steps(address)
	if len(wanted) == 0 || len(wanted) > len(path) {
		return false
	}
	for i, w := range wanted {
		if w.Kind != path[i].Kind || w.Name != path[i].Name || w.Key != "" && w.Key != path[i].Key {
			return false
		}
	}
	return true
}

// Step is one part of a declared address: module.eval["de"]. Key is "" if it has none.
type Step struct{ Kind, Name, Key string }

// Steps splits the address of a module or job; it returns nil for other addresses.
func Steps(address string) []Step {
	var out []Step
	for address != "" {
		kind, rest, _ := strings.Cut(address, ".")
		parts, after, ok := cutInstance(rest)
		if !ok {
			return nil
		}
		st := Step{Kind: kind, Name: parts[0]}
		if len(parts) > 1 {
			st.Key = parts[1]
		}
		out = append(out, st)
		address = strings.TrimPrefix(after, ".")
	}
	return out
}

// Declared joins steps to an address.
func Declared(steps []Step) string {
	parts := make([]string, len(steps))
	for i, st := range steps {
		parts[i] = st.Kind + "." + st.Name
		if st.Key != "" {
			parts[i] += "[" + strconv.Quote(st.Key) + "]"
		}
	}
	return strings.Join(parts, ".")
}

func (s Selector) String() string {
	if s.Job == "" {
		return s.Declared
	}
	out := "job." + s.Job
	if s.Role == "" {
		return out
	}
	out += "." + s.Role
	if s.Ranges == nil {
		return out
	}
	return out + "[" + rangesText(s.Ranges) + "]"
}

// Fold formats several slots of one role: worker[0-3,7].
func Fold(role string, indices []int) string {
	sorted := append([]int(nil), indices...)
	sort.Ints(sorted)
	var ranges [][2]int
	for _, i := range sorted {
		if n := len(ranges); n > 0 && i <= ranges[n-1][1]+1 {
			ranges[n-1][1] = i
			continue
		}
		ranges = append(ranges, [2]int{i, i})
	}
	return role + "[" + rangesText(ranges) + "]"
}

func rangesText(ranges [][2]int) string {
	parts := make([]string, len(ranges))
	for i, r := range ranges {
		parts[i] = strconv.Itoa(r[0])
		if r[1] != r[0] {
			parts[i] += "-" + strconv.Itoa(r[1])
		}
	}
	return strings.Join(parts, ",")
}

// ValidName reports whether s can be the name of a job, a role or a node: letters, digits, "-" and "_", at most 63
// (the limit of a Kubernetes label), beginning with a letter or digit.
func ValidName(s string) bool {
	if len(s) == 0 || len(s) > 63 || s[0] == '-' || s[0] == '_' {
		return false
	}
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_') {
			return false
		}
	}
	return true
}

// ValidUID reports whether s can be a job's UID. It is the name of a directory and a label.
func ValidUID(s string) bool { return ValidName(s) }
