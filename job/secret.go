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
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Sensitive stands for a value that must not be shown, as Terraform writes it.
const Sensitive = "(sensitive value)"

// seal is what stands for a sensitive value where it must not be kept: a text with a keyed digest of it. Equal values
// have equal seals, so a value that was changed is seen to be another, and nobody without the key can tell which.
var seal = regexp.MustCompile(`\(sensitive value [0-9a-f]{32}\)`)

const (
	sealBegin = "(sensitive value "
	// sealDigest is how much of an HMAC-SHA256 is in a seal, in bytes: 128 bits never meet by chance.
	sealDigest = 16
)

// shortSecret is the length in bytes under which a secret counts only where it stands alone, between characters that
// are no part of a word: a secret "7" must not blot out every 7 in a plan.
const shortSecret = 4

// secretLine is the length in bytes from which a single line of a secret of several is one itself: output is read by
// lines, and a key in PEM is printed as many.
const secretLine = 8

// Secrets finds sensitive values in texts. The zero value knows none.
type Secrets struct {
	known  map[string]bool
	sorted []string // longest first
}

// Add makes further values known: as they are, as they are written within quotes and in URLs, and the lines of those that have
// several. Blank ones are none.
func (s *Secrets) Add(values ...string) {
	for _, value := range values {
		s.add(value)
		quoted := strconv.Quote(value)
		s.add(quoted[1 : len(quoted)-1])
		query := url.QueryEscape(value) // what urlencode gives
		s.add(query)
		s.add(strings.ReplaceAll(query, "+", "%20")) // before the "?" of a URL a plus is one
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

// Replace puts by's text instead of each stretch of text that is sensitive: a seal, or values, where those
// that overlap are one stretch.
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

// In reports whether anything in a text is sensitive.
func (s *Secrets) In(text string) bool { return s.find(text) != nil }

// find returns the sensitive stretches of a text, in order.
func (s *Secrets) find(text string) [][]int {
	var seals, found [][]int
	if strings.Contains(text, sealBegin) {
		seals = seal.FindAllStringIndex(text, -1)
	}
	for _, value := range s.sorted {
		for from := 0; ; {
			at := strings.Index(text[from:], value)
			if at < 0 {
				break
			}
			f := []int{from + at, from + at + len(value)}
			from = f[0] + 1
			if stands(text, f) && !slices.ContainsFunc(seals, func(o []int) bool { return f[0] < o[1] && o[0] < f[1] }) {
				found = append(found, f)
				from = f[1]
			}
		}
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

// stands reports whether what was found counts: a short one only where it stands alone.
func stands(text string, f []int) bool {
	if f[1]-f[0] >= shortSecret {
		return true
	}
	before, _ := utf8.DecodeLastRuneInString(text[:f[0]])
	after, _ := utf8.DecodeRuneInString(text[f[1]:])
	return !wordRune(before) && !wordRune(after)
}

func wordRune(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_')
}

// Place is where in a role a sensitive value is that cannot be found by what it is: in which argument of its program, or in
// "pod", and there under which names and indices, outermost first.
type Place struct {
	Role, Argument string
	Within         []string
}

// Sensitive reports whether anything that the job is started from is sensitive.
func (j *Job) Sensitive() bool { return len(j.Secrets)+len(j.Places) > 0 }

// Sealer puts seals instead of sensitive values, and puts the values back where something is started with them.
// So the planner, the state, the journal and saved plans never have them. A nil Sealer knows no value. It may be used
// by several goroutines.
type Sealer struct {
	mu      sync.RWMutex
	key     []byte
	secrets Secrets
	values  map[string]string // by seal
	plain   map[string]any    // by seal: what is no text in a pod
}

// Keyed reports whether the sealer has its key. It needs one before it is given jobs that have secrets.
func (s *Sealer) Keyed() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.key != nil
}

// SetKey gives the sealer the key that its seals are made with, which is kept as long as what they are compared with.
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

// Jobs returns the jobs with every sensitive value in what they are started from sealed. What an argument means is left
// alone elsewhere: a name, a count or a size is acted upon, and cannot be kept out of sight.
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

// places seals what is at the job's places, whatever it is. The job is a copy that nobody has seen.
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

// place seals what is at a place of a role. s.mu is held.
func (s *Sealer) place(r *Role, p Place) {
	if p.Argument == "pod" {
		s.within(r.Pod, p.Within)
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
	case len(p.Within) == 0: // of a list or a map there are only elements
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

// within seals a value in decoded YAML or JSON, in its place.
func (s *Sealer) within(in any, path []string) {
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
			s.within(inner, path[1:])
		}
	case []any:
		i, err := strconv.Atoi(path[0])
		switch {
		case err != nil || i >= len(in):
		case len(path) == 1:
			in[i] = s.sealPlain(in[i])
		default:
			s.within(in[i], path[1:])
		}
	}
}

// sealPlain is what stands for a number or a truth value. One that was sealed is a text. s.mu is held.
func (s *Sealer) sealPlain(value any) any {
	if _, sealed := value.(string); sealed {
		return value
	}
	text := s.digest(fmt.Sprintf("\x00%T %v", value, value)) // no text is the same
	s.plain[text] = value
	return text
}

// Text is a text with every sensitive value that is known in it sealed.
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
		// Beside a seal a short one may stand alone that did not before: what is sealed again has to stay as it is.
		sealed := s.secrets.Replace(text, s.seal)
		if sealed == text {
			return text
		}
		text = sealed
	}
}

// seal is what stands for a value. s.mu is held.
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

// Texts is Text of each.
func (s *Sealer) Texts(texts []string) []string {
	if s.Idle() {
		return texts
	}
	return mapTexts(texts, s.Text)
}

// Exit is how a process ended, with what it wrote sealed.
func (s *Sealer) Exit(e *Exit) *Exit {
	if e == nil || s.Idle() {
		return e
	}
	sealed := *e
	sealed.NotStarted, sealed.Message, sealed.Tail = s.Text(e.NotStarted), s.Text(e.Message), mapTexts(e.Tail, s.Text)
	return &sealed
}

// Changes are differences with the values that they have in them sealed.
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

// Records are records with every sensitive value sealed that is in them: it was none when they were written.
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

// ErrSealed is of something that cannot be started, because a sensitive value that it needs is not known.
var ErrSealed = errors.New("a sensitive value that it was declared with is no longer known: eltrain does not store such values. Declare the job again with the same or another value")

// Launch is l with its sensitive values. The error is ErrSealed if one is not known.
func (s *Sealer) Launch(l Launch) (Launch, error) {
	missing := false
	open := func(text string) string { return s.open(text, &missing) }
	l.Program, l.Pod = l.Program.withTexts(open), mapValues(l.Pod, s.opened(open))
	l.Checkpoint, l.Progress = l.Checkpoint.withTexts(open), l.Progress.withTexts(open)
	if missing {
		return l, ErrSealed
	}
	return l, nil
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

// Role is a sealed role with its sensitive values, as far as they are known.
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

// opened is open for decoded YAML or JSON, where a seal may stand for what is no text.
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

// withTexts is a copy of the job with each text replaced that something is started with.
func (j Job) withTexts(by func(string) string) Job {
	roles := j.Roles
	j.Roles = make([]Role, len(roles))
	for i := range roles {
		j.Roles[i] = roles[i].withTexts(by)
	}
	j.Checkpoint, j.Progress = j.Checkpoint.withTexts(by), j.Progress.withTexts(by)
	return j
}

func (r Role) withTexts(by func(string) string) Role {
	r = r.withPrograms(by)
	r.Pod = mapValues(r.Pod, func(text string) any { return by(text) })
	return r
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
	return r
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
	copied.Pattern = by(p.Pattern)
	return &copied
}

func mapTexts(texts []string, by func(string) string) []string {
	out := slices.Clone(texts)
	for i := range out {
		out[i] = by(out[i])
	}
	return out
}

// mapValues replaces the texts in decoded YAML or JSON.
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
