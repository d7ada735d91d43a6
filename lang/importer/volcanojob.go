package importer

import (
	"slices"
	"strconv"
	"strings"
)

// volcanoJob reads Volcano's Job (staging/src/volcano.sh/apis/pkg/apis/batch/v1alpha1).
func (im *importer) volcanoJob(doc *value, j *imported) bool {
	j.Provider = volcano
	spec := doc.get("spec").open()
	tasks := spec.get("tasks").open().list()
	plugins := spec.get("plugins").open()
	known := map[string]string{}
	total := 0
	for _, t := range tasks {
		n, err := strconv.Atoi(scalarOf(t.get("replicas")))
		if err != nil {
			n = 1
		}
		total += n
		known["VC_"+strings.ToUpper(strings.ReplaceAll(scalarOf(t.get("name")), "-", "_"))+"_NUM"] = strconv.Itoa(n)
	}
	if plugins.get("pytorch") != nil {
		known["WORLD_SIZE"] = strconv.Itoa(total)
	}
	names := map[string]string{} // names of roles by those of their tasks
	for _, t := range tasks {
		if r := im.volcanoTask(t, j, spec, len(tasks) == 1, total, known); r != nil {
			names[scalarOf(t.get("name"))] = r.Name
		}
	}
	if len(j.roles) == 0 {
		im.fail(doc.at, "Nothing to run", "This %s has no task to import.", j.from)
		return false
	}
	for _, t := range tasks {
		im.dependsOn(t, j, names)
	}
	im.minAvailable(spec.get("minAvailable"), tasks, total)
	im.policies(spec.get("policies"), slices.DeleteFunc(slices.Clone(j.roles), func(r *role) bool { return r.onFailure }))
	for _, r := range j.roles {
		im.retries(r)
	}
	im.plugins(plugins, tasks, names)
	im.volcanoQueue(spec.get("queue"), j)
	im.priorityClass(j, spec.get("priorityClassName"))
	if n, ok := im.number(spec.get("maxRetry"), 0, maxRestarts); ok {
		retried := false
		for _, r := range j.roles {
			if r.failFast == nil {
				r.addRestarts(n)
				retried = true
			}
		}
		if !retried {
			im.warn(spec.get("maxRetry"), "Not imported", abortsFirst)
		}
	}
	im.dropUnless(spec.get("schedulerName"), "volcano", "provider \"volcano\" { scheduler_name = … } sets the scheduler of all jobs.")
	im.drop(spec.get("ttlSecondsAfterFinished"), "A job that has ended stays in the state, without pods, until it is removed from the files.")
	im.drop(spec.get("networkTopology"), "provider \"volcano\" { network_topology { … } } limits the distance of pods for all jobs. topology { rank_by = … } orders ranks.")
	im.drop(spec.get("volumes"), "eltrain does not create volume claims. Create them first and name them in pod.spec.volumes.")
	return true
}

func (im *importer) volcanoTask(t *value, j *imported, spec *value, only bool, total int, known map[string]string) *role {
	t.open()
	replicas, some := im.replicas(t, "replicas", 1)
	if !some {
		return nil
	}
	name := t.get("name")
	text, ok := im.text(name)
	if !ok {
		text, name = "worker", nil
	}
	r := im.newRole(j, text, name)
	if spec.get("plugins").get("env") != nil {
		r.slotEnv = []string{"VC_TASK_INDEX", "VK_TASK_INDEX"}
	}
	im.template(r, t, nil, known)

	s := size{replicas: replicas, world: total}
	if n, ok := im.number(t.get("minAvailable"), 1, maxSlots); ok {
		s.least, s.most = min(n, replicas), replicas
	} else if n, err := strconv.Atoi(scalarOf(spec.get("minAvailable"))); only && err == nil && n > 0 && n < total {
		s.least, s.most = n, replicas
	}
	im.applyLaunch(j, r, s)
	im.policies(t.get("policies"), []*role{r})
	r.onFailure = hasPolicy(t.get("policies"), podFailed)
	r.restartsValue = t.get("maxRetry") // counts unless a policy of the task or the job ends the job first: see retries
	im.drop(t.get("topologyPolicy"), "The kubelet handles NUMA nodes: use guaranteed resources.")
	return r
}

// retries adds a task's maxRetry to its restarts, unless its first failure ends the job. It runs after all policies were
// read, because Volcano sets maxRetry in every task.
func (im *importer) retries(r *role) {
	if r.failFast != nil {
		im.drop(r.restartsValue, abortsFirst)
		r.restartsValue = nil
		return
	}
	n, ok := im.number(r.restartsValue, 0, maxRestarts)
	if !ok {
		r.restartsValue = nil
		return
	}
	r.addRestarts(n)
}

// defaultQueue is the queue of jobs without one.
const defaultQueue = "default"

func (im *importer) volcanoQueue(v *value, j *imported) {
	queue, ok := im.text(v)
	if !ok || queue == "" {
		queue, v = defaultQueue, j.at
	}
	im.inQueue(queue, v)
}

// minAvailable warns about a minimum for the whole job that no role's scaling expresses: tasks have their own, or the only
// task got it, or it is the total, which eltrain requires anyway.
func (im *importer) minAvailable(v *value, tasks []*value, total int) {
	n, ok := im.number(v, 0, maxSlots)
	bounded := len(tasks) == 1 || !slices.ContainsFunc(tasks, func(t *value) bool { return t.get("minAvailable") == nil })
	if ok && n > 0 && n != total && !bounded {
		im.warn(v, "Not imported", "%d of %d pods are enough for this job, but not which ones: add a scaling block to the roles that may shrink.", n, total)
	}
}

// dependsOn reads a task's start order.
func (im *importer) dependsOn(t *value, j *imported, names map[string]string) {
	d := t.get("dependsOn").open()
	r := names[scalarOf(t.get("name"))]
	if r == "" {
		return
	}
	to := j.role(r)
	before := d.get("name").open()
	for _, other := range before.list() {
		name, _ := other.scalar()
		if names[name] == "" || names[name] == r || im.reaches(j, names[name], r) {
			im.drop(other, "There is no other task %q that could start first.", name)
			continue
		}
		other.use()
		if !slices.Contains(to.DependsOn, names[name]) {
			to.DependsOn = append(to.DependsOn, names[name])
		}
	}
	im.dropUnless(d.get("iteration"), "all", "A role starts when all roles that it depends on are running.")
}

// reaches reports whether a role depends on another, directly or indirectly.
func (im *importer) reaches(j *imported, from, to string) bool {
	return from == to || slices.ContainsFunc(j.role(from).DependsOn, func(next string) bool { return im.reaches(j, next, to) })
}

// The events and actions of Volcano's policies (bus/v1alpha1) that eltrain can import.
const (
	podFailed  = "PodFailed"
	podEvicted = "PodEvicted"
	taskFailed = "TaskFailed" // its containers were restarted maxRetry times
)

var (
	restarting = []string{"RestartJob", "RestartTask", "RestartPod", "RestartPartition"}
	ending     = []string{"AbortJob", "TerminateJob"}
)

// abortsFirst is the reason why a number of retries is not imported.
const abortsFirst = "A policy ends the job at the first failure, before any retry."

// hasPolicy reports whether a list of policies has one for an event.
func hasPolicy(list *value, event string) bool {
	return slices.ContainsFunc(list.list(), func(p *value) bool { return slices.Contains(eventsOf(p), event) })
}

// eventsOf returns the events of a policy, from its fields event and events.
func eventsOf(p *value) []string {
	var events []string
	if event := scalarOf(p.get("event")); event != "" {
		events = append(events, event)
	}
	for _, e := range p.get("events").list() {
		events = append(events, scalarOf(e))
	}
	return events
}

// policies reads the policies for events. Restarts need no import: eltrain restarts what failed, and no more than needed.
// Ending the job when maxRetry is used up is what the budget does.
func (im *importer) policies(list *value, roles []*role) {
	for _, p := range list.open().list() {
		events, action := eventsOf(p), scalarOf(p.get("action"))
		only := func(these ...string) bool {
			return len(p.entries()) == 2 && len(events) > 0 && !slices.ContainsFunc(events, func(e string) bool { return !slices.Contains(these, e) })
		}
		switch {
		case only(podFailed, podEvicted, taskFailed) && slices.Contains(restarting, action), only(taskFailed) && slices.Contains(ending, action):
			p.use()
		case only(podFailed, taskFailed) && slices.Contains(ending, action):
			p.use()
			for _, r := range roles {
				r.setFailFast(p)
			}
		default:
			im.drop(p, "eltrain restarts what failed within heal { budget { … } }, and a job ends when all its ranked roles have ended.")
		}
	}
}

// plugins reads the plugins, by which a Volcano job's programs find each other. names maps the names of tasks to those of
// their roles.
func (im *importer) plugins(v *value, tasks []*value, names map[string]string) {
	for _, p := range v.entries() {
		switch p.name {
		case "pytorch":
			im.pytorchPlugin(p, tasks, names) // eltrain sets the same variables
		case "env":
			p.open() // imported as slotEnv
			for _, arg := range p.list() {
				im.drop(arg, "The plugin takes no arguments.")
			}
		case "svc":
			im.drop(p, "There are no lists of hosts in /etc/volcano and VC_…_HOSTS. A process finds the world by MASTER_ADDR, RANK and WORLD_SIZE.")
		case "ssh":
			im.drop(p, "Pods do not get SSH keys for each other.")
		default:
			im.drop(p, "eltrain has no such plugin.")
		}
	}
}

// defaultMaster is the task with rank 0 if the pytorch plugin has no argument for it (its DefaultMaster).
const defaultMaster = "master"

// pytorchPlugin reads the plugin that sets MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK. In eltrain the service sets them,
// and rank 0 is in the first role, whatever its name.
func (im *importer) pytorchPlugin(p *value, tasks []*value, names map[string]string) {
	first := ""
	for _, t := range tasks {
		if name := scalarOf(t.get("name")); first == "" && names[name] != "" {
			first = name
		}
	}
	const notFirst = "Rank 0 is in the first role, which is %s. Write the role that should have it first."
	p.open()
	reported := slices.ContainsFunc(p.list(), func(arg *value) bool {
		return strings.HasPrefix(strings.TrimLeft(scalarOf(arg), "-"), "master")
	})
	if !reported && names[defaultMaster] != "" && first != defaultMaster {
		im.warn(p, "Not imported", notFirst, names[first])
	}
	for _, arg := range p.list() {
		text, _ := arg.scalar()
		name, value, _ := strings.Cut(strings.TrimLeft(text, "-"), "=")
		_, port := strconv.Atoi(value)
		switch {
		case name == "port" && port == nil, name == "worker" && names[value] != "", name == "master" && value == first:
			arg.use()
		case name == "master":
			im.drop(arg, notFirst, names[first])
		default:
			im.drop(arg, "It is not a known argument of the plugin.")
		}
	}
}
