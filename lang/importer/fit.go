package importer

import (
	"cmp"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/job"
)

// Checks are what the providers that will run imported jobs say of them, as validate asks them. A nil one finds all well.
type Checks struct {
	// Role tells why a role cannot run on a provider.
	Role func(provider string, r *job.Role) error
	// Namespace tells why a name cannot be the provider's namespace.
	Namespace func(name string) error
	// Queue tells why a name cannot be that of a queue.
	Queue func(name string) error
}

// maxChecked is how much the provider is asked about in one import to find what it refuses, in values of overlays, where
// each question counts as askValues of them. A template of a hundred values can have dozens of mistakes found; after
// that whatever is refused is left out whole.
const (
	maxChecked = 50_000
	askValues  = 20
)

// origin is what a field of an overlay was made of. It holds the object, so that no other is ever at its address.
type origin struct {
	object map[string]any
	from   *value
}

// overlayField is a field of an object in an overlay, by the object's address; "" is the object itself. Objects are
// moved into others while an overlay is put together, and stay the same ones.
type overlayField struct {
	object uintptr
	name   string
}

func fieldOf(object map[string]any, name string) overlayField {
	return overlayField{reflect.ValueOf(object).Pointer(), name}
}

// made notes what a field of an overlay was made of.
func (im *importer) made(object map[string]any, name string, from *value) {
	if im.origins == nil {
		im.origins = map[overlayField]origin{}
	}
	im.origins[fieldOf(object, name)] = origin{object, from}
}

// moved copies a field of an overlay from one object to another.
func (im *importer) moved(to map[string]any, name string, from map[string]any) {
	to[name] = from[name]
	if o, known := im.origins[fieldOf(from, name)]; known {
		im.made(to, name, o.from)
	}
}

// madeOf is what a field was made of, or what it is in.
func (im *importer) madeOf(object map[string]any, name string, in *value) *value {
	if o, known := im.origins[fieldOf(object, name)]; known {
		return o.from
	}
	return in
}

// fit takes out of a role what the provider refuses, and says so with its place. It is false, and an error is told, if
// the role cannot run for another reason.
func (im *importer) fit(j *imported, r *role) bool {
	check := func(r *job.Role) error { return im.checks.Role(j.Provider, r) }
	if im.checks.Role == nil || j.Provider == localProvider || check(&r.Role) == nil {
		return true
	}
	bare := r.Role
	bare.Pod = nil
	bare.Env = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		one := bare
		one.Env = map[string]string{name: r.Env[name]}
		if err := check(&one); err != nil && check(&bare) == nil {
			im.refused(cmp.Or(r.variables[name], j.at), err)
			delete(r.Env, name)
		}
	}
	bare.Env = r.Env
	if err := check(&bare); err != nil {
		im.diagnose(hcl.DiagError, j.at.key, "Cannot run on Kubernetes", "%s.", sentence(err))
		return false
	}
	size := askValues + values(r.Pod)
	try := func(pod any) error {
		if im.checked += size; im.checked > maxChecked {
			return errTooMuch
		}
		one := bare
		one.Pod, _ = pod.(map[string]any)
		return check(&one)
	}
	kept, _ := im.keep(r.Pod, "", im.madeOf(r.Pod, "", j.at), try)
	r.Pod, _ = kept.(map[string]any)
	return true
}

var errTooMuch = errors.New("the provider refuses part of it, and the manifest is too large to find out which: import its documents one by one")

// keep returns what of x the provider takes. try reports whether it takes something instead of x, beside what was kept
// before. name is the field that x is in.
func (im *importer) keep(x any, name string, at *value, try func(any) error) (kept any, some bool) {
	err := try(x)
	if err == nil {
		return x, true
	}
	object, isObject := x.(map[string]any)
	list, isList := x.([]any)
	switch {
	case errors.Is(err, errTooMuch), len(object)+len(list) == 0:
		im.refused(at, err)
		return nil, false
	case isObject:
		return im.keepFields(object, at, try)
	case isList:
		return im.keepItems(list, name, at, try)
	}
	im.refused(at, err)
	return nil, false
}

// keepFields tries the fields one by one, the name first: containers are merged by it.
func (im *importer) keepFields(object map[string]any, at *value, try func(any) error) (map[string]any, bool) {
	kept := map[string]any{}
	names := slices.Sorted(maps.Keys(object))
	if i := slices.Index(names, "name"); i > 0 {
		names = slices.Insert(slices.Delete(names, i, i+1), 0, "name")
	}
	for _, name := range names {
		field, some := im.keep(object[name], name, im.madeOf(object, name, at), func(x any) error {
			with := maps.Clone(kept)
			with[name] = x
			return try(with)
		})
		if some {
			kept[name] = field
		}
	}
	return kept, len(kept) > 0
}

// containerLists are the lists of which an item is worth something without one of its fields. A volume without its
// source, or a toleration without its key, would be another one.
var containerLists = []string{"containers", "initContainers"}

func (im *importer) keepItems(list []any, name string, at *value, try func(any) error) ([]any, bool) {
	var kept []any
	for _, item := range list {
		with := func(x any) error { return try(append(slices.Clone(kept), x)) }
		err := with(item)
		if err == nil {
			kept = append(kept, item)
			continue
		}
		object, _ := item.(map[string]any)
		from := at
		if object != nil {
			from = im.madeOf(object, "", at)
		}
		if object["name"] == nil || !slices.Contains(containerLists, name) {
			im.refused(from, err)
			continue
		}
		if err := with(map[string]any{"name": object["name"]}); err != nil {
			im.refused(from, err) // it is the container that is refused, whatever is in it
			continue
		}
		if fields, some := im.keepFields(object, from, with); some {
			kept = append(kept, fields)
		}
	}
	return kept, len(kept) > 0
}

// refused warns of what the provider does not take.
func (im *importer) refused(v *value, err error) {
	im.warn(v, "Not imported", "%s.", sentence(err))
}

// sentence is an error's text as one line that begins with a capital.
func sentence(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// values counts the values in an overlay.
func values(x any) int {
	n := 1
	switch x := x.(type) {
	case map[string]any:
		for _, field := range x {
			n += values(field)
		}
	case []any:
		for _, item := range x {
			n += values(item)
		}
	}
	return n
}
