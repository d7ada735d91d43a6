package signature

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/eltrain/eltrain/internal/literals"
	"github.com/eltrain/eltrain/job"
)

// What is looked at of an exit. An agent sends less.
const (
	maxLines = 64   // the last of the output, and the first of the message
	maxLine  = 1024 // bytes
)

// Match is the signature that an exit has.
type Match struct {
	Name      string
	Cause     job.Cause
	Permanent bool
	Hint      Hint
	Line      string   // that matched, without colors and a rank's prefix
	Trace     []string // the traceback of the exception that ended the process, up to the exception; nil if there is none
}

// Classify finds the signature of an exit in its error file and its last output. Of an exit that others brought about, by a signal or
// because memory ran out, output says nothing.
func (t *Table) Classify(e *job.Exit) (Match, bool) {
	if !ownFailure(e) {
		return Match{}, false
	}
	c := classification{table: t, code: e.Code, best: len(t.signatures), found: make([]bool, t.literals.Len())}
	tail, message := clean(lastLines(e.Tail)), clean(firstLines(e.Message))
	printed, said := read(tail), read(message)
	if len(said.endings()) == 0 && len(message) > 0 && isException(message[0]) {
		said.chains[primary] = []chain{{texts: message[:1], trace: message}} // an error file has an exception without its traceback
	}
	c.exceptions(printed.endings(), said.endings())
	c.anyLines(tail, printed.quoted)
	c.anyLines(message, said.quoted)
	if c.best == len(t.signatures) {
		return Match{}, false
	}
	s := &t.signatures[c.best]
	return Match{Name: s.Name, Cause: s.Cause, Permanent: s.Permanent, Hint: s.Hint, Line: strings.TrimSpace(c.line), Trace: c.trace}, true
}

// ownFailure reports whether a process ended by itself: it exited, or did what its system kills it for.
func ownFailure(e *job.Exit) bool {
	if e == nil || e.NotStarted != "" || e.OOM || e.Code == 0 {
		return false
	}
	switch e.Signal {
	case "killed", "terminated", "interrupt", "hangup", "quit":
		return false
	}
	return true
}

// classification is the search for one exit's signature.
type classification struct {
	table *Table
	code  int
	best  int    // the first signature so far
	line  string // that it matches
	trace []string
	found []bool // literals in a line
}

// exceptions takes the exceptions that may have ended the process: those printed last and those of its error file. If they say only
// that something else failed, those before count.
func (c *classification) exceptions(printed, said []chain) {
	chains := slices.Clone(printed)
	if len(said) > 0 {
		last := said[len(said)-1]
		if n := len(chains); n > 0 {
			last = chain{texts: slices.Concat(chains[n-1].texts, last.texts), trace: chains[n-1].trace}
			chains = chains[:n-1]
		}
		chains = append(chains, last)
	}
	if len(chains) > 0 {
		c.trace = chains[len(chains)-1].trace
	}
	for _, one := range slices.Backward(chains) {
		i, line := c.chain(one.texts)
		if i < c.best && (c.best == len(c.table.signatures) || c.table.signatures[i].Cause != job.ProcessFailed) {
			c.best, c.line, c.trace = i, line, one.trace
		}
		if c.best < len(c.table.signatures) && c.table.signatures[c.best].Cause != job.ProcessFailed {
			return
		}
	}
}

// chain finds the signature of a chain. One that is passing counts before one that is permanent, because handling the former brought
// about the latter. Those that are vague come last. Among equals the table decides, and if that is the same signature, the first
// exception is meant, of vague ones the last.
func (c *classification) chain(texts []string) (i int, line string) {
	none := len(c.table.signatures)
	rank := func(i int) int {
		switch {
		case i == none:
			return 3
		case c.table.signatures[i].Vague:
			return 2
		case c.table.signatures[i].Permanent:
			return 1
		}
		return 0
	}
	i = none
	for _, text := range texts {
		k := c.first(text, none, true)
		if rank(k) < rank(i) || rank(k) == rank(i) && (k < i || k == i && rank(i) == 2) {
			i, line = k, text
		}
	}
	return i, line
}

// anyLines takes lines that may be anything, except those that are quoted.
func (c *classification) anyLines(lines []string, quoted []bool) {
	for n, line := range lines {
		if quoted[n] {
			continue
		}
		if i := c.first(line, c.best, false); i < c.best {
			c.best, c.line = i, line
		}
	}
}

// first is the first signature before a given one that a line has, and of an exception, one that is not vague if there is one; the
// given one if there is none.
func (c *classification) first(line string, before int, exception bool) int {
	clear(c.found)
	if some := c.table.literals.In([]byte(line), c.found); !some && !exception && !c.table.partial {
		return before
	}
	vague := before
	for i := range before {
		s := &c.table.signatures[i]
		if s.Exception && !exception || s.ExitCode != 0 && s.ExitCode != c.code || s.Vague && vague < before {
			continue
		}
		if !c.matches(s.patterns, line) || c.matches(s.unless, line) {
			continue
		}
		if !s.Vague || !exception {
			return i
		}
		vague = i
	}
	return vague
}

func (c *classification) matches(patterns []pattern, line string) bool {
	return slices.ContainsFunc(patterns, func(p pattern) bool {
		return (p.id == literals.None || c.found[p.id]) && p.compile().MatchString(line)
	})
}

func lastLines(lines []string) []string { return lines[max(0, len(lines)-maxLines):] }

func firstLines(text string) []string {
	if text == "" {
		return nil
	}
	lines := strings.SplitN(text, "\n", maxLines+1)
	return lines[:min(len(lines), maxLines)]
}

// clean returns the lines without colors and the prefix of a rank, none too long.
func clean(lines []string) []string {
	cleaned := make([]string, len(lines))
	for i, line := range lines {
		line = line[:min(len(line), maxLine)]
		if !utf8.ValidString(line) { // also a character that was cut
			line = strings.ToValidUTF8(line, "\uFFFD")
		}
		cleaned[i] = strings.TrimRight(withoutRank(withoutColors(line)), "\r")
	}
	return cleaned
}

// withoutColors removes escape sequences of colors (SGR). Agents replace the escape character.
func withoutColors(line string) string {
	if strings.IndexByte(line, '\x1b') < 0 && !strings.Contains(line, "\uFFFD[") {
		return line
	}
	var b strings.Builder
	for len(line) > 0 {
		at := strings.IndexAny(line, "\x1b\uFFFD")
		if at < 0 {
			break
		}
		b.WriteString(line[:at])
		_, size := utf8.DecodeRuneInString(line[at:])
		rest := strings.TrimLeft(strings.TrimPrefix(line[at+size:], "["), "0123456789;")
		if after, ok := strings.CutPrefix(rest, "m"); ok && strings.HasPrefix(line[at+size:], "[") {
			line = after
			continue
		}
		b.WriteString(line[at : at+size])
		line = line[at+size:]
	}
	b.WriteString(line)
	return b.String()
}

// withoutRank removes the prefix that PyTorch puts before a rank's exception ("[rank3]: "), or torchrun before each line
// ("[default3]:").
func withoutRank(line string) string {
	inside, after, ok := strings.Cut(line, "]:")
	if !ok || !strings.HasPrefix(inside, "[") {
		return line
	}
	name := strings.TrimRight(inside[1:], "0123456789")
	if name == inside[1:] || name != "rank" && name != "default" && name != "" {
		return line
	}
	if name == "rank" {
		return strings.TrimPrefix(after, " ")
	}
	return after
}
