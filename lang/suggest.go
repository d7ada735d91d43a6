package lang

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// maxKnown bounds the work of a suggestion. Hardly any directory has as many names of one kind.
const maxKnown = 1000

// suggest returns ` Did you mean "x"?` with the known name closest to the given one, or "".
func suggest(given string, known []string) string {
	if name := closest(given, known); name != "" {
		return fmt.Sprintf(" Did you mean %q?", name)
	}
	return ""
}

// closest returns the known name that the given one may be a misspelling of, or "".
func closest(given string, known []string) string {
	if len(given) > 64 || len(known) > maxKnown {
		return "" // not a misspelling, or too many names to compare
	}
	best, bestDistance := "", 3
	for _, k := range slices.Sorted(slices.Values(known)) {
		// Wrong case is the most common mistake, at any length.
		if strings.EqualFold(given, k) {
			best = k
			break
		}
		if len(k) > 64 {
			continue
		}
		// With half of its letters replaced, a short name is another name.
		if d := levenshtein.Distance(given, k, nil); d < bestDistance && d <= max(1, len(k)/2) {
			best, bestDistance = k, d
		}
	}
	return best
}

// list formats names for a sentence: "a", "b" and "c".
func list(names []string) string {
	if len(names) < 2 {
		return quoted(names, "")
	}
	last := len(names) - 1
	return quoted(names[:last], ", ") + " and " + quoted(names[last:], "")
}

// quoted quotes names and joins them with a separator.
func quoted(names []string, separator string) string {
	quotes := make([]string, len(names))
	for i, n := range names {
		quotes[i] = fmt.Sprintf("%q", n)
	}
	return strings.Join(quotes, separator)
}

// suggestKey is suggest for the keys of a map.
func suggestKey[T any](given string, known map[string]T) string {
	if len(known) > maxKnown {
		return ""
	}
	return suggest(given, slices.Collect(maps.Keys(known)))
}
