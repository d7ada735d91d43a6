package planfile

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
)

// Seal stands for the sensitive values of a file. The values are needed again when the plan is applied, and are held
// against the digests, so that a plan never starts anything with another value than it was made with.
type Seal struct {
	// Nonce is in the texts that stand for values, and occurs nowhere else.
	Nonce string `json:"nonce,omitempty"`
	Key   []byte `json:"key,omitempty"`
	// Digests are of the values, in the order in which they were replaced.
	Digests [][]byte `json:"digests,omitempty"`
}

// digestRounds make a guess at a value cost some 20 ms: the file may lie where many can read it, and passwords are
// shorter than keys.
const digestRounds = 100_000

func (s *Seal) digest(secret string) ([]byte, error) {
	return pbkdf2.Key(sha256.New, secret, s.Key, digestRounds, sha256.Size)
}

// placeholder is what stands for the value with the given number. A letter is next to the number, so that a short
// secret, which counts only where it stands alone, is not found in it.
func (s *Seal) placeholder(i int) string { return fmt.Sprintf("(%sx%d)", s.Nonce, i) }

// Placeholders are the texts that stand for values: sensitive themselves, so that a plan that was read shows what
// the one that was made did.
func (f *File) Placeholders() []string {
	out := make([]string, len(f.Seal.Digests))
	for i := range out {
		out[i] = f.Seal.placeholder(i)
	}
	return out
}

// sealed is a copy of the file without the secrets.
func (f *File) sealed(secrets []string) (*File, error) {
	out := *f
	out.Seal = Seal{}
	if len(secrets) == 0 {
		return &out, nil
	}
	out.Seal = Seal{Nonce: rand.Text(), Key: []byte(rand.Text())}
	for _, secret := range secrets {
		digest, err := out.Seal.digest(secret)
		if err != nil {
			return nil, err
		}
		out.Seal.Digests = append(out.Seal.Digests, digest)
	}
	// The plan is in use: what is changed has to be a copy.
	text, err := json.Marshal(f.Facts)
	if err != nil {
		return nil, err
	}
	out.Facts = view.PlanFacts{}
	if err := json.Unmarshal(text, &out.Facts); err != nil {
		return nil, err
	}
	eachText(reflect.ValueOf(&out.Facts).Elem(), func(s string) string {
		for i, secret := range secrets {
			s = view.Replace(s, secret, out.Seal.placeholder(i))
		}
		return s
	})
	return &out, nil
}

// MissingError is of sensitive values that are not there, or are others, when a plan is to be applied.
type MissingError struct{ Jobs []string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("sensitive values of job.%s are not what they were when the plan was made, or are not set. They are not in the plan: set them as they were set for it, but in the environment (ELTRAIN_VAR_x) what was given with -var",
		strings.Join(e.Jobs, ", job."))
}

// Sealed tells whether any job needs a sensitive value to start.
func (f *File) Sealed() bool {
	for i := range f.Facts.Input.Jobs {
		if len(f.used(&f.Facts.Input.Jobs[i])) > 0 {
			return true
		}
	}
	return false
}

// used are the numbers of the values that a job has in it, ascending.
func (f *File) used(j *job.Job) []int {
	if f.Seal.Nonce == "" {
		return nil
	}
	found := map[int]bool{}
	eachText(reflect.ValueOf(j).Elem(), func(s string) string {
		if strings.Contains(s, f.Seal.Nonce) {
			for i := range f.Seal.Digests {
				if strings.Contains(s, f.Seal.placeholder(i)) {
					found[i] = true
				}
			}
		}
		return s
	})
	var out []int
	for i := range f.Seal.Digests {
		if found[i] {
			out = append(out, i)
		}
	}
	return out
}

// Unseal puts the sensitive values of the jobs back, found among the candidates by their digests. The error is a
// *MissingError; nothing is changed then.
func (f *File) Unseal(candidates []string) error {
	values := make([]string, len(f.Seal.Digests))
	known := make([]bool, len(values))
	for _, secret := range candidates {
		digest, err := f.Seal.digest(secret)
		if err != nil {
			return err
		}
		for i, want := range f.Seal.Digests {
			if subtle.ConstantTimeCompare(digest, want) == 1 {
				values[i], known[i] = secret, true
			}
		}
	}
	var missing []string
	for i := range f.Facts.Input.Jobs {
		j := &f.Facts.Input.Jobs[i]
		if slices.ContainsFunc(f.used(j), func(n int) bool { return !known[n] }) {
			missing = append(missing, j.Name)
		}
	}
	if len(missing) > 0 {
		return &MissingError{missing}
	}
	for i := range f.Facts.Input.Jobs {
		j := &f.Facts.Input.Jobs[i]
		used := f.used(j)
		eachText(reflect.ValueOf(j).Elem(), func(s string) string {
			for _, n := range slices.Backward(used) { // a short one may be within what stands for a long one
				s = strings.ReplaceAll(s, f.Seal.placeholder(n), values[n])
			}
			return s
		})
		for _, n := range used {
			j.Secrets = append(j.Secrets, values[n])
		}
	}
	return nil
}

// identifiers are fields that name something. A secret is no name, and a name with a hole in it names nothing.
var identifiers = map[string]bool{"Name": true, "UID": true, "Job": true, "Role": true, "Node": true, "Provider": true, "Fingerprint": true, "Owner": true, "Site": true}

// eachText replaces every free text within v: not names, and not the words of enumerations, which have types of
// their own.
func eachText(v reflect.Value, by func(string) string) {
	switch v.Kind() {
	case reflect.String:
		if v.Type() == reflect.TypeFor[string]() && v.CanSet() {
			v.SetString(by(v.String()))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			eachText(v.Elem(), by)
		}
	case reflect.Interface:
		if v.IsNil() {
			return
		}
		inner := reflect.New(v.Elem().Type()).Elem() // what an interface holds cannot be set in place
		inner.Set(v.Elem())
		eachText(inner, by)
		v.Set(inner)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return // JSON that was redacted before, or a digest
		}
		for i := range v.Len() {
			eachText(v.Index(i), by)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(key))
			eachText(value, by)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[job.Address]() {
			return
		}
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() && !identifiers[field.Name] {
				eachText(v.Field(i), by)
			}
		}
	}
}
