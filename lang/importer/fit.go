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

// Checks are the checks of the providers that will run imported jobs, as in validate. A nil function accepts everything.
type Checks struct {
	// Role returns an error if a role cannot run on a provider.
	Role func(provider string, r *job.Role) error
	// Namespace returns an error if a name is not a valid namespace.
	Namespace func(name string) error
	// Queue returns an error if a name is not a valid queue name.
	Queue func(name string) error
}

// maxChecked bounds the work of one import to find what the provider rejects, in overlay values; each call of Checks.Role
// counts as askValues more. It suffices to find dozens of mistakes in a template of a hundred values; beyond it, whatever
// is rejected is left out as a whole.
const (
	maxChecked = 50_000
	askValues  = 20
)

// origin is the source of a field of an overlay. It keeps the object alive, so that its address is not reused.
type origin struct {
	object map[string]any
	from   *value
}

// overlayField identifies a field of an object in an overlay by the object's address; "" is the object itself. The address
// is stable: objects are moved into others, not copied, while an overlay is built.
type overlayField struct {
	object uintptr
	name   string
}

func fieldOf(object map[string]any, name string) overlayField {
	return overlayField{reflect.ValueOf(object).Pointer(), name}
}

// recordOrigin records the source of a field of an overlay.
func (im *importer) recordOrigin(object map[string]any, name string, from *value) {
	if im.origins == nil {
		im.origins = map[overlayField]origin{}
	}
	im.origins[fieldOf(object, name)] = origin{object, from}
}

// moveField copies a field of an overlay from one object to another.
func (im *importer) moveField(to map[string]any, name string, from map[string]any) {
	to[name] = from[name]
	if o, known := im.origins[fieldOf(from, name)]; known {
		im.recordOrigin(to, name, o.from)
	}
}

// originOf returns the source of a field, or in, the source of what contains it.
func (im *importer) originOf(object map[string]any, name string, in *value) *value {
	if o, known := im.origins[fieldOf(object, name)]; known {
		return o.from
	}
	return in
}

// removeRejected removes from a role what the provider rejects, with warnings. If the role cannot run for another reason, it reports
// an error and returns false.
func (im *importer) removeRejected(j *imported, r *role) bool {
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
			im.warnRejected(cmp.Or(r.variables[name], j.at), err)
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
	kept, _ := im.keep(r.Pod, "", im.originOf(r.Pod, "", j.at), try)
	r.Pod, _ = kept.(map[string]any)
	return true
}

var errTooMuch = errors.New("the provider rejects part of it, and the manifest is too large to determine which part: import its documents one by one")

// keep returns the part of x that the provider accepts. try checks a replacement of x together with what was kept
// before. name is the field that contains x.
func (im *importer) keep(x any, name string, at *value, try func(any) error) (kept any, some bool) {
	err := try(x)
	if err == nil {
		return x, true
	}
	object, isObject := x.(map[string]any)
	list, isList := x.([]any)
	switch {
	case errors.Is(err, errTooMuch), len(object)+len(list) == 0:
		im.warnRejected(at, err)
		return nil, false
	case isObject:
		return im.keepFields(object, at, try)
	case isList:
		return im.keepItems(list, name, at, try)
	}
	im.warnRejected(at, err)
	return nil, false
}

// keepFields tries the fields one by one, "name" first, since containers are merged by it.
func (im *importer) keepFields(object map[string]any, at *value, try func(any) error) (map[string]any, bool) {
	kept := map[string]any{}
	names := slices.Sorted(maps.Keys(object))
	if i := slices.Index(names, "name"); i > 0 {
		names = slices.Insert(slices.Delete(names, i, i+1), 0, "name")
	}
	for _, name := range names {
		field, some := im.keep(object[name], name, im.originOf(object, name, at), func(x any) error {
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

// containerLists are the lists whose items remain meaningful without some of their fields. A volume without its
// source, or a toleration without its key, would mean something else.
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
			from = im.originOf(object, "", at)
		}
		if object["name"] == nil || !slices.Contains(containerLists, name) {
			im.warnRejected(from, err)
			continue
		}
		if err := with(map[string]any{"name": object["name"]}); err != nil {
			im.warnRejected(from, err) // the container itself is rejected, whatever its fields
			continue
		}
		if fields, some := im.keepFields(object, from, with); some {
			kept = append(kept, fields)
		}
	}
	return kept, len(kept) > 0
}

// warnRejected warns about a value that the provider rejects.
func (im *importer) warnRejected(v *value, err error) {
	im.warn(v, "Not imported", "%s.", sentence(err))
}

// sentence returns an error's text as one line that begins with a capital letter.
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
