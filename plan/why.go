package plan

import (
	"fmt"
	"slices"
	"strings"
)

// declarationChanged is why a slot is replaced that is declared otherwise than it was started.
const declarationChanged = "its declaration changed"

// maxWhy is how many fields Why names: which others there are the plan shows.
const maxWhy = 3

// Why is a change's most telling reason in short, for a line of its own: of an edit with the names of what was edited. It is
// "" if there is none.
func (c *Change) Why() string {
	if len(c.Reasons) == 0 {
		return ""
	}
	why := strings.TrimSuffix(c.Reasons[0], ".")
	if why != declarationChanged || c.Launch != nil || len(c.Fields) == 0 { // the Fields of a start are all of its
		return why
	}
	var names []string
	for _, f := range c.Fields {
		name := strings.TrimPrefix(f.Path, "role."+c.Slot.Role+".")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if more := len(names) - maxWhy; more > 0 {
		names = append(names[:maxWhy], fmt.Sprintf("%d more", more))
	}
	return why + ": " + strings.Join(names, ", ")
}
