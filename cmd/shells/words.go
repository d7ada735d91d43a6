// Package shells is what eltrain shares with the user's shells: how they split a line into words and quote a word, which paths they
// complete, and the settings that have them complete eltrain's commands. It must not know the commands.
package shells

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
)

// Words splits as a shell does: at spaces, but not within quotes; a backslash escapes the next
// character, except within single quotes. open: s ends within a quote or after a backslash.
func Words(s string) (words []string, open bool) {
	var word strings.Builder
	var quote rune
	inWord, escaped := false, false
	for _, r := range s {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			inWord, escaped = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			inWord, quote = true, r
		case r == ' ' || r == '\t' || r == '\n':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			inWord = true
			word.WriteRune(r)
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, quote != 0 || escaped
}

// Escaped returns word with a backslash before each character that is special to bash.
func Escaped(word string) string {
	var b strings.Builder
	for _, r := range word {
		if strings.ContainsRune(" \t\\'\"$`*?[]{}()<>|&;!#~", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Files completes a path.
func Files(begun string) []string {
	return entries(begun, func(bool) bool { return true })
}

// Directories completes the path of a directory.
func Directories(begun string) []string {
	return entries(begun, func(directory bool) bool { return directory })
}

// entries lists the paths that begin with begun, hidden ones only once the dot has been typed. A directory ends in a slash.
// If it is the only match, its entries are listed too, since a shell adds a space after the only candidate.
func entries(begun string, wanted func(directory bool) bool) []string {
	dir, prefix := filepath.Split(begun)
	listed, _ := os.ReadDir(cmp.Or(dir, "."))
	var all []string
	for _, e := range listed {
		if !strings.HasPrefix(e.Name(), prefix) || prefix == "" && strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := dir + e.Name()
		info, err := os.Stat(path) // follows links
		directory := err == nil && info.IsDir()
		if !wanted(directory) {
			continue
		}
		if directory {
			path += "/"
		}
		all = append(all, path)
	}
	if len(all) == 1 && strings.HasSuffix(all[0], "/") && all[0] != begun {
		return append(all, entries(all[0], wanted)...)
	}
	return all
}
