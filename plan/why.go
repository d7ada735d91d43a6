package plan

import (
	"slices"
	"strconv"
	"strings"

	"github.com/eltrain/eltrain/job"
)

// maxWhy is how many fields Why names. The plan shows the others.
const maxWhy = 3

// Why is a change's most significant reason; for an edit, with the names of the edited fields. It is zero if there is none.
func (c *Change) Why() job.Reason {
	if len(c.Reasons) == 0 {
		return job.Reason{}
	}
	why := c.Reasons[0]
	if why.Code != DeclarationChanged || c.Launch != nil || len(c.Fields) == 0 { // a start lists all of the role's fields
		return why
	}
	var names []string
	for _, f := range c.Fields {
		name := strings.TrimPrefix(f.Path, "role."+c.Slot.Role+".")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	more := ""
	if left := len(names) - maxWhy; left > 0 {
		names, more = names[:maxWhy], strconv.Itoa(left)
	}
	return job.Because(why.Code, "fields", strings.Join(names, ", "), "more", more)
}
