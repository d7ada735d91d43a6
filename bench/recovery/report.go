//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/bench/internal/report"
)

// A result holds all measurements, by launcher and scenario.
type result struct {
	machine   string
	bound     time.Duration
	pgTimeout time.Duration
	launchers []launcher
	scenarios []scenario
	samples   map[[2]string][]sample // by launcher and scenario
	notes     []string               // what was skipped, and why; what failed
}

func (r *result) add(l launcher, sc scenario, s sample) {
	key := [2]string{l.Name(), sc.name}
	r.samples[key] = append(r.samples[key], s)
}

func (r *result) of(l launcher, sc scenario) []sample {
	return r.samples[[2]string{l.Name(), sc.name}]
}

// write renders the report as Markdown.
func (r *result) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Recovery times\n\n%s\n\n", r.machine)
	for _, l := range r.launchers {
		fmt.Fprintf(&b, "- **%s**: %s\n", l.Name(), l.Describe())
	}
	for _, n := range r.notes {
		fmt.Fprintf(&b, "- %s\n", n)
	}

	fmt.Fprintf(&b, "\n## From the incident to the last rank's first step\n\n"+
		"Seconds, median [min..max] n; below it, less the import of the slowest rank. "+
		"-> is the size of the world that stepped again, where it was not 4. Given up after %v; collectives time out after %v.\n\n", r.bound, r.pgTimeout)
	r.table(&b, r.launchers, func(l launcher, sc scenario) string {
		s := r.of(l, sc)
		if len(s) == 0 {
			return ""
		}
		text := r.times(s, func(s sample) float64 { return s.total }) + sizes(s)
		if slices.ContainsFunc(s, sample.ended) {
			text += "<br>" + r.times(s, func(s sample) float64 { return s.launcher })
		}
		return text
	})

	ours, others := split(r.launchers)
	for _, l := range ours {
		if len(others) == 0 {
			break
		}
		fmt.Fprintf(&b, "\n## %s relative to the others' median, total (and less import)\n\n", l.Name())
		r.table(&b, others, func(other launcher, sc scenario) string {
			total := r.ratio(l, other, sc, func(s sample) float64 { return s.total })
			net := r.ratio(l, other, sc, func(s sample) float64 { return s.launcher })
			if total == "" {
				return ""
			}
			return total + " (" + net + ")"
		})
	}

	b.WriteString("\n## Memory of an agent\n\nMB, median over jobs of the mean over their agents.\n\n" +
		"| launcher | RSS | PSS | private | its service's private |\n|---|---|---|---|---|\n")
	for _, l := range r.launchers {
		var all []sample
		for _, sc := range r.scenarios {
			all = append(all, r.of(l, sc)...)
		}
		if len(all) == 0 {
			continue
		}
		mb := func(kb func(memory) int) string {
			var v []float64
			for _, s := range all {
				v = append(v, float64(kb(s.memory))/1000)
			}
			m, _, _ := spread(v)
			return fmt.Sprintf("%.1f", m)
		}
		service := mb(func(m memory) int { return m.service.private })
		if service == "0.0" {
			service = ""
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", l.Name(), mb(func(m memory) int { return m.agent.rss }),
			mb(func(m memory) int { return m.agent.pss }), mb(func(m memory) int { return m.agent.private }), service)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// table writes a row for each scenario, with a column for each launcher.
func (r *result) table(b *strings.Builder, launchers []launcher, cell func(launcher, scenario) string) {
	b.WriteString("| incident |")
	for _, l := range launchers {
		fmt.Fprintf(b, " %s |", l.Name())
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(launchers)) + "\n")
	for _, sc := range r.scenarios {
		fmt.Fprintf(b, "| %s |", sc.title)
		for _, l := range launchers {
			fmt.Fprintf(b, " %s |", cell(l, sc))
		}
		b.WriteString("\n")
	}
}

// split separates eltrain's variants from the launchers that they are compared with.
func split(all []launcher) (ours, others []launcher) {
	for _, l := range all {
		if _, ok := l.(eltrain); ok {
			ours = append(ours, l)
		} else {
			others = append(others, l)
		}
	}
	return ours, others
}

// times formats the median and spread of the samples within the bound.
func (r *result) times(samples []sample, of func(sample) float64) string {
	var in []float64
	for _, s := range samples {
		if s.ended() {
			in = append(in, of(s))
		}
	}
	if len(in) == 0 {
		return fmt.Sprintf("not in %.0f n=%d", r.bound.Seconds(), len(samples))
	}
	median, least, most := spread(in)
	text := fmt.Sprintf("%.2f [%.2f..%.2f] n=%d", median, least, most, len(in))
	if missing := len(samples) - len(in); missing > 0 {
		text += fmt.Sprintf(", %d more not in %.0f", missing, r.bound.Seconds())
	}
	return text
}

// ratio formats a's median over b's; "" if any of their samples exceeded the bound.
func (r *result) ratio(a, b launcher, sc scenario, of func(sample) float64) string {
	median := func(l launcher) float64 {
		var v []float64
		for _, s := range r.of(l, sc) {
			if !s.ended() {
				return 0
			}
			v = append(v, of(s))
		}
		m, _, _ := spread(v)
		return m
	}
	x, y := median(a), median(b)
	if x <= 0 || y <= 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", x/y)
}

func sizes(samples []sample) string {
	var seen []string
	for _, s := range samples {
		if text := fmt.Sprint(s.size); s.ended() && s.size != agents && !slices.Contains(seen, text) {
			seen = append(seen, text)
		}
	}
	if len(seen) == 0 {
		return ""
	}
	slices.Sort(seen)
	return " -> " + strings.Join(seen, ", ")
}

// spread returns median, minimum and maximum; zeros for no values.
func spread(v []float64) (median, least, most float64) {
	if len(v) == 0 {
		return 0, 0, 0
	}
	return report.Median(v), slices.Min(v), slices.Max(v)
}
