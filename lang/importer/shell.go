package importer

import (
	"errors"
	"path"
	"regexp"
	"slices"
	"strings"
)

// part is a piece of a word: literal text, or a variable.
type part struct {
	text     string // literal text; or the source text, if it is a variable or opaque
	variable string
	fallback string // of ${NAME:-fallback}
	opaque   bool   // a command substitution, an arithmetic expression …
}

// word is one word of a command.
type word struct {
	parts      []part
	start, end int // offsets in the script; 0 for a word outside of one
	pattern    bool
}

// literal returns a word's text, if it does not depend on the environment.
func (w word) literal() (string, bool) {
	text, missing := w.expand(nil)
	return text, missing == "" && !w.pattern && !slices.ContainsFunc(w.parts, func(p part) bool { return p.variable != "" })
}

// expand returns the word with the known variables substituted; missing is the first unknown one, as written.
func (w word) expand(known map[string]string) (text, missing string) {
	var b strings.Builder
	for _, p := range w.parts {
		value, ok := known[p.variable]
		switch {
		case p.variable != "" && ok:
			b.WriteString(value)
		case p.variable != "" && p.fallback != "":
			b.WriteString(p.fallback)
		case p.variable != "" || p.opaque:
			b.WriteString(p.text)
			if missing == "" {
				missing = p.text
			}
		default:
			b.WriteString(p.text)
		}
	}
	return b.String(), missing
}

// argumentWord parses a word of a command that is run without a shell.
func argumentWord(text string) word {
	var w word
	last := 0
	for _, m := range reference.FindAllStringSubmatchIndex(text, -1) {
		if m[2] < 0 || !variableName.MatchString(text[m[2]:m[3]]) {
			continue
		}
		if m[0] > last {
			w.parts = append(w.parts, part{text: text[last:m[0]]})
		}
		w.parts = append(w.parts, part{text: text[m[0]:m[1]], variable: text[m[2]:m[3]]})
		last = m[1]
	}
	if last < len(text) || len(w.parts) == 0 {
		w.parts = append(w.parts, part{text: text[last:]})
	}
	return w
}

// statement is one simple command of a script.
type statement struct {
	words []word
	end   int // offset in the script of the end of its last word or redirection
}

// script is a shell script, parsed as far as needed to find a launcher in it.
type script struct {
	text       string
	statements []statement
	// plain: simple commands in sequence, separated by ";", "&&" or newlines, without pipes, redirections, loops or
	// conditions.
	plain bool
}

var errUnclosed = errors.New("a quote or bracket is not closed")

// reserved words start something other than a simple command; after some of them a simple command follows.
var reserved = []string{"if", "then", "elif", "else", "fi", "while", "until", "do", "done", "for", "case", "esac", "{", "}", "!", "function", "select", "trap", "time"}

// parseScript splits a script into simple commands. It is not a full shell parser: a script with anything that it does not
// understand is not plain, and stays a script.
func parseScript(text string) (script, error) {
	l := lexer{text: text, script: script{text: text, plain: true}}
	if err := l.run(); err != nil {
		return script{}, err
	}
	return l.script, nil
}

type lexer struct {
	text       string
	pos        int
	script     script
	current    statement
	redirected bool // the following words of this statement are not arguments
}

func (l *lexer) run() error {
	for l.pos < len(l.text) {
		c := l.text[l.pos]
		switch {
		case c == ' ' || c == '\t' || c == '\r':
			l.pos++
		case strings.HasPrefix(l.text[l.pos:], "\\\n"):
			l.pos += 2
		case c == '#':
			end := strings.IndexByte(l.text[l.pos:], '\n')
			if end < 0 {
				end = len(l.text) - l.pos
			}
			l.pos += end
		case c == '\n' || c == ';':
			l.endStatement()
			l.pos++
		case strings.HasPrefix(l.text[l.pos:], "&&"):
			l.endStatement()
			l.pos += 2
		case c == '<' || c == '>' || strings.HasPrefix(l.text[l.pos:], "&>"):
			l.script.plain, l.redirected = false, true
			l.pos += len(l.text[l.pos:]) - len(strings.TrimLeft(l.text[l.pos:], "<>&"))
		case strings.IndexByte("|&()", c) >= 0:
			l.script.plain = false
			l.endStatement()
			l.pos++
		default:
			if err := l.word(); err != nil {
				return err
			}
		}
	}
	l.endStatement()
	return nil
}

func (l *lexer) endStatement() {
	if len(l.current.words) > 0 {
		l.script.statements = append(l.script.statements, l.current)
	}
	l.current, l.redirected = statement{}, false
}

// word reads one word and adds it to the statement.
func (l *lexer) word() error {
	w := word{start: l.pos}
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			w.parts = append(w.parts, part{text: literal.String()})
			literal.Reset()
		}
	}
	quoted := false // within "…"
	for l.pos < len(l.text) {
		c := l.text[l.pos]
		switch {
		case !quoted && strings.IndexByte(" \t\r\n;|&<>()", c) >= 0:
			flush()
			l.add(w)
			return nil
		case c == '\\' && l.pos+1 < len(l.text):
			next := l.text[l.pos+1]
			if quoted && strings.IndexByte("$`\"\\\n", next) < 0 {
				literal.WriteByte(c)
			}
			if next != '\n' {
				literal.WriteByte(next)
			}
			l.pos += 2
		case c == '\'' && !quoted:
			end := strings.IndexByte(l.text[l.pos+1:], '\'')
			if end < 0 {
				return errUnclosed
			}
			literal.WriteString(l.text[l.pos+1 : l.pos+1+end])
			l.pos += end + 2
		case c == '"':
			quoted = !quoted
			l.pos++
		case c == '$' || c == '`':
			flush()
			p, err := l.expansion()
			if err != nil {
				return err
			}
			w.parts = append(w.parts, p)
		default:
			if !quoted && (strings.IndexByte("*?[{", c) >= 0 || c == '~' && l.pos == w.start) {
				w.pattern = true
			}
			literal.WriteByte(c)
			l.pos++
		}
	}
	if quoted {
		return errUnclosed
	}
	flush()
	l.add(w)
	return nil
}

// add adds a word to the statement. A reserved word is dropped, since a command may follow it.
func (l *lexer) add(w word) {
	w.end = l.pos
	if len(l.current.words) == 0 && slices.Contains(reserved, l.text[w.start:w.end]) {
		l.script.plain = false
		return
	}
	if !l.redirected {
		l.current.words = append(l.current.words, w)
	}
	l.current.end = w.end
}

var shellName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)

// expansion parses an expansion that begins with a dollar or a backquote.
func (l *lexer) expansion() (part, error) {
	start := l.pos
	rest := l.text[l.pos+1:]
	until := func(length int) part {
		l.pos = start + length
		return part{text: l.text[start:l.pos], opaque: true}
	}
	if l.text[l.pos] == '`' {
		end := strings.IndexByte(rest, '`')
		if end < 0 {
			return part{}, errUnclosed
		}
		return until(end + 2), nil
	}
	if name := shellName.FindString(rest); name != "" {
		p := until(1 + len(name))
		return part{text: p.text, variable: name}, nil
	}
	for opener, closer := range map[string]byte{"{": '}', "(": ')'} {
		if !strings.HasPrefix(rest, opener) {
			continue
		}
		length := closing(rest, opener[0], closer)
		if length < 0 {
			return part{}, errUnclosed
		}
		p := until(1 + length)
		inside := rest[1 : length-1]
		name := shellName.FindString(inside)
		after := inside[len(name):]
		// $(NAME) is expanded by Kubernetes before the shell runs.
		if name != "" && (after == "" || opener == "{" && (strings.HasPrefix(after, ":-") || strings.HasPrefix(after, "-"))) {
			p.opaque, p.variable = false, name
			p.fallback = strings.TrimPrefix(strings.TrimPrefix(after, ":"), "-")
			if strings.ContainsAny(p.fallback, "$`\"'\\") {
				p.fallback = ""
			}
		}
		return p, nil
	}
	if rest == "" || strings.IndexByte(" \t\n\"/.,:=", rest[0]) >= 0 {
		l.pos++
		return part{text: "$"}, nil // a literal dollar
	}
	return until(min(2, 1+len(rest))), nil // $1, $@, $'…
}

// closing returns the length of a bracketed text, including the brackets; -1 if it is not closed.
func closing(text string, opener, closer byte) int {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case opener:
			depth++
		case closer:
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

var shells = []string{"sh", "bash", "dash", "ash", "zsh"}

// shellScript finds the script in the words of a command: sh -c "…". ordinary is false if the shell cannot be removed:
// interactive and login shells, for example, read startup files.
func shellScript(argv []string) (index int, ordinary, ok bool) {
	at := slices.IndexFunc(argv, func(a string) bool { return slices.Contains(shells, path.Base(a)) })
	if at < 0 || at > 0 && !slices.Contains(wrappers, path.Base(argv[0])) {
		return 0, false, false
	}
	ordinary = at == 0
	for i := at + 1; i < len(argv); i++ {
		flags := argv[i]
		switch {
		case argv[i-1] == "-o" || strings.HasPrefix(argv[i-1], "-") && strings.HasSuffix(argv[i-1], "o"): // its value
		case !strings.HasPrefix(flags, "-") && !strings.HasPrefix(flags, "+"):
			return 0, false, false
		case strings.HasPrefix(flags, "--"):
			ordinary = false
		case strings.Contains(flags, "c"):
			ordinary = ordinary && !strings.ContainsAny(flags, "li")
			// In -euxo pipefail -c the script follows -c; in -ceuo pipefail it comes one word later.
			next := i + 1
			if strings.HasSuffix(flags, "o") {
				next++
			}
			return next, ordinary && next == len(argv)-1, next < len(argv)
		case strings.ContainsAny(flags, "li"):
			ordinary = false
		}
	}
	return 0, false, false
}
