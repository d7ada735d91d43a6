// Package literals finds which of many fixed texts a line contains, in one pass however many there are, so that regular expressions
// are tried only on lines that they may match.
package literals

import (
	"bytes"
	"math"
	"regexp/syntax"
	"slices"
)

// Required is the longest fixed text that every match of an expression contains; "" if there is none.
func Required(e *syntax.Regexp) string {
	switch e.Op {
	case syntax.OpLiteral:
		if e.Flags&syntax.FoldCase == 0 {
			return string(e.Rune)
		}
	case syntax.OpCapture, syntax.OpPlus:
		return Required(e.Sub[0])
	case syntax.OpRepeat:
		if e.Min > 0 {
			return Required(e.Sub[0])
		}
	case syntax.OpConcat:
		longest := ""
		for _, sub := range e.Sub {
			if l := Required(sub); len(l) > len(longest) {
				longest = l
			}
		}
		return longest
	}
	return ""
}

// None is the id of a text that a Set does not have.
const None = -1

// Set is a set of texts. The zero value is empty.
type Set struct {
	texts [][]byte
	// pairs has, for two bytes, which of lists is of the texts that contain them at a place of each's own; 0 is none.
	pairs *[1 << 16]uint8
	lists [][]anchored
}

// anchored is a text that contains a pair of bytes.
type anchored struct {
	id int
	at int // of the second byte
}

// Add returns the id of a text, which counts from 0; None if it has less than two bytes, or if there are too many texts.
func (s *Set) Add(text string) (id int) {
	if len(text) < 2 {
		return None
	}
	if id = slices.IndexFunc(s.texts, func(t []byte) bool { return string(t) == text }); id >= 0 {
		return id
	}
	if s.pairs == nil {
		s.pairs, s.lists = new([1 << 16]uint8), make([][]anchored, 1)
	}
	a := anchored{len(s.texts), rarePair(text)}
	list := &s.pairs[uint16(text[a.at-1])<<8|uint16(text[a.at])]
	if *list == 0 {
		if len(s.lists) > math.MaxUint8 {
			return None
		}
		*list = uint8(len(s.lists))
		s.lists = append(s.lists, nil)
	}
	s.lists[*list] = append(s.lists[*list], a)
	s.texts = append(s.texts, []byte(text))
	return a.id
}

// Len is the number of texts.
func (s *Set) Len() int { return len(s.texts) }

// rarePair is where a pair of bytes ends that is rare in text: the last that is not of small letters only, or the last of letters.
func rarePair(s string) int {
	at := len(s) - 1
	for i := len(s) - 1; i > 0; i-- {
		switch {
		case s[i-1] == ' ' || s[i] == ' ':
		case s[i-1] < 'a' || s[i] < 'a':
			return i
		case s[at-1] == ' ' || s[at] == ' ':
			at = i
		}
	}
	return at
}

// In notes in found, by id, which texts a line contains, and reports whether there is any.
func (s *Set) In(line []byte, found []bool) (some bool) {
	if s.pairs == nil {
		return false
	}
	var two uint16
	for i, c := range line {
		two = two<<8 | uint16(c)
		list := s.pairs[two]
		if list == 0 {
			continue
		}
		for _, a := range s.lists[list] {
			if !found[a.id] && i >= a.at && bytes.HasPrefix(line[i-a.at:], s.texts[a.id]) {
				found[a.id], some = true, true
			}
		}
	}
	return some
}
