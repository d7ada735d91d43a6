package preview

import (
	"strconv"
	"strings"

	"github.com/eltrain/eltrain/lang"
)

// Settings returns what a plan is applied with besides its jobs and that is not the default, a line for each block. The reader
// of a saved plan may not have the files.
func Settings(cfg *lang.Config) (lines []string) {
	settings := cfg.Settings
	settings.RequiredVersion = "" // a plan file has a version of its own
	add := func(block string, value any) {
		if arguments := lang.Differing(value); len(arguments) > 0 {
			lines = append(lines, block+": "+strings.Join(arguments, ", "))
		}
	}
	add("eltrain", settings)
	for _, p := range cfg.Providers {
		add("provider "+strconv.Quote(p.Name), p.Value)
	}
	return lines
}
