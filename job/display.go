package job

import "unicode"

// Displayable reports whether a character of a foreign text may be sent to a terminal: it is no control character other than a
// tab or newline, and none that reorders text, with which a line can show as another (Unicode's Bidi_Control).
func Displayable(r rune) bool {
	return r == '\t' || r == '\n' || !unicode.IsControl(r) && !unicode.Is(unicode.Bidi_Control, r)
}
