package importer

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// slotIndex stands in a text where the slot's index goes. No manifest can have it: texts with a NUL are refused.
const slotIndex = "\x00"

// shownIndex writes it for a person, also where it was quoted.
var shownIndex = strings.NewReplacer(slotIndex, "${slot.index}", `\x00`, "${slot.index}")

// reference is $(NAME) in a command, an argument or a variable, which the kubelet replaces; $$ is how a dollar is
// written there (k8s.io/kubernetes/third_party/forked/golang/expansion).
var reference = regexp.MustCompile(`\$\$|\$\(([^)]*)\)`)

// variableName is what a container's variable is called, usually: $(hostname -f) is meant for a shell.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

// expand is what the kubelet makes of a text. What refers to nothing that valueOf knows stays as it is written, as there.
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

// referencesIn are the variables that a text refers to.
func referencesIn(text string) []string {
	var names []string
	for _, m := range reference.FindAllStringSubmatch(text, -1) {
		if m[0] != "$$" {
			names = append(names, m[1])
		}
	}
	return names
}

// variables are those of a container, as its list of them is read from the top.
type variables struct {
	known  map[string]string // with those that the job's operator sets
	before map[string]string // of the list: what an operator sets comes after it
	inPod  map[string]bool   // of the list, with values that only the kubelet knows
	from   bool              // there are others, which come before the list
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

// resolve returns a variable's value; or, with false, what is left for the kubelet, which alone knows the rest of it.
func (v *variables) resolve(text string) (string, bool) {
	left := v.put(text)
	open := slices.ContainsFunc(referencesIn(left), func(name string) bool {
		_, ofService := serviceOf(name)
		return v.from || v.inPod[name] || ofService
	})
	if open {
		return left, false
	}
	return expand(left, func(string) (string, bool) { return "", false }), true
}

// put puts in the values that are known, as text for the kubelet still. A pod's overlay needs that: its variables stand
// above those of env, and the kubelet knows no variable that stands below.
func (v *variables) put(text string) string {
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

// unresolved is a reference in a command that no value is known for, and the word that it is in.
type unresolved struct {
	name string
	at   *value
}

// expandWords expands the words of a command as the kubelet does, with what is known of the container's variables. Those of
// eltrain's own are in no container, and stay.
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

// valueOf is a variable of the role's container.
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

// serviceVariable is one that the kubelet makes of a Service, whose name comes first: REDIS_SERVICE_HOST,
// REDIS_SERVICE_PORT_METRICS, REDIS_PORT, REDIS_PORT_6379_TCP_ADDR (k8s.io/kubernetes/pkg/kubelet/envvars).
var serviceVariable = regexp.MustCompile(`^([A-Z0-9_]+?)_(?:SERVICE_(?:HOST|PORT(?:_[A-Z0-9_]+)?)|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?)$`)

// apiService is the Service of the API server, whose variables are in every pod.
const apiService = "kubernetes"

// serviceOf is the Service that a variable can be of. The name of one has neither capitals nor underscores.
func serviceOf(name string) (service string, ok bool) {
	m := serviceVariable.FindStringSubmatch(name)
	if m == nil || slices.Contains(ownVariables, name) || strings.HasPrefix(name, launcherVariable) {
		return "", false
	}
	return strings.ReplaceAll(strings.ToLower(m[1]), "_", "-"), true
}

// linked reports whether a role's pods have a Service's variables: eltrain's have others than the API server's only if
// they ask for them.
func (r *role) linked(service string) bool { return service == apiService || r.serviceLinks }

// absentServices warns of what is left of a variable for the kubelet, and is of Services that eltrain's pods have no
// variables of.
func (im *importer) absentServices(r *role, item *value, left string, c *value) {
	if c.get("envFrom") != nil {
		return // it may come from there
	}
	told := map[string]bool{}
	for _, name := range referencesIn(left) {
		service, ok := serviceOf(name)
		if !ok || r.linked(service) || told[service] || defined(c.get("env"), name) {
			continue
		}
		told[service] = true
		im.warn(item, "Variable of a Service", "eltrain's pods have no variables of Services, so $(%s) stays unchanged. Replace it with the Service's name, %s, or its port, or set pod = { spec = { enableServiceLinks = true } }.", name, service)
	}
}

// references warns of what a command refers to and is not known here. What Kubernetes itself would leave as it is, as the
// $(hostname) of a script, is not told.
func (im *importer) references(r *role, c *value) {
	told := map[string]bool{}
	for _, u := range r.unresolved {
		kept := slices.ContainsFunc(r.Command, func(word string) bool { return strings.Contains(word, "$("+u.name+")") })
		if !kept || told[u.name] {
			continue // it was the launcher's
		}
		told[u.name] = true
		// Programs are written in small letters, variables are not.
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
