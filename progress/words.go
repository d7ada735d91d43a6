package progress

import "strings"

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
