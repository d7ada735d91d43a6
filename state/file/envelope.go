package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"github.com/eltrain/eltrain/state"
)

// envelope is the file's content. The checksum is over the state's JSON without white space, so that
// changing indentation or line endings is no damage.
type envelope struct {
	Checksum *string         `json:"checksum"`
	State    json.RawMessage `json:"state"`
}

// accepted, in place of the checksum, confirms that an edit was intended. The next write restores a real
// checksum.
const accepted = "accept"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(compact []byte) string {
	return fmt.Sprintf("crc32c:%08x", crc32.Checksum(compact, castagnoli))
}

// encode returns the file's content: indented, for people and for diff.
func encode(s state.State) ([]byte, error) {
	compact, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	content := make([]byte, 0, 3*len(compact))
	content = fmt.Appendf(content, "{\n  \"checksum\": %q,\n  \"state\": ", checksum(compact))
	content = appendIndented(content, compact, 1)
	return append(content, "\n}\n"...), nil
}

// appendIndented appends compact as json.Indent formats it, for JSON written by json.Marshal. json.Indent would validate it
// again, which takes as long as the rest of a write.
func appendIndented(to, compact []byte, depth int) []byte {
	newline := func() {
		to = append(to, '\n')
		for range depth {
			to = append(to, "  "...)
		}
	}
	for i := 0; i < len(compact); i++ {
		switch c := compact[i]; c {
		case '"':
			end := i + 1
			for compact[end] != '"' {
				if compact[end] == '\\' {
					end++
				}
				end++
			}
			to = append(to, compact[i:end+1]...)
			i = end
		case '{', '[':
			to = append(to, c)
			if compact[i+1] == c+2 { // empty: '}' is '{'+2, and ']' is '['+2
				to = append(to, c+2)
				i++
				continue
			}
			depth++
			newline()
		case '}', ']':
			depth--
			newline()
			to = append(to, c)
		case ',':
			to = append(to, c)
			newline()
		case ':':
			to = append(to, ": "...)
		default:
			to = append(to, c)
		}
	}
	return to
}

// contentError says what is wrong with a file's content.
type contentError struct {
	problem string
	remedy  string // a full sentence, or ""
	err     error
}

func (e *contentError) Error() string { return e.problem }
func (e *contentError) Unwrap() error { return e.err }

// Inside extracts the state's own JSON, as state.Parse reads it, from the content of a state file, and checks its checksum.
// Other content is returned unchanged.
func Inside(content []byte) ([]byte, error) {
	var e envelope
	if err := json.Unmarshal(content, &e); err != nil || e.Checksum == nil || len(e.State) == 0 {
		return content, nil
	}
	err := e.check(content)
	if wrong := (*contentError)(nil); errors.As(err, &wrong) && wrong.remedy != "" {
		err = fmt.Errorf("%w. %s", err, wrong.remedy)
	}
	return e.State, err
}

// decode reads a file's content. Every error is a *contentError.
func decode(content []byte) (state.State, error) {
	var e envelope
	if err := json.Unmarshal(content, &e); err != nil {
		return state.State{}, &contentError{problem: unreadable(content, err), err: err}
	}
	if e.Checksum == nil || len(e.State) == 0 {
		return state.State{}, &contentError{problem: `it is JSON but not an eltrain state: "checksum" or "state" is missing`}
	}
	if err := e.check(content); err != nil {
		return state.State{}, err
	}
	var s state.State
	if err := json.Unmarshal(e.State, &s); err != nil {
		return state.State{}, &contentError{problem: fmt.Sprintf("it does not contain an eltrain state: %v", err), err: err}
	}
	if s.Version < 1 || s.Serial == 0 || s.Lineage == "" {
		return state.State{}, &contentError{problem: "it does not contain an eltrain state: version, serial or lineage is missing"}
	}
	for name, r := range s.Jobs {
		if r == nil {
			return state.State{}, &contentError{problem: fmt.Sprintf("it does not contain an eltrain state: the record of job %q is null", name)}
		}
	}
	return s, nil
}

// check returns an error unless the version of the state is supported and its checksum matches. content is the whole file.
// Every error is a *contentError.
func (e *envelope) check(content []byte) error {
	// The version comes first: a newer format may be checked differently.
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(e.State, &head); err != nil {
		return &contentError{problem: fmt.Sprintf("it is JSON but not an eltrain state: %v", err), err: err}
	}
	if head.Version > state.Version {
		err := &state.VersionError{Version: head.Version}
		return &contentError{problem: err.Error(), err: err}
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, e.State); err != nil {
		return &contentError{problem: unreadable(content, err), err: err}
	}
	if want, got := *e.Checksum, checksum(compact.Bytes()); want != accepted && want != got {
		return &contentError{
			problem: fmt.Sprintf("it was changed after eltrain wrote it: its checksum is %q, its content gives %q", want, got),
			remedy:  fmt.Sprintf(`If the edit was intended, set its "checksum" to %q.`, accepted),
		}
	}
	return nil
}

// unreadable describes content that is not JSON by what probably happened to it.
func unreadable(content []byte, err error) string {
	if len(content) == 0 {
		return "the file is empty"
	}
	if len(bytes.Trim(content, "\x00")) == 0 {
		return "the file contains only zero bytes, as after a power failure"
	}
	if strings.TrimSpace(string(content)) == "" {
		return "the file contains only white space"
	}
	if cutShort(content) {
		return fmt.Sprintf("the file is truncated after %d bytes", len(content))
	}
	if syntax := new(json.SyntaxError); errors.As(err, &syntax) {
		return fmt.Sprintf("it is not JSON: line %d: %v", 1+bytes.Count(content[:min(int(syntax.Offset), len(content))], []byte("\n")), err)
	}
	return fmt.Sprintf("it is not an eltrain state: %v", err)
}

// cutShort reports whether content is a truncated JSON object.
func cutShort(content []byte) bool {
	var v json.RawMessage
	err := json.NewDecoder(bytes.NewReader(content)).Decode(&v)
	return errors.Is(err, io.ErrUnexpectedEOF) && bytes.HasPrefix(bytes.TrimSpace(content), []byte("{"))
}

// quote quotes a path for a shell.
func quote(path string) string {
	if !strings.ContainsFunc(path, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+,@%", r))
	}) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
