package job

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Sensitive replaces a value that must not be shown, as in Terraform.
const Sensitive = "(sensitive value)"

// seal matches a seal: the text with a keyed digest that replaces a sensitive value where it must not be stored. Equal
// values have equal seals, so that a changed value is detected, but without the key nobody can guess and check values.
var seal = regexp.MustCompile(`\(sensitive value [0-9a-f]{32}\)`)

const (
	sealBegin = "(sensitive value "
	// sealDigest is the number of bytes of an HMAC-SHA256 in a seal: 128 bits do not collide by chance.
	sealDigest = 16
)

// shortSecret is the length in bytes under which a secret is only recognized as a whole word: a secret "7" must not
// redact every digit 7 in a plan.
const shortSecret = 4

// secretLine is the minimum length in bytes of a line of a multi-line secret to be a secret itself: output is processed
// by lines, and a PEM key is printed as many.
const secretLine = 8

// maxEscaped is how many levels of escapes are looked through: a URL in JSON in a line of a log.
const maxEscaped = 3

// Secrets finds sensitive values in texts. The zero value knows none.
type Secrets struct {
	known  map[string]bool
	sorted []string // longest first
}

// Add adds values, and the lines of multi-line ones. Blank values are ignored.
func (s *Secrets) Add(values ...string) {
	for _, value := range values {
		s.add(value)
		if !strings.Contains(value, "\n") {
			continue
		}
		for line := range strings.Lines(value) {
			if line = strings.TrimSpace(line); len(line) >= secretLine {
				s.add(line)
			}
		}
	}
	slices.SortFunc(s.sorted, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
	})
}

func (s *Secrets) add(value string) {
	if strings.TrimSpace(value) == "" || s.known[value] {
		return
	}
	if s.known == nil {
		s.known = map[string]bool{}
	}
	s.known[value] = true
	s.sorted = append(s.sorted, value)
}

// Replace replaces each sensitive stretch of text, a seal or a value, by the result of by. Overlapping values are one
// stretch.
func (s *Secrets) Replace(text string, by func(stretch string) string) string {
	stretches := s.find(text)
	if stretches == nil {
		return text
	}
	var b strings.Builder
	at := 0
	for _, f := range stretches {
		b.WriteString(text[at:f[0]])
		b.WriteString(by(text[f[0]:f[1]]))
		at = f[1]
	}
	b.WriteString(text[at:])
	return b.String()
}

// In reports whether a text contains anything sensitive.
func (s *Secrets) In(text string) bool { return s.find(text) != nil }

// find returns the sensitive stretches of a text, in order: values as they are or with escapes.
func (s *Secrets) find(text string) [][]int {
	var seals, found [][]int
	if strings.Contains(text, sealBegin) {
		seals = seal.FindAllStringIndex(text, -1)
	}
	if len(s.sorted) > 0 {
		eachReading(text, func(r reading) { found = append(found, s.values(r, seals)...) })
	}
	if len(found) == 0 {
		return seals
	}
	slices.SortFunc(found, func(a, b []int) int { return cmp.Compare(a[0], b[0]) })
	merged := found[:1]
	for _, f := range found[1:] {
		if last := merged[len(merged)-1]; f[0] < last[1] {
			last[1] = max(last[1], f[1])
			continue
		}
		merged = append(merged, f)
	}
	all := append(seals, merged...)
	slices.SortFunc(all, func(a, b []int) int { return cmp.Compare(a[0], b[0]) })
	return all
}

// values returns where values are, outside of the seals.
func (s *Secrets) values(in reading, seals [][]int) (found [][]int) {
	for _, value := range s.sorted {
		for from := 0; ; {
			at := strings.Index(in.text[from:], value)
			if at < 0 {
				break
			}
			begin, end := from+at, from+at+len(value)
			from = begin + 1
			f := []int{in.place(begin), in.place(end)}
			if counts(in.text, begin, end) && !slices.ContainsFunc(seals, func(o []int) bool { return f[0] < o[1] && o[0] < f[1] }) {
				found = append(found, f)
				from = end
			}
		}
	}
	return found
}

// decoding is a way of writing characters: what an escape looks like, and what it stands for. A character may be escaped or
// not: which ones are differs between programs.
type decoding struct {
	escape    *regexp.Regexp
	character func(escape string) string
}

var (
	// escape matches a character that is escaped as in strings of JSON, Go or Python; above U+FFFF JSON has two surrogates.
	escape  = regexp.MustCompile(`\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|[\\"'/abfnrtv])`)
	percent = regexp.MustCompile(`%[0-9a-fA-F]{2}`)
	form    = regexp.MustCompile(`%[0-9a-fA-F]{2}|\+`) // in forms and queries a plus is a space
)

var decodings = []decoding{
	{escape, func(e string) string { return character(e, false) }},
	{escape, func(e string) string { return character(e, true) }},
	{percent, octet},
	{form, octet},
}

// reading is a text as it is or decoded. at has the offset in the original of each byte and of the end; nil if it is the
// original.
type reading struct {
	text string
	at   []int
}

func (r reading) place(i int) int {
	if r.at == nil {
		return i
	}
	return r.at[i]
}

// eachReading calls visit with a text as it is, and as each sequence of up to maxEscaped decodings reads it.
func eachReading(text string, visit func(reading)) {
	visit(reading{text: text})
	if !strings.ContainsAny(text, `\%+`) {
		return
	}
	seen := map[string]bool{text: true}
	for level, readings := 0, []reading{{text: text}}; level < maxEscaped && len(readings) > 0; level++ {
		var next []reading
		for _, r := range readings {
			for _, d := range decodings {
				if decoded := r.decode(d); !seen[decoded.text] {
					seen[decoded.text] = true
					visit(decoded)
					next = append(next, decoded)
				}
			}
		}
		readings = next
	}
}

// decode resolves one level of escapes.
func (r reading) decode(d decoding) reading {
	escapes := d.escape.FindAllStringIndex(r.text, -1)
	if escapes == nil {
		return r
	}
	var text strings.Builder
	at := make([]int, 0, len(r.text)+1)
	from := 0
	keep := func(to int) {
		text.WriteString(r.text[from:to])
		for ; from < to; from++ {
			at = append(at, r.place(from))
		}
	}
	for _, e := range escapes {
		keep(e[0])
		text.WriteString(d.character(r.text[e[0]:e[1]]))
		for len(at) < text.Len() {
			at = append(at, r.place(e[0]))
		}
		from = e[1]
	}
	keep(len(r.text))
	return reading{text.String(), append(at, r.place(len(r.text)))}
}

// character returns the character that an escape stands for. An \x is a byte, as in Go and in Python's bytes, or a character,
// as in Python's strings.
func character(escape string, latin1 bool) string {
	switch kind := escape[1]; {
	case strings.IndexByte(`"'/\`, kind) >= 0:
		return escape[1:]
	case len(escape) == 2:
		return map[byte]string{'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v"}[kind]
	case len(escape) == 12:
		high, _ := strconv.ParseUint(escape[2:6], 16, 16)
		low, _ := strconv.ParseUint(escape[8:], 16, 16)
		return string(utf16.DecodeRune(rune(high), rune(low)))
	case kind == 'x' && !latin1:
		return octet(escape[1:])
	default:
		n, _ := strconv.ParseUint(escape[2:], 16, 32)
		return string(rune(n))
	}
}

// octet returns the byte of an escape as in a URL.
func octet(escape string) string {
	if escape == "+" {
		return " "
	}
	n, _ := strconv.ParseUint(escape[1:], 16, 8)
	return string([]byte{byte(n)})
}

// counts reports whether a match counts: a short one only as a whole word.
func counts(text string, begin, end int) bool {
	if end-begin >= shortSecret {
		return true
	}
	before, _ := utf8.DecodeLastRuneInString(text[:begin])
	after, _ := utf8.DecodeRuneInString(text[end:])
	return !wordRune(before) && !wordRune(after)
}

func wordRune(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_')
}

// Place locates a sensitive value that cannot be found by its text: an argument of a role's program, or "pod", and the
// names and indices within it, outermost first.
type Place struct {
	Role, Argument string
	Within         []string
}

// Sensitive reports whether the job has sensitive values.
func (j *Job) Sensitive() bool { return len(j.Secrets)+len(j.Places) > 0 }

// Sealer replaces sensitive values by seals, and restores the values where something is started with them.
// So the planner, the state, the journal and saved plans never contain them. A nil Sealer knows no value. It is safe for
// concurrent use.
type Sealer struct {
	mu      sync.RWMutex
	key     []byte
	secrets Secrets
	values  map[string]string // by seal
	plain   map[string]any    // by seal: numbers and booleans in pods
}

// Keyed reports whether the sealer has a key. It needs one before it gets jobs with secrets.
func (s *Sealer) Keyed() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.key != nil
}

// SetKey sets the key for seals, which must be kept as long as seals are compared.
func (s *Sealer) SetKey(key []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key, s.values, s.plain = bytes.Clone(key), map[string]string{}, map[string]any{}
}

// Idle reports whether there is nothing to seal.
func (s *Sealer) Idle() bool {
	if s == nil {
		return true
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.secrets.sorted)+len(s.values)+len(s.plain) == 0
}

// Jobs returns the jobs with sensitive values sealed in everything that they are started from. Other arguments, such as
// names, counts and sizes, cannot be hidden and are not changed.
func (s *Sealer) Jobs(jobs []Job) []Job {
	if s == nil {
		return jobs
	}
	s.mu.Lock()
	for i := range jobs {
		s.secrets.Add(jobs[i].Secrets...)
	}
	s.mu.Unlock()
	if s.Idle() && !slices.ContainsFunc(jobs, func(j Job) bool { return j.Sensitive() }) {
		return jobs
	}
	sealed := make([]Job, len(jobs))
	for i := range jobs {
		sealed[i] = jobs[i].withTexts(s.Text)
		s.places(&sealed[i])
	}
	return sealed
}

// places seals the values at the job's places. The job is modified: it must be a private copy.
func (s *Sealer) places(j *Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range j.Places {
		for i := range j.Roles {
			if r := &j.Roles[i]; r.Name == p.Role {
				s.place(r, p)
			}
		}
	}
}

// place seals the value at a place of a role. s.mu must be held.
func (s *Sealer) place(r *Role, p Place) {
	if p.Argument == "pod" {
		s.sealPath(r.Pod, p.Within)
		return
	}
	s.argument(&r.Program, p)
	for i := range r.PerSlot {
		s.argument(&r.PerSlot[i], p)
	}
}

func (s *Sealer) argument(program *Program, p Place) {
	switch {
	case p.Argument == "image":
		program.Image = s.seal(program.Image)
	case p.Argument == "working_dir":
		program.WorkingDir = s.seal(program.WorkingDir)
	case len(p.Within) == 0: // lists and maps are sealed by element
	case p.Argument == "command":
		if i, err := strconv.Atoi(p.Within[0]); err == nil && i < len(program.Command) {
			program.Command[i] = s.seal(program.Command[i])
		}
	case p.Argument == "env":
		if value, is := program.Env[p.Within[0]]; is {
			program.Env[p.Within[0]] = s.seal(value)
		}
	}
}

// sealPath seals the value at a path in decoded YAML or JSON, in place.
func (s *Sealer) sealPath(in any, path []string) {
	if len(path) == 0 {
		return
	}
	switch in := in.(type) {
	case map[string]any:
		inner, is := in[path[0]]
		switch {
		case is && len(path) == 1:
			in[path[0]] = s.sealPlain(inner)
		case is:
			s.sealPath(inner, path[1:])
		}
	case []any:
		i, err := strconv.Atoi(path[0])
		switch {
		case err != nil || i >= len(in):
		case len(path) == 1:
			in[i] = s.sealPlain(in[i])
		default:
			s.sealPath(in[i], path[1:])
		}
	}
}

// sealPlain returns the seal of a number or boolean; strings, such as earlier seals, are returned unchanged. s.mu must be
// held.
func (s *Sealer) sealPlain(value any) any {
	if _, sealed := value.(string); sealed {
		return value
	}
	text := s.digest(fmt.Sprintf("\x00%T %v", value, value)) // differs from every string value
	s.plain[text] = value
	return text
}

// Text returns a text with all known sensitive values sealed.
func (s *Sealer) Text(text string) string {
	if s.Idle() {
		return text
	}
	s.mu.RLock()
	stretches := s.secrets.In(text)
	s.mu.RUnlock()
	if !stretches {
		return text
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		// Next to a seal a short secret may become a whole word, so repeat until sealing changes nothing.
		sealed := s.secrets.Replace(text, s.seal)
		if sealed == text {
			return text
		}
		text = sealed
	}
}

// seal returns the seal of a value. s.mu must be held.
func (s *Sealer) seal(value string) string {
	if seal.MatchString(value) {
		return value
	}
	text := s.digest(value)
	s.values[text] = value
	return text
}

func (s *Sealer) digest(value string) string {
	digest := hmac.New(sha256.New, s.key)
	digest.Write([]byte(value))
	return sealBegin + hex.EncodeToString(digest.Sum(nil)[:sealDigest]) + ")"
}

// Texts applies Text to each text.
func (s *Sealer) Texts(texts []string) []string {
	if s.Idle() {
		return texts
	}
	return mapTexts(texts, s.Text)
}

// Exit returns e with sensitive values in its output sealed.
func (s *Sealer) Exit(e *Exit) *Exit {
	if e == nil || s.Idle() {
		return e
	}
	sealed := *e
	sealed.Signal, sealed.NotStarted, sealed.Message, sealed.Tail = s.Text(e.Signal), s.Text(e.NotStarted), s.Text(e.Message), mapTexts(e.Tail, s.Text)
	return &sealed
}

// Changes returns the changes with sensitive values sealed.
func (s *Sealer) Changes(changes []FieldChange) []FieldChange {
	if len(changes) == 0 || s.Idle() {
		return changes
	}
	sealed := slices.Clone(changes)
	for i := range sealed {
		sealed[i].Before, sealed[i].After = s.Text(sealed[i].Before), s.Text(sealed[i].After)
	}
	return sealed
}

// Records returns the records with sensitive values sealed that were not sensitive when they were written.
func (s *Sealer) Records(records Records) Records {
	if s.Idle() {
		return records
	}
	sealed := make(Records, len(records))
	for name, rec := range records {
		copied := *rec
		copied.Spec = rec.Spec.withTexts(s.Text)
		copied.Slots = slices.Clone(rec.Slots)
		for i := range copied.Slots {
			copied.Slots[i].Exit = s.Exit(copied.Slots[i].Exit)
		}
		copied.Incidents = slices.Clone(rec.Incidents)
		for i := range copied.Incidents {
			copied.Incidents[i].Evidence = MapReasons(copied.Incidents[i].Evidence, s.Text)
		}
		sealed[name] = &copied
	}
	return sealed
}

// ErrSealed is the error of a launch that needs an unknown sensitive value.
var ErrSealed = errors.New("a sensitive value that it was declared with is no longer known: eltrain does not store such values. Declare the job again with the same or another value")

// Launch returns l with its sensitive values restored. The error is ErrSealed if one is unknown.
func (s *Sealer) Launch(l Launch) (Launch, error) {
	missing := false
	open := func(text string) string { return s.open(text, &missing) }
	l.Program, l.Pod = l.Program.withTexts(open), mapValues(l.Pod, s.opened(open))
	l.Checkpoint = l.Checkpoint.withTexts(open)
	l.Accelerators = l.Accelerators.withTexts(open)
	if missing {
		return l, ErrSealed
	}
	return l, nil
}

// Progress returns p with its sensitive values restored. The error is ErrSealed if one is unknown.
func (s *Sealer) Progress(p *Progress) (*Progress, error) {
	missing := false
	opened := p.withTexts(func(text string) string { return s.open(text, &missing) })
	if missing {
		return nil, ErrSealed
	}
	return opened, nil
}

// Source returns s with its sensitive values restored. The error is ErrSealed if one is unknown.
func (s *Sealer) Source(source MetricSource) (MetricSource, error) {
	missing := false
	opened := source.withTexts(func(text string) string { return s.open(text, &missing) })
	if missing {
		return opened, ErrSealed
	}
	return opened, nil
}

// Knows reports whether every sensitive value of a sealed job is known.
func (s *Sealer) Knows(j *Job) bool {
	missing := false
	for i := range j.Roles {
		s.openRole(&j.Roles[i], &missing)
	}
	open := func(text string) string { return s.open(text, &missing) }
	j.Checkpoint.withTexts(open)
	j.Progress.withTexts(open)
	return !missing
}

// Role returns a sealed role with its sensitive values restored, as far as they are known.
func (s *Sealer) Role(r *Role) *Role {
	if s.Idle() {
		return r
	}
	missing := false
	opened := s.openRole(r, &missing)
	return &opened
}

func (s *Sealer) openRole(r *Role, missing *bool) Role {
	open := func(text string) string { return s.open(text, missing) }
	opened := r.withPrograms(open)
	opened.Pod = mapValues(r.Pod, s.opened(open))
	return opened
}

// opened is open for decoded YAML or JSON, where a seal may replace a number or boolean.
func (s *Sealer) opened(open func(string) string) func(string) any {
	return func(text string) any {
		if s != nil && strings.HasPrefix(text, sealBegin) {
			s.mu.RLock()
			value, known := s.plain[text]
			s.mu.RUnlock()
			if known {
				return value
			}
		}
		return open(text)
	}
}

func (s *Sealer) open(text string, missing *bool) string {
	if !strings.Contains(text, sealBegin) {
		return text
	}
	return seal.ReplaceAllStringFunc(text, func(one string) string {
		if s != nil {
			s.mu.RLock()
			defer s.mu.RUnlock()
			if value, known := s.values[one]; known {
				return value
			}
		}
		*missing = true
		return one
	})
}

// withTexts returns a copy of the job in which by has replaced each string that something is started with, or found in its output.
func (j Job) withTexts(by func(string) string) Job {
	roles := j.Roles
	j.Roles = make([]Role, len(roles))
	for i := range roles {
		j.Roles[i] = roles[i].withTexts(by)
	}
	j.Checkpoint, j.Progress = j.Checkpoint.withTexts(by), j.Progress.withTexts(by)
	j.Heal.Signatures = by(j.Heal.Signatures)
	return j
}

func (r Role) withTexts(by func(string) string) Role {
	r = r.withPrograms(by)
	r.Pod = mapValues(r.Pod, func(text string) any { return by(text) })
	r.Scaling = r.Scaling.withTexts(by)
	return r
}

func (s *Scaling) withTexts(by func(string) string) *Scaling {
	if s == nil || len(s.Policies) == 0 {
		return s
	}
	copied := *s
	copied.Policies = slices.Clone(s.Policies)
	for i := range copied.Policies {
		if source := copied.Policies[i].Source; source != nil {
			mapped := source.withTexts(by)
			copied.Policies[i].Source = &mapped
		}
	}
	return &copied
}

func (m MetricSource) withTexts(by func(string) string) MetricSource {
	m.Address, m.Query, m.Field, m.Command = by(m.Address), by(m.Query), by(m.Field), mapTexts(m.Command, by)
	headers := m.Headers
	m.Headers = maps.Clone(headers)
	for name, value := range headers {
		m.Headers[name] = by(value)
	}
	return m
}

func (r Role) withPrograms(by func(string) string) Role {
	r.Program = r.Program.withTexts(by)
	if r.PerSlot != nil {
		programs := r.PerSlot
		r.PerSlot = make([]Program, len(programs))
		for i := range programs {
			r.PerSlot[i] = programs[i].withTexts(by)
		}
	}
	r.Accelerators = r.Accelerators.withTexts(by)
	return r
}

func (a *Accelerators) withTexts(by func(string) string) *Accelerators {
	if a == nil {
		return nil
	}
	return &Accelerators{Command: mapTexts(a.Command, by), DCGM: by(a.DCGM)}
}

func (p Program) withTexts(by func(string) string) Program {
	p.Image, p.WorkingDir, p.Command = by(p.Image), by(p.WorkingDir), mapTexts(p.Command, by)
	env := p.Env
	p.Env = maps.Clone(env)
	for name, value := range env {
		p.Env[name] = by(value)
	}
	return p
}

func (c *Checkpoint) withTexts(by func(string) string) *Checkpoint {
	if c == nil {
		return nil
	}
	copied := *c
	copied.Dir, copied.Pattern = by(c.Dir), by(c.Pattern)
	return &copied
}

func (p *Progress) withTexts(by func(string) string) *Progress {
	if p == nil {
		return nil
	}
	copied := *p
	copied.Pattern, copied.Recognizers = by(p.Pattern), by(p.Recognizers)
	return &copied
}

func mapTexts(texts []string, by func(string) string) []string {
	out := slices.Clone(texts)
	for i := range out {
		out[i] = by(out[i])
	}
	return out
}

// mapValues returns a copy of decoded YAML or JSON with its strings replaced.
func mapValues(values map[string]any, by func(string) any) map[string]any {
	out := maps.Clone(values)
	for name, value := range out {
		out[name] = mapValue(value, by)
	}
	return out
}

func mapValue(value any, by func(string) any) any {
	switch value := value.(type) {
	case string:
		return by(value)
	case map[string]any:
		return mapValues(value, by)
	case []any:
		out := slices.Clone(value)
		for i := range out {
			out[i] = mapValue(out[i], by)
		}
		return out
	}
	return value
}
