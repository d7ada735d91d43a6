package signature

import "strings"

// chain is the exceptions of which each but the last brought about the next one, with the lines of their tracebacks.
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

	in     bool // within a traceback
	frames bool // of which a frame was read
	begin  int  // where the chain's first traceback begins
	of     aside
	joined bool // the next traceback belongs to the same chain
	texts  []string
}

func (p *parser) read(i int) {
	line := p.lines[i]
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
		c := chain{texts: p.texts, trace: p.lines[p.begin : i+1]}
		if len(p.texts) > 1 { // the chain goes on
			last := p.output.chains[p.of]
			p.output.chains[p.of] = last[:len(last)-1]
		}
		p.add(p.of, c)
	}
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

// start begins a traceback at line i.
func (p *parser) start(i int) {
	if !p.joined {
		p.begin, p.texts, p.of = i, nil, p.asideOf(i)
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
