package agent

import (
	"encoding/json"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/job"
)

const (
	// maxErrorFile bounds what is read of an error file. It has an exception's text twice, once in the call stack, and the text
	// can be long: a large model whose checkpoint does not fit names each of its tensors.
	maxErrorFile = 4 << 20
	maxMessage   = 8 << 10 // the first part of its message is kept, up to the service's limit
)

// failure is the content of a process's error file.
type failure struct {
	message string
	at      int64     // Unix seconds; 0 if absent
	written time.Time // the file's own time
}

// readErrorFile reads torchelastic's JSON, which has two forms: "message" is an object with a message and extraInfo (as @record
// writes it), or a plain string with the timestamp next to it. Any other content is taken as plain text. ok is false if there
// is no file or it is empty.
func readErrorFile(path string) (f failure, ok bool) {
	file, err := regular.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return failure{}, false
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxErrorFile))
	if err != nil || len(strings.TrimSpace(string(text))) == 0 {
		return failure{}, false
	}
	info, err := file.Stat()
	if err != nil {
		return failure{}, false
	}
	f = parseErrorFile(text)
	f.written = info.ModTime()
	return f, true
}

func parseErrorFile(text []byte) failure {
	var outer struct {
		Message   json.RawMessage `json:"message"`
		Timestamp timestamp       `json:"timestamp"`
	}
	if json.Unmarshal(text, &outer) != nil || outer.Message == nil {
		return failure{message: message(string(text))}
	}
	var plain string
	if json.Unmarshal(outer.Message, &plain) == nil {
		return failure{message: message(plain), at: int64(outer.Timestamp)}
	}
	var inner struct {
		Message   string `json:"message"`
		ExtraInfo struct {
			Timestamp timestamp `json:"timestamp"`
		} `json:"extraInfo"`
	}
	if json.Unmarshal(outer.Message, &inner) != nil || inner.Message == "" {
		return failure{message: message(string(text))}
	}
	return failure{message: message(inner.Message), at: int64(inner.ExtraInfo.Timestamp)}
}

// timestamp is Unix seconds, written as a number or as a string. Anything else counts as absent.
type timestamp int64

func (t *timestamp) UnmarshalJSON(b []byte) error {
	seconds, err := strconv.ParseFloat(strings.Trim(string(b), `"`), 64)
	if err == nil && seconds > 0 && seconds < 1<<40 {
		*t = timestamp(seconds)
	}
	return nil
}

// message is the part of a message that is kept.
func message(s string) string {
	return sanitize(s[:min(len(s), maxMessage)])
}

// sanitize makes text safe for JSON and for a terminal: UTF-8, only displayable characters, no trailing white space.
func sanitize(s string) string {
	s = strings.Map(func(r rune) rune {
		if job.Displayable(r) {
			return r
		}
		return unicode.ReplacementChar
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return strings.TrimRightFunc(s, unicode.IsSpace)
}
