package lang

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// maxKnown is above the names of one kind that people give.
const maxKnown = 1000

// suggest is ` Did you mean "x"?` for the known name closest to the given one, or "".
func suggest(given string, known []string) string {
	if name := closest(given, known); name != "" {
		return fmt.Sprintf(" Did you mean %q?", name)
	}
	return ""
}

// closest is the known name that the given one may be a slip of, or "".
func closest(given string, known []string) string {
	if len(given) > 64 || len(known) > maxKnown {
		return "" // no slip of a name, or too many to hold it against at every slip
	}
	best, bestDistance := "", 3
	for _, k := range slices.Sorted(slices.Values(known)) {
		// Case is the commonest slip, whatever the length.
		if strings.EqualFold(given, k) {
			best = k
			break
		}
		if len(k) > 64 {
			continue
		}
		// Half of a short name replaced is another name.
		if d := levenshtein.Distance(given, k, nil); d < bestDistance && d <= max(1, len(k)/2) {
			best, bestDistance = k, d
		}
	}
	return best
}

// list names things for a sentence: "a", "b" and "c".
func list(names []string) string {
	if len(names) < 2 {
		return quoted(names, "")
	}
	last := len(names) - 1
	return quoted(names[:last], ", ") + " and " + quoted(names[last:], "")
}

// quoted puts names in quotes, and a separator between them.
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
