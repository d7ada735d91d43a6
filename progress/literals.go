package progress

import (
	"bytes"
	"math"
	"regexp/syntax"
	"slices"
	"strings"
)

// required is the longest literal that every match of an expression contains.
func required(e *syntax.Regexp) string {
	switch e.Op {
	case syntax.OpLiteral:
		if e.Flags&syntax.FoldCase == 0 {
			return string(e.Rune)
		}
	case syntax.OpCapture, syntax.OpPlus:
		return required(e.Sub[0])
	case syntax.OpRepeat:
		if e.Min > 0 {
			return required(e.Sub[0])
		}
	case syntax.OpConcat:
		longest := ""
		for _, sub := range e.Sub {
			if l := required(sub); len(l) > len(longest) {
				longest = l
			}
		}
		return longest
	}
	return ""
}

// literals finds which patterns may match a line, in one pass however many there are: a training may print 100 MB/s, and hardly any
// of it is progress.
type literals struct {
	texts [][]byte
	// pairs has, for two bytes, which of lists is of the literals that contain them at a place of each's own; 0 is none.
	pairs *[1 << 16]uint8
	lists [][]anchored
	// partial is set if a pattern has no literal with an id.
	partial bool
}

// anchored is a literal that contains a pair of bytes.
type anchored struct {
	id int
	at int // of the second byte
}

// index collects the literals of the patterns, and sets the patterns' ids.
func index(recognizers []recognizer) literals {
	l := literals{pairs: new([1 << 16]uint8), lists: make([][]anchored, 1)}
	for _, r := range recognizers {
		for i := range r.patterns {
			p := &r.patterns[i]
			p.id = -1
			if len(p.literal) < 2 {
				l.partial = true
				continue
			}
			p.id = slices.IndexFunc(l.texts, func(t []byte) bool { return string(t) == p.literal })
			if p.id < 0 {
				p.id = l.add(p.literal)
			}
		}
	}
	return l
}

// add returns the id of a literal; -1 if there are too many pairs.
func (l *literals) add(text string) int {
	a := anchored{len(l.texts), rarePair(text)}
	list := &l.pairs[uint16(text[a.at-1])<<8|uint16(text[a.at])]
	if *list == 0 {
		if len(l.lists) > math.MaxUint8 {
			l.partial = true
			return -1
		}
		*list = uint8(len(l.lists))
		l.lists = append(l.lists, nil)
	}
	l.lists[*list] = append(l.lists[*list], a)
	l.texts = append(l.texts, []byte(text))
	return a.id
}

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

// in notes in found, by id, which literals a line contains, and reports whether there is any.
func (l *literals) in(line []byte, found []bool) (some bool) {
	var two uint16
	for i, c := range line {
		two = two<<8 | uint16(c)
		list := l.pairs[two]
		if list == 0 {
			continue
		}
		for _, a := range l.lists[list] {
			if !found[a.id] && i >= a.at && bytes.HasPrefix(line[i-a.at:], l.texts[a.id]) {
				found[a.id], some = true, true
			}
		}
	}
	return some
}

// words are those in Recognizer.Unless.
type words struct {
	whole    map[string]bool
	prefixes []string
}

const maxWord = 24 // bytes

func isWord(w string) bool {
	w = strings.TrimSuffix(w, "*")
	return w != "" && len(w) <= maxWord && !strings.ContainsFunc(w, func(c rune) bool { return c < 'a' || c > 'z' })
}

func newWords(texts []string) words {
	w := words{whole: map[string]bool{}}
	for _, t := range texts {
		if prefix, is := strings.CutSuffix(t, "*"); is {
			w.prefixes = append(w.prefixes, prefix)
		} else {
			w.whole[t] = true
		}
	}
	return w
}

// in reports whether a line has one of the words. val_loss is another word than val.
func (w *words) in(line []byte) bool {
	if len(w.whole) == 0 && len(w.prefixes) == 0 {
		return false
	}
	var lower [maxWord]byte
	for i := 0; i < len(line); {
		begin := i
		for i < len(line) && isLetter(line[i]) {
			i++
		}
		if n := i - begin; n > 0 && !(begin > 0 && line[begin-1] == '_') && !(i < len(line) && line[i] == '_') {
			word := lower[:min(n, maxWord)]
			for k := range word {
				word[k] = line[begin+k] | 0x20
			}
			if n <= maxWord && w.whole[string(word)] || w.begins(word) {
				return true
			}
		}
		if i == begin {
			i++
		}
	}
	return false
}

func (w *words) begins(word []byte) bool {
	for _, p := range w.prefixes {
		if word[0] == p[0] && strings.HasPrefix(string(word), p) {
			return true
		}
	}
	return false
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
