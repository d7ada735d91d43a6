package view

import (
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/eltrain/eltrain/job"
)

// sensitive stands for a value that must not be shown, as Terraform writes it.
const sensitive = "(sensitive value)"

// shortSecret is the length in bytes under which a secret is only recognised where it stands alone: a
// secret "7" must not blot out every 7 in a plan.
const shortSecret = 4

// Redactor hides sensitive values by value, wherever they turn up: in an attribute, a reason, a line of
// output. The zero value hides nothing. It may be used and added to by several goroutines.
type Redactor struct {
	mu      sync.RWMutex
	secrets map[string]bool
	sorted  []string // longest first, so that a secret within another does not leave its rest behind
}

// NewRedactor hides the secrets of the given jobs.
func NewRedactor(jobs []job.Job) *Redactor {
	r := new(Redactor)
	r.Add(jobs)
	return r
}

// Add hides the secrets of more jobs. What was hidden before stays hidden.
func (r *Redactor) Add(jobs []job.Job) {
	for i := range jobs {
		r.AddTexts(jobs[i].Secrets...)
	}
}

// AddTexts hides more sensitive values.
func (r *Redactor) AddTexts(secrets ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, secret := range secrets {
		r.add(secret)
		// As the value looks inside HCL text, with its quotes and backslashes escaped.
		quoted := strconv.Quote(secret)
		r.add(quoted[1 : len(quoted)-1])
	}
}

// Secrets are the texts that are hidden, longest first.
func (r *Redactor) Secrets() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clone(r.sorted)
}

func (r *Redactor) add(secret string) {
	if strings.TrimSpace(secret) == "" || r.secrets[secret] {
		return
	}
	if r.secrets == nil {
		r.secrets = map[string]bool{}
	}
	r.secrets[secret] = true
	r.sorted = append(r.sorted, secret)
	sort.Slice(r.sorted, func(i, k int) bool {
		if len(r.sorted[i]) != len(r.sorted[k]) {
			return len(r.sorted[i]) > len(r.sorted[k])
		}
		return r.sorted[i] < r.sorted[k]
	})
}

// Text is s with each sensitive value in it replaced, and with control characters made visible: s may be
// a line that a training program wrote, and must not move the reader's cursor.
func (r *Redactor) Text(s string) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, secret := range r.sorted {
		s = Replace(s, secret, sensitive)
	}
	return printable(s)
}

// Texts is Text of each.
func (r *Redactor) Texts(lines []string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = r.Text(line)
	}
	return out
}

// Value is an attribute's value: hidden whole if any part of it is sensitive.
func (r *Redactor) Value(s string) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, secret := range r.sorted {
		if find(s, secret) >= 0 {
			return sensitive
		}
	}
	return printable(s)
}

// Replace puts a text in the place of a secret wherever it counts as one.
func Replace(s, secret, by string) string {
	at := find(s, secret)
	if at < 0 {
		return s
	}
	var b strings.Builder
	for ; at >= 0; at = find(s, secret) {
		b.WriteString(s[:at])
		b.WriteString(by)
		s = s[at+len(secret):]
	}
	b.WriteString(s)
	return b.String()
}

// find is the index of the first occurrence of secret that counts, or -1.
func find(s, secret string) int {
	if len(secret) >= shortSecret {
		return strings.Index(s, secret)
	}
	for from := 0; ; {
		at := strings.Index(s[from:], secret)
		if at < 0 {
			return -1
		}
		at += from
		before, _ := utf8.DecodeLastRuneInString(s[:at])
		after, _ := utf8.DecodeRuneInString(s[at+len(secret):])
		if !wordRune(before) && !wordRune(after) {
			return at
		}
		from = at + len(secret)
	}
}

func wordRune(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_')
}

// printable shows control characters as Go escapes; newlines and tabs stay.
func printable(s string) string {
	clean := func(r rune) bool { return r == '\n' || r == '\t' || r != utf8.RuneError && !unicode.IsControl(r) }
	if strings.IndexFunc(s, func(r rune) bool { return !clean(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if clean(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

func itoa(n int) string { return strconv.Itoa(n) }
