package view

import (
	"fmt"

	"github.com/eltrain/eltrain/plan"
)

// planCounts returns what a plan will do, in Terraform's words: "1 to import, 2 to add, 0 to change, 0 to destroy."
func planCounts(n plan.Summary) string {
	text := fmt.Sprintf("%d to add, %d to change, %d to destroy.", n.Add, n.Change, n.Remove)
	if n.Import > 0 {
		return fmt.Sprintf("%d to import, %s", n.Import, text)
	}
	return text
}

// doneCounts returns what was done: "1 imported, 2 added, 0 changed, 0 destroyed."
func doneCounts(n plan.Summary) string {
	text := fmt.Sprintf("%d added, %d changed, %d destroyed.", n.Add, n.Change, n.Remove)
	if n.Import > 0 {
		return fmt.Sprintf("%d imported, %s", n.Import, text)
	}
	return text
}

// destroyedCount returns what a destroy has done: "2 destroyed."
func destroyedCount(n plan.Summary) string { return fmt.Sprintf("%d destroyed.", n.Remove) }
