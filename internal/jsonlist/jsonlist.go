// Package jsonlist parses JSON lists that users write.
package jsonlist

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Parse parses a JSON list of at most so many bytes, whose items have no unknown fields; "" is no list. The error has the line of a
// syntax error.
func Parse[T any](text string, most int) (list []T, err error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > most {
		return nil, fmt.Errorf("it has %d bytes: at most %d are possible", len(text), most)
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&list); err != nil {
		at := d.InputOffset()
		var syntax *json.SyntaxError
		var mistyped *json.UnmarshalTypeError
		switch {
		case errors.As(err, &syntax):
			at = syntax.Offset
		case errors.Is(err, io.ErrUnexpectedEOF):
			at = int64(len(text))
		case errors.As(err, &mistyped):
			at = mistyped.Offset
		}
		return nil, fmt.Errorf("%w in line %d", err, 1+strings.Count(text[:min(int(at), len(text))], "\n"))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("unexpected data after the list")
	}
	return list, nil
}
