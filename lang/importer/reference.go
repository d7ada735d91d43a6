package importer

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// slotIndex is the placeholder for the slot's index in a text. Manifests cannot contain it: texts with a NUL are rejected.
const slotIndex = "\x00"

// shownIndex replaces the placeholder in messages, even where it was quoted.
var shownIndex = strings.NewReplacer(slotIndex, "${slot.index}", `\x00`, "${slot.index}")

// reference matches $(NAME) in a command, an argument or a variable, which the kubelet expands, and $$, an escaped dollar
// (k8s.io/kubernetes/third_party/forked/golang/expansion).
var reference = regexp.MustCompile(`\$\$|\$\(([^)]*)\)`)

// variableName matches usual names of variables, but not $(hostname -f), which is meant for a shell.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

// expand expands a text as the kubelet does. References that valueOf does not know stay unchanged.
func expand(text string, valueOf func(name string) (string, bool)) string {
	return reference.ReplaceAllStringFunc(text, func(match string) string {
		if match == "$$" {
			return "$"
		}
		if value, ok := valueOf(match[len("$(") : len(match)-len(")")]); ok {
			return value
		}
		return match
	})
}

// referencesIn returns the variables that a text refers to.
func referencesIn(text string) []string {
	var names []string
	for _, m := range reference.FindAllStringSubmatch(text, -1) {
		if m[0] != "$$" {
			names = append(names, m[1])
		}
	}
	return names
}

// variables has the variables of a container while its env is read in order.
type variables struct {
	known  map[string]string // known values, including those set by the job's operator
	before map[string]string // known values from env only: operators add theirs after it
	inPod  map[string]bool   // variables of env whose values only the kubelet knows
	from   bool              // the container has envFrom: there are others before env
}

func newVariables(operator map[string]string, from bool) *variables {
	known := map[string]string{}
	maps.Copy(known, operator)
	return &variables{known: known, before: map[string]string{}, inPod: map[string]bool{}, from: from}
}

func (v *variables) learn(name, text string) {
	v.known[name], v.before[name] = text, text
	delete(v.inPod, name)
}

func (v *variables) forget(name string) {
	delete(v.known, name)
	delete(v.before, name)
	v.inPod[name] = true
}

// resolve returns a variable's value; or, with false, the text that only the kubelet can expand further.
func (v *variables) resolve(text string) (string, bool) {
	left := v.substitute(text)
	open := slices.ContainsFunc(referencesIn(left), func(name string) bool {
		_, ofService := serviceOf(name)
		return v.from || v.inPod[name] || ofService
	})
	if open {
		return left, false
	}
	return expand(left, func(string) (string, bool) { return "", false }), true
}

// substitute substitutes the known values; the result is still to be expanded by the kubelet. The overlay needs that because its
// variables come before those of env, and the kubelet does not expand references to later variables.
func (v *variables) substitute(text string) string {
	return reference.ReplaceAllStringFunc(text, func(match string) string {
		if match == "$$" {
			return match
		}
		if value, ok := v.before[match[len("$("):len(match)-len(")")]]; ok {
			return strings.ReplaceAll(value, "$", "$$")
		}
		return match
	})
}

// unresolved is a reference without a known value, and the word of the command that contains it.
type unresolved struct {
	name string
	at   *value
}

// expandWords expands the words of a command as the kubelet does, with the known variables of the container. References to
// ownVariables, which eltrain sets per process, not per container, stay.
func (im *importer) expandWords(r *role, words []*value, known map[string]string) (argv []string, args []*value) {
	for _, word := range words {
		text, ok := word.scalar()
		if !ok {
			im.drop(word, "A string is expected here.")
			continue
		}
		word.use()
		text = strings.ReplaceAll(text, "\x00", "")
		for _, name := range referencesIn(text) {
			if _, ok := r.valueOf(name, known); !ok {
				r.unresolved = append(r.unresolved, unresolved{name, word})
			}
		}
		argv = append(argv, expand(text, func(name string) (string, bool) { return r.valueOf(name, known) }))
		args = append(args, word)
	}
	return argv, args
}

// valueOf returns the value of a variable of the role's container.
func (r *role) valueOf(name string, known map[string]string) (string, bool) {
	if slices.Contains(ownVariables, name) {
		return "", false
	}
	if value, ok := known[name]; ok {
		return strings.ReplaceAll(value, "\x00", ""), true
	}
	if slices.Contains(r.slotEnv, name) {
		return slotIndex, true
	}
	return "", false
}

// serviceVariable matches the variables that the kubelet sets for a Service and captures the Service's name:
// REDIS_SERVICE_HOST, REDIS_SERVICE_PORT_METRICS, REDIS_PORT, REDIS_PORT_6379_TCP_ADDR (k8s.io/kubernetes/pkg/kubelet/envvars).
var serviceVariable = regexp.MustCompile(`^([A-Z0-9_]+?)_(?:SERVICE_(?:HOST|PORT(?:_[A-Z0-9_]+)?)|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?)$`)

// apiService is the API server's Service, whose variables are in every pod.
const apiService = "kubernetes"

// serviceOf returns the Service that a variable may belong to, in lower case with dashes, as Services are named.
func serviceOf(name string) (service string, ok bool) {
	m := serviceVariable.FindStringSubmatch(name)
	if m == nil || slices.Contains(ownVariables, name) || strings.HasPrefix(name, launcherVariable) {
		return "", false
	}
	return strings.ReplaceAll(strings.ToLower(m[1]), "_", "-"), true
}

// linked reports whether a role's pods have a Service's variables: always for the API server's, otherwise only with
// enableServiceLinks.
func (r *role) linked(service string) bool { return service == apiService || r.serviceLinks }

// absentServices warns about references in left, the unresolved value of a variable, to variables of Services that
// eltrain's pods do not have.
func (im *importer) absentServices(r *role, item *value, left string, c *value) {
	if c.get("envFrom") != nil {
		return // it may be defined there
	}
	reported := map[string]bool{}
	for _, name := range referencesIn(left) {
		service, ok := serviceOf(name)
		if !ok || r.linked(service) || reported[service] || defined(c.get("env"), name) {
			continue
		}
		reported[service] = true
		im.warn(item, "Variable of a Service", "eltrain's pods have no variables of Services, so $(%s) stays unchanged. Replace it with the Service's name, %s, or its port, or set pod = { spec = { enableServiceLinks = true } }.", name, service)
	}
}

// references warns about unresolved references in a command, except those that Kubernetes itself would leave unchanged,
// such as $(hostname) in a script.
func (im *importer) references(r *role, c *value) {
	reported := map[string]bool{}
	for _, u := range r.unresolved {
		kept := slices.ContainsFunc(r.Command, func(word string) bool { return strings.Contains(word, "$("+u.name+")") })
		if !kept || reported[u.name] {
			continue // it was in the launcher's words, or was reported
		}
		reported[u.name] = true
		// Names of programs are in lower case, those of variables are not.
		elsewhere := c.get("envFrom") != nil && variableName.MatchString(u.name) && u.name == strings.ToUpper(u.name)
		service, ofService := serviceOf(u.name)
		switch {
		case slices.Contains(ownVariables, u.name):
			im.warn(u.at, "Variable of the process", "eltrain sets %s in each process's environment, not in the container's, so $(%s) cannot be expanded. Let the program read it from its environment.", u.name, u.name)
		case defined(c.get("env"), u.name), elsewhere, ofService && r.linked(service):
			im.warn(u.at, "Variable that only Kubernetes knows", "The value of %s is known only in the pod, and eltrain passes arguments as written: $(%s) stays unchanged. Let the program read %s from its environment, or a shell: [\"sh\", \"-c\", \"… $%s\"].", u.name, u.name, u.name, u.name)
		case ofService:
			im.warn(u.at, "Variable of a Service", "eltrain's pods have no variables of Services, and eltrain passes arguments as written: $(%s) stays unchanged. Replace it with the Service's name, %s, or its port, or set pod = { spec = { enableServiceLinks = true } } and let the program read %s from its environment.", u.name, service, u.name)
		case operatorSet.MatchString(u.name):
			im.warn(u.at, "Variable of another operator", "The command uses %s, which eltrain does not set%s.", u.name, insteadOf(u.name))
		}
	}
}
