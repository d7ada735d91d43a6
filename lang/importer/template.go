package importer

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/eltrain/eltrain/job"
)

// mainContainer is the name of the training container in eltrain's pods.
const mainContainer = "main"

// entrypoint is the placeholder for the image's entrypoint, which is unknown.
const entrypoint = "ENTRYPOINT-OF-THE-IMAGE"

// template reads the pod template in a value: program, environment and resources from the training container, and
// everything else as the role's overlay. The training container is the first one with a preferred name, otherwise the
// first of all. known has the variables that the job's operator sets, as far as their values are known.
func (im *importer) template(r *role, in *value, preferred []string, known map[string]string) {
	t := in.get("template").open()
	im.templateMeta(t.get("metadata"))
	spec := t.get("spec").open()
	containers := spec.get("containers").open()
	main := trainingContainer(containers.list(), preferred)
	if main != nil {
		if name, ok := im.text(main.get("name")); ok {
			r.container = name
		}
		links, _ := spec.get("enableServiceLinks").scalar()
		r.serviceLinks = links == "true"
		im.container(r, main, known)
		im.sharedMemory(r, spec, main)
	} else {
		im.warn(in, "No container", "The pod template has no container, so the program is unknown. Write the role's command.")
		r.Command = []string{entrypoint}
	}
	im.podFields(r, spec)
	im.otherContainers(r, spec, main)
	overlay := map[string]any{}
	im.recordOrigin(overlay, "", t)
	if meta, ok := im.rest(t.get("metadata")); ok {
		overlay["metadata"] = meta
	}
	if list := im.containers(containers, main); len(list) > 0 {
		fields := map[string]any{"containers": list}
		im.recordOrigin(fields, "containers", containers)
		overlay["spec"] = fields
	}
	containers.use()
	if rest, ok := im.rest(spec); ok {
		merged, _ := overlay["spec"].(map[string]any)
		if fields, isMap := rest.(map[string]any); isMap {
			for name := range merged {
				im.moveField(fields, name, merged)
			}
			overlay["spec"] = fields
		}
	}
	for _, f := range t.entries() {
		if f.name != "spec" && f.name != "metadata" {
			im.drop(f, "It is not part of a pod template.")
		}
	}
	t.use()
	if len(overlay) > 0 {
		r.Pod = overlay
	}
}

func trainingContainer(list []*value, preferred []string) *value {
	for _, name := range preferred {
		for _, c := range list {
			if text, ok := c.get("name").scalar(); ok && text == name {
				return c
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

// clusterLabels are the labels that the Job controller adds to its templates.
var clusterLabels = []string{"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"}

// templateMeta leaves labels and annotations for the overlay.
func (im *importer) templateMeta(meta *value) {
	meta.open()
	for _, name := range clusterFields {
		meta.get(name).use()
	}
	for _, name := range clusterLabels {
		meta.get("labels").get(name).use()
	}
	for _, f := range meta.entries() {
		if f.name == "labels" || f.name == "annotations" {
			f.open()
			continue
		}
		im.drop(f, "eltrain names its pods itself and creates them in the provider's namespace.")
	}
}

// podFields reads fields that are arguments of a role, and drops those that eltrain sets itself.
func (im *importer) podFields(r *role, spec *value) {
	im.restartPolicy(spec.get("restartPolicy")) // not imported: eltrain's agent restarts processes, its master replaces pods
	if v := spec.get("terminationGracePeriodSeconds"); v != nil {
		if n, ok := im.number(v, 0, maxSeconds); ok {
			r.StopGrace = job.Duration(n) * 1e9
		}
	}
	im.drop(spec.get("hostname"), "eltrain gives each pod a hostname of its own, by role and index.")
	im.drop(spec.get("subdomain"), "The pods of a job have one subdomain, that of eltrain's service for it.")
	im.drop(spec.get("setHostnameAsFQDN"), "eltrain gives each pod a hostname of its own.")
	im.drop(spec.get("schedulingGates"), "eltrain manages the scheduling gates of its pods itself.")
	im.drop(spec.get("nodeName"), "Pods are placed by a scheduler. Use pod.spec.nodeSelector.")
}

var restartPolicies = []string{"Always", "OnFailure", "Never", "ExitCode"}

// restartPolicy reads and checks a restart policy; the result is "" if there is none or it is invalid.
func (im *importer) restartPolicy(v *value) string {
	text, ok := v.scalar()
	if v != nil && (!ok || !slices.Contains(restartPolicies, text)) {
		im.drop(v, "A restart policy is one of %s.", strings.Join(restartPolicies, ", "))
		return ""
	}
	v.use()
	return text
}

// containers returns the overlay of a pod's containers: the rest of the training container, under the name main,
// and the others unchanged.
func (im *importer) containers(list, main *value) []any {
	var out []any
	if main != nil {
		if rest, ok := im.rest(main); ok {
			if fields, isMap := rest.(map[string]any); isMap {
				fields["name"] = mainContainer
				out = append(out, fields)
			}
		}
	}
	for _, c := range list.list() {
		if c == main {
			continue
		}
		if name, _ := c.get("name").scalar(); name == mainContainer {
			im.drop(c, "The training container is named main, and so is this one. Rename it.")
			continue
		}
		if rest, ok := im.rest(c); ok {
			out = append(out, rest)
		}
	}
	return out
}

// container reads the training container.
func (im *importer) container(r *role, c *value, known map[string]string) {
	c.open()
	im.image(r, c.get("image"))
	if dir, ok := im.text(c.get("workingDir")); ok && dir != "" {
		r.WorkingDir = dir
	}
	known = im.environment(r, c, known)
	im.requirements(r, c.get("resources"))
	im.commandOf(r, c.get("command"), c.get("args"), c, known)
	im.launcherEnvironment(r, c.get("env"))
	im.operatorVariables(r, c)
}

func (im *importer) image(r *role, v *value) {
	if image, ok := im.text(v); ok {
		r.Image = image
	}
}

// commandOf joins command and args, as the kubelet does.
func (im *importer) commandOf(r *role, command, args, c *value, known map[string]string) {
	r.program = c
	words := im.wordsOf(command)
	if command != nil {
		r.program = command
	} else if args != nil {
		r.program = args
	}
	words = append(words, im.wordsOf(args)...)
	argv, written := im.expandWords(r, words, known)
	im.program(r, argv, written, known)
	im.references(r, c)
	if len(words) > 0 && command != nil {
		return
	}
	if r.launch != nil || runnable(r.Command) {
		return // args that begin with a program: the image's entrypoint is probably exec "$@"
	}
	r.Command = append([]string{entrypoint}, r.Command...)
	im.warn(r.program, "Unknown entrypoint", "The image's own entrypoint runs, which is unknown here. Replace %s with it.", entrypoint)
}

// wordsOf returns the words of a command, which is a list, or wrongly a string.
func (im *importer) wordsOf(v *value) []*value {
	if v == nil {
		return nil
	}
	if v.kind == scalar {
		im.warn(v, "A list is expected", "Kubernetes rejects a string here; it is read as one word. Write each word as a separate item.")
		return []*value{v}
	}
	return v.open().list()
}

// runnable reports whether args begin with a program.
func runnable(command []string) bool {
	if len(command) == 0 {
		return false
	}
	name := command[0][strings.LastIndexByte(command[0], '/')+1:]
	return python.MatchString(name) || slices.Contains(shells, name) || slices.Contains(otherLaunchers, name)
}

// ownVariables are the variables that eltrain's agent sets for each process, overriding the container's.
var ownVariables = job.ProcessVariables

// ownVariableReason is the reason why one of them is not imported.
const ownVariableReason = "eltrain sets %s for each process, from the world that it is in."

// launcherVariable is the prefix of environment variables that torchrun reads options from.
const launcherVariable = "PET_"

// environment reads a container's env. Literal values go to the role; values that only Kubernetes can resolve are left for
// the overlay. It returns all variables whose values are known.
func (im *importer) environment(r *role, c *value, operator map[string]string) map[string]string {
	seen := newVariables(operator, c.get("envFrom") != nil)
	for _, item := range c.get("env").open().list() {
		name, ok := item.get("name").scalar()
		if !ok {
			im.drop(item, "A variable needs a name.")
			continue
		}
		for _, f := range item.entries() {
			if f.name != "name" && f.name != "value" && f.name != "valueFrom" {
				im.drop(f, "A variable needs a name and a value.")
			}
		}
		written, plain := item.get("value").scalar()
		text, resolved := seen.resolve(written)
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			im.drop(item, "%q cannot name an environment variable.", name)
		case strings.HasPrefix(name, launcherVariable):
			if plain {
				item.get("value").text = seen.substitute(written)
			}
			seen.forget(name)
			if plain && resolved {
				seen.learn(name, text)
			}
		case slices.Contains(ownVariables, name):
			im.drop(item, ownVariableReason, name)
			if plain && resolved {
				seen.learn(name, text)
			}
		case item.get("value") == nil && item.get("valueFrom") != nil:
			seen.forget(name)
		case item.get("value") != nil && !plain:
			im.drop(item, "The value of a variable must be a string.")
		case !resolved:
			seen.forget(name)
			item.get("value").text = text // the kubelet expands the rest
			im.absentServices(r, item, text, c)
		default:
			im.plainVariable(r, item, name, text)
			seen.learn(name, text)
		}
	}
	return seen.known
}

// set sets a variable of a role, whose source is at.
func (r *role) set(name, text string, at *value) {
	if r.Env == nil {
		r.Env, r.variables = map[string]string{}, map[string]*value{}
	}
	r.Env[name], r.variables[name] = text, at
}

func (im *importer) plainVariable(r *role, item *value, name, text string) {
	if strings.Contains(text, "\x00") {
		im.drop(item, "A variable cannot contain a NUL character.")
		return
	}
	if old, twice := r.Env[name]; twice && old != text {
		im.warn(item, "Variable given twice", "%s was already set to %q. The last one is used, as in Kubernetes.", name, old)
	}
	r.set(name, text, item)
	item.open()
	item.get("name").use()
	item.get("value").use()
	item.get("valueFrom").use()
}

// launcherEnvironment reads the launcher's options from the PET_* variables of env; its command line takes precedence.
// Without a launcher they are ordinary variables.
func (im *importer) launcherEnvironment(r *role, list *value) {
	for _, item := range list.list() {
		name, _ := item.get("name").scalar()
		rest, ours := strings.CutPrefix(name, launcherVariable)
		if !ours || item.used {
			continue
		}
		text, plain := item.get("value").scalar()
		whole := plain && len(referencesIn(text)) == 0
		if whole {
			text = expand(text, nil)
		}
		spec := optionFrom(rest)
		switch {
		case r.launch == nil && whole:
			im.plainVariable(r, item, name, text)
		case r.launch == nil:
		case spec == nil:
			im.drop(item, "It is not a known option of torchrun.")
		case r.launch.option(spec.name) != nil:
			item.use() // the command line has it
		case plain:
			r.launch.set(spec.name, &option{text: strings.TrimSpace(text), at: item})
			item.use()
		case configures(spec.name):
			im.drop(item, "It sets the launcher's --%s from a value that is known only in the pod.", spec.name)
		default:
			item.use()
		}
	}
}

func optionFrom(variable string) *launcherOption {
	name := strings.ReplaceAll(strings.ToLower(variable), "_", "-")
	for i := range launcherOptions {
		if launcherOptions[i].name == name {
			return &launcherOptions[i]
		}
	}
	return nil
}

// configures reports whether an option affects the job, not only how agents find each other.
func configures(option string) bool {
	return slices.Contains([]string{"nnodes", "nproc-per-node", "max-restarts", "node-unit", "rdzv-conf", "role"}, option)
}

// requirements reads the container's resources.
func (im *importer) requirements(r *role, v *value) {
	if v == nil {
		return
	}
	v.open()
	requests, limits := v.get("requests").open(), v.get("limits").open()
	for _, request := range requests.entries() {
		limit := limits.get(request.name)
		im.amount(r, request, limit)
	}
	for _, limit := range limits.entries() {
		if requests.get(limit.name) == nil {
			im.amount(r, limit, limit)
		}
	}
	// Others (ephemeral-storage, hugepages, claims) are left for the overlay.
}

// amount reads one resource. If request and limit differ, the larger is reserved, so that a program that stays within
// its limit still runs.
func (im *importer) amount(r *role, request, limit *value) {
	text, _ := request.scalar()
	most := text
	if limit != nil {
		most, _ = limit.scalar()
	}
	var err error
	switch {
	case request.name == "cpu":
		err = largest(&r.Resources.CPU, parseCPU, text, most)
	case request.name == "memory":
		err = largest(&r.Resources.Memory, parseMemory, text, most)
	case isDevice(request.name):
		var n int
		if err = largest(&n, parseDevices, text, most); err == nil && n > 0 {
			if r.Resources.Devices == nil {
				r.Resources.Devices = map[string]int{}
			}
			r.Resources.Devices[request.name] = n
		}
	default:
		return
	}
	if err != nil {
		im.drop(request, "%s.", err)
		im.drop(limit, "%s.", err)
		return
	}
	if a, errA := parseQuantity(text); limit != nil && errA == nil {
		if b, errB := parseQuantity(most); errB == nil && a != b {
			im.warn(limit, "Request and limit differ", "The request is %s and the limit %s. eltrain reserves what a slot may use: the larger of both.", text, most)
		}
	}
	request.use()
	limit.use()
}

// largest sets the larger of two amounts.
func largest[T int | job.CPU | job.Bytes](to *T, parse func(string) (T, error), texts ...string) error {
	var most T
	for _, text := range texts {
		n, err := parse(text)
		if err != nil {
			return err
		}
		most = max(most, n)
	}
	*to = most
	return nil
}

// isDevice reports whether a resource is an extended resource, not one that Kubernetes counts itself.
func isDevice(name string) bool {
	domain, _, ok := strings.Cut(name, "/")
	return ok && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io")
}

// sharedMemory sets shm from the in-memory volume that is mounted at /dev/shm. One without a size may take all memory of the pod,
// as Kubernetes has it; without a limit of that, all memory of the node, which shm cannot say.
func (im *importer) sharedMemory(r *role, spec, main *value) {
	for _, mount := range main.get("volumeMounts").list() {
		path, _ := mount.get("mountPath").scalar()
		name, _ := mount.get("name").scalar()
		if strings.TrimRight(path, "/") != "/dev/shm" || len(mount.entries()) != 2 {
			continue
		}
		for _, volume := range spec.get("volumes").list() {
			text, _ := volume.get("name").scalar()
			dir := volume.get("emptyDir")
			medium, _ := dir.get("medium").scalar()
			if text != name || medium != "Memory" || len(volume.entries()) != 2 || mounted(spec, name) != 1 {
				continue
			}
			size, fields := r.Resources.Memory, 1
			if limit, sized := dir.get("sizeLimit").scalar(); sized {
				most, err := parseMemory(limit)
				if err != nil {
					continue
				}
				size = cmp.Or(most, size) // to Kubernetes 0 is no limit
				fields++
			}
			if len(dir.entries()) != fields {
				continue // not a volume of Kubernetes
			}
			if size == 0 {
				im.warn(volume, "Not imported", "Shared memory without a size. eltrain mounts /dev/shm itself, but since the container has no memory limit either, "+
					"it may take all memory of the node. Write its size in the role, for example resources { shm = \"8GiB\" }.")
			}
			r.Resources.Shm = size
			mount.use()
			volume.use()
			main.get("volumeMounts").open()
			spec.get("volumes").open()
			return
		}
	}
}

// otherContainers warns about other containers that use variables set only in the training container.
func (im *importer) otherContainers(r *role, spec, main *value) {
	for _, kind := range []string{"containers", "initContainers"} {
		for _, c := range spec.get(kind).list() {
			for _, name := range r.slotEnv {
				if c != main && c.mentions(name) && !defined(c.get("env"), name) {
					im.warn(c, "Variable of the training container", "It uses %s, which eltrain sets only in the training container.", name)
				}
			}
		}
	}
}

// mounted counts a volume's mounts in a pod.
func mounted(spec *value, name string) int {
	count := 0
	for _, kind := range []string{"containers", "initContainers"} {
		for _, c := range spec.get(kind).list() {
			for _, mount := range c.get("volumeMounts").list() {
				if text, _ := mount.get("name").scalar(); text == name {
					count++
				}
			}
		}
	}
	return count
}

var (
	mention     = regexp.MustCompile(`\$\{?([A-Za-z_][A-Za-z0-9_]*)`)
	operatorSet = regexp.MustCompile(`^(NODE_NUM|NODE_RANK|NODE_ID|NODE_TYPE|PET_[A-Z_]+|VC_[A-Za-z0-9_]+|ELASTIC_JOB_NAME|DLROVER_[A-Z_]+|WORKER_[A-Z_]+)$`)
)

// operatorVariables warns about variables in the command that the job's operator set in the pod and that eltrain does not
// set, or sets with another meaning.
func (im *importer) operatorVariables(r *role, c *value) {
	reported := map[string]bool{}
	for _, text := range r.Command {
		for _, m := range mention.FindAllStringSubmatch(text, -1) {
			name := m[1]
			if reported[name] || r.Env[name] != "" || slices.Contains(r.slotEnv, name) || defined(c.get("env"), name) {
				continue
			}
			switch {
			case (name == "RANK" || name == "WORLD_SIZE") && r.launch != nil:
				im.warn(r.program, "Another meaning", "%s counts training processes here; in the pod it counted pods, which are GROUP_RANK and GROUP_WORLD_SIZE.", name)
			case operatorSet.MatchString(name):
				im.warn(r.program, "Variable of another operator", "The command uses %s, which eltrain does not set%s.", name, insteadOf(name))
			default:
				continue
			}
			reported[name] = true
		}
	}
}

func defined(env *value, name string) bool {
	return slices.ContainsFunc(env.list(), func(item *value) bool {
		text, _ := item.get("name").scalar()
		return text == name
	})
}

// insteadOf names the variable that eltrain sets instead, if any.
func insteadOf(name string) string {
	switch name {
	case "NODE_NUM":
		return "; GROUP_WORLD_SIZE is the number of slots in the world"
	case "NODE_RANK", "PET_NODE_RANK":
		return "; GROUP_RANK is the slot's rank"
	}
	return ""
}

// replicas reads a role's number of pods. It returns false if it is 0, in which case the role is left out.
func (im *importer) replicas(spec *value, name string, absent int) (int, bool) {
	v := spec.get(name)
	if v == nil {
		return absent, true
	}
	n, ok := im.number(v, 0, maxSlots)
	if !ok {
		return absent, true
	}
	if n == 0 {
		im.warn(v, "Role left out", "It has no replicas, but a role in eltrain has at least one.")
		spec.use()
		return 0, false
	}
	return n, true
}

// setFailFast makes the role's first failure end the job: its budget is 0, unless its launcher restarts processes.
func (r *role) setFailFast(why *value) {
	r.failFast = why
	if r.restarts == nil {
		r.addRestarts(0)
	}
}
