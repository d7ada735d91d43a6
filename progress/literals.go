package progress

import "github.com/eltrain/eltrain/internal/literals"

// index collects the literals of all patterns: a training may print 100 MB/s, and hardly any of it is progress.
func (t *Table) index() {
	for _, r := range t.recognizers {
		for i := range r.patterns {
			p := &r.patterns[i]
			p.id = t.literals.Add(p.literal)
			t.partial = t.partial || p.id == literals.None
		}
	}
}
