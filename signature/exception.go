package signature

import (
	"regexp"
	"slices"
	"strings"
)

// chain is the exceptions of which each but the last brought about the next one, with the lines of their tracebacks. An exception group
// is replaced by those that it is made of.
type chain struct {
	texts []string
	trace []string
}

// aside is how much a traceback says of the end of the process, by the line before it.
type aside int

const (
	primary aside = iota
	other         // it is of a thread or a child process, or of a library that failed while the process ended
	ignored       // the program goes on
)

// output is what was found in the last lines of a process.
type output struct {
	chains [ignored][]chain // by aside, in order
	quoted []bool           // by line: it is a frame of a traceback, or the program's source
}

// endings are the chains that may have ended the process, in order.
func (o *output) endings() []chain {
	if len(o.chains[primary]) > 0 {
		return o.chains[primary]
	}
	return o.chains[other]
}

// read finds the tracebacks of Python in lines, and what C++ says of an exception that nobody caught.
func read(lines []string) output {
	p := parser{lines: lines, output: output{quoted: make([]bool, len(lines))}}
	for i := range lines {
		p.read(i)
	}
	return p.output
}

// parser reads tracebacks line by line.
type parser struct {
	lines  []string
	output output

	in     bool   // within a traceback
	frames bool   // of which a frame was read
	margin string // what an exception group puts before its lines; "" outside of one
	begin  int    // where the chain's first traceback begins
	of     aside
	joined bool // the next traceback belongs to the same chain
	added  bool // the chain is among those of output
	texts  []string
}

func (p *parser) read(i int) {
	line := p.lines[i]
	if strings.HasPrefix(line, "  ") {
		if rule := groupRule.FindStringSubmatch(line); rule != nil {
			p.readRule(i, rule[1], rule[2] != "")
			return
		}
	}
	margin := marginOf(line)
	switch inside := line[len(margin):]; {
	case isHeader(inside), isFrame(inside):
		p.margin, line = strings.Replace(margin, "+", "|", 1), inside
	case strings.HasPrefix(line, p.margin):
		line = line[len(p.margin):]
	default: // Python 3.11 puts no margin before the further lines of a message
		return
	}
	what, thrown := strings.CutPrefix(line, "  what():  ")
	switch {
	case thrown && i > 0 && strings.HasPrefix(p.lines[i-1], "terminate called after throwing an instance of "):
		p.add(other, chain{texts: []string{what}, trace: p.lines[i-1 : i+1]})
	case isHeader(line):
		p.start(i)
		p.frames = false
	case isFrame(line):
		if !p.in { // the head is not among the last lines, or it is a syntax error of the main file, which has none
			p.start(i)
		}
		p.frames, p.output.quoted[i] = true, true
	case !p.in:
		p.joined = p.joined || line == joinedByContext || line == joinedByCause
	case isIndented(line):
		p.frames = p.frames || strings.HasPrefix(line, "╰")
		p.output.quoted[i] = true
	case p.frames && isException(line) && (strings.Contains(line, ":") || isIndented(p.lines[i-1])):
		p.in = false
		p.texts = append(p.texts, line)
		p.put(i)
	}
}

// readRule reads the line before an exception of a group, or, if it closes, the one after the last.
func (p *parser) readRule(i int, indent string, closes bool) {
	if closes {
		if p.margin != "" && p.added {
			p.put(i)
		}
		if len(indent) == outermost {
			p.margin = ""
		}
		p.in, p.joined = false, false
		return
	}
	if p.margin == "" { // the head is not among the last lines
		p.start(i)
	}
	if n := len(p.texts); strings.HasSuffix(indent, "+-") && n > 0 && groupItself.MatchString(p.texts[n-1]) {
		p.texts = slices.Clip(p.texts[:n-1])
	}
	p.margin = strings.Repeat(" ", len(indent)) + "| "
	p.in, p.frames, p.joined, p.output.quoted[i] = true, true, true, true
}

// put makes the chain, up to line i, one of output.
func (p *parser) put(i int) {
	if last := p.output.chains; p.added && p.of != ignored {
		last[p.of] = last[p.of][:len(last[p.of])-1]
	}
	p.add(p.of, chain{texts: p.texts, trace: p.lines[p.begin : i+1]})
	p.added = true
}

func (p *parser) add(of aside, c chain) {
	if of != ignored {
		p.output.chains[of] = append(p.output.chains[of], c)
	}
}

const (
	joinedByContext = "During handling of the above exception, another exception occurred:"
	joinedByCause   = "The above exception was the direct cause of the following exception:"
)

// What Python's traceback module prints of an exception group (PEP 654): a rule before each of its exceptions and after the last, two
// columns further for each group within another, and the same margin before the lines between them.
var (
	groupRule   = regexp.MustCompile(`^( +(?:\+-)?)\+-{16}(?: (?:\d+|\.\.\.) -{16}|(-{20}))$`)
	groupItself = regexp.MustCompile(` \(\d+ sub-exceptions?\)$`)
)

// outermost is the column of the rules of a group that is within no other.
const outermost = 4

// marginOf is the margin of a line of an exception group; "" if there is none.
func marginOf(line string) string {
	inside := strings.TrimLeft(line, " ")
	if indent := len(line) - len(inside); indent >= 2 && (strings.HasPrefix(inside, "| ") || strings.HasPrefix(inside, "+ ")) {
		return line[:indent+2]
	}
	return ""
}

// start begins a traceback at line i.
func (p *parser) start(i int) {
	if !p.joined {
		p.begin, p.texts, p.added, p.of = i, nil, false, p.asideOf(i)
	}
	p.in, p.frames, p.joined = true, false, false
}

func (p *parser) asideOf(i int) aside {
	for i--; i >= 0 && p.lines[i] == ""; i-- {
	}
	if i < 0 {
		return primary
	}
	for _, start := range []string{"Exception ignored in", "Error in atexit", "--- Logging error ---"} {
		if strings.HasPrefix(p.lines[i], start) {
			return ignored
		}
	}
	for _, start := range []string{"Exception in thread ", "Process "} {
		if strings.HasPrefix(p.lines[i], start) && strings.HasSuffix(p.lines[i], ":") {
			return other
		}
	}
	return primary
}

// isHeader reports whether a line begins a traceback: Python's own, or rich's in a box.
func isHeader(line string) bool {
	return strings.HasSuffix(line, "Traceback (most recent call last):") || strings.HasPrefix(line, "╭") && strings.Contains(line, " Traceback (most recent call last) ")
}

// isFrame reports whether a line names a frame of Python's traceback. Those of faulthandler, which lists no exception, differ.
func isFrame(line string) bool {
	if !strings.HasPrefix(line, "  ") || !strings.HasPrefix(strings.TrimLeft(line, " "), `File "`) {
		return false
	}
	_, at, ok := strings.Cut(line, `", line `)
	at = strings.TrimLeft(at, "0123456789")
	return ok && (at == "" || strings.HasPrefix(at, ", in "))
}

func isIndented(line string) bool {
	return strings.HasPrefix(line, " ") || strings.HasPrefix(line, "│") || strings.HasPrefix(line, "╰")
}

// isException reports whether a line begins with the name of a class, qualified or not, which is all of it or followed by a colon.
// INFO: is no class.
func isException(line string) bool {
	name, _, _ := strings.Cut(line, ":")
	small := false
	for i, c := range name {
		switch {
		case c >= 'a' && c <= 'z':
			small = true
		case c >= 'A' && c <= 'Z' || c == '_':
		case i > 0 && (c >= '0' && c <= '9' || c == '.'):
		default:
			return false
		}
	}
	return small
}
