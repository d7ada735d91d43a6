package importer

import (
	"slices"
	"strconv"
)

// pyTorchJob reads Kubeflow's PyTorchJob (pkg/apis/kubeflow.org/v1 in kubeflow/training-operator).
func (im *importer) pyTorchJob(doc *value, j *imported) bool {
	spec := doc.get("spec").open()
	specs := spec.get("pytorchReplicaSpecs").open()
	master, worker := specs.get("Master"), specs.get("Worker")
	masters, hasMaster := 0, false
	if master != nil {
		masters, hasMaster = im.replicas(master, "replicas", 1)
	}
	workers, hasWorker := 0, false
	if worker != nil {
		workers, hasWorker = im.replicas(worker, "replicas", 1)
	}
	if !hasMaster && !hasWorker {
		im.fail(doc.at, "Nothing to run", "This %s has neither a Master nor a Worker to import.", j.from)
		return false
	}
	policy := spec.get("elasticPolicy").open()
	processes := scalarOf(spec.get("nprocPerNode"))
	if processes == "" {
		processes = scalarOf(policy.get("nProcPerNode"))
	}
	known := map[string]string{}
	if n, err := strconv.Atoi(processes); err == nil || processes == "" {
		known["PET_NNODES"] = strconv.Itoa(masters + workers)
		known["WORLD_SIZE"] = strconv.Itoa((masters + workers) * max(n, 1))
	}

	bounds := im.elasticBounds(policy)
	switch {
	case hasMaster && hasWorker && sameButReplicas(master, worker):
		// A master is a worker with rank 0, and rank 0 needs no role of its own.
		master.open().get("template").use()
		master.get("restartPolicy").use()
		bounds.replicas = masters + workers
		if bounds.least > 0 || bounds.most > 0 {
			bounds.least, bounds.most = bounds.least+masters, bounds.most+masters
		}
		j.from += ", its master one of the workers"
		im.pyTorchRole(worker, j, "worker", bounds, spec, policy, known)
	default:
		if hasMaster {
			im.pyTorchRole(master, j, "master", size{replicas: masters, world: masters + workers}, spec, policy, known)
		}
		if hasWorker {
			bounds.replicas, bounds.world = workers, masters+workers
			im.pyTorchRole(worker, j, "worker", bounds, spec, policy, known)
		}
	}
	im.elasticRest(j, policy)
	im.runPolicy(j, spec.get("runPolicy"))
	return true
}

// sameButReplicas reports whether two replica specs differ only in their number of replicas.
func sameButReplicas(a, b *value) bool {
	for _, name := range []string{"template", "restartPolicy"} {
		if !a.get(name).same(b.get(name)) {
			return false
		}
	}
	return true
}

func (im *importer) pyTorchRole(rs *value, j *imported, name string, s size, spec, policy *value, known map[string]string) {
	rs.open()
	r := im.newRole(j, name, nil)
	im.template(r, rs, []string{"pytorch"}, known)
	im.operatorOption(r, "nproc-per-node", spec.get("nprocPerNode"))
	im.operatorOption(r, "nproc-per-node", policy.get("nProcPerNode"))
	im.operatorOption(r, "max-restarts", policy.get("maxRestarts"))
	im.applyLaunch(j, r, s)
	if im.restartPolicy(rs.get("restartPolicy")) == "Never" {
		r.setFailFast(rs.get("restartPolicy"))
	}
}

// operatorOption sets a launcher option that the operator would set as a PET_* variable, unless the command line has it.
// Without a launcher it has no effect.
func (im *importer) operatorOption(r *role, name string, v *value) {
	text, ok := v.scalar()
	switch {
	case !ok:
	case r.launch == nil && name == "nproc-per-node" && text == "1":
		v.use()
	case r.launch == nil && name == "nproc-per-node" && slices.Contains(perDevice, text):
		im.drop(v, "%s", perDeviceText(text))
	case r.launch == nil && name == "nproc-per-node":
		im.drop(v, "The command has no launcher that would start this many processes. To have eltrain start them, set processes in the role. 1 is used.")
	case r.launch == nil && name == "max-restarts":
		// Without a launcher eltrain does the restarts.
		if n, ok := im.number(v, 0, maxRestarts); ok {
			r.addRestarts(n)
		}
	case r.launch == nil:
	default:
		v.use()
		if r.launch.option(name) == nil {
			r.launch.set(name, &option{text: text, at: v})
		}
	}
}

// elasticBounds returns the manifest's own bounds.
func (im *importer) elasticBounds(policy *value) size {
	var s size
	if n, ok := im.number(policy.get("minReplicas"), 1, maxSlots); ok {
		s.least = n
	}
	if n, ok := im.number(policy.get("maxReplicas"), 1, maxSlots); ok {
		s.most = n
	}
	if s.most > 0 && s.least > s.most {
		im.warn(policy.get("minReplicas"), "Minimum above maximum", "minReplicas is %d and maxReplicas %d. The larger is used for both.", s.least, s.most)
	}
	return s
}

// elasticRest reads the elastic policy except its bounds.
func (im *importer) elasticRest(j *imported, policy *value) {
	for _, name := range []string{"rdzvBackend", "rdzvPort", "rdzvHost", "rdzvId", "standalone"} {
		policy.get(name).use() // how agents find each other: the service handles it
	}
	for _, setting := range policy.get("rdzvConf").open().list() {
		key, value := scalarOf(setting.get("key")), scalarOf(setting.get("value"))
		o := &option{text: key + "=" + value, at: setting}
		im.rendezvous(j, &role{launch: &launch{options: map[string]*option{"rdzv-conf": o}}})
		setting.open().get("key").use()
		setting.get("value").use()
	}
	im.drop(policy.get("metrics"), "eltrain does not scale by metrics: a role grows as its bounds and free capacity allow.")
}

// runPolicy reads the run policy, which all kinds of training-operator have.
func (im *importer) runPolicy(j *imported, policy *value) {
	policy.open()
	im.suspended(policy.get("suspend"))
	if n, ok := im.number(policy.get("backoffLimit"), 0, maxRestarts); ok {
		for _, r := range j.roles {
			r.addRestarts(n)
		}
	}
	im.drop(policy.get("cleanPodPolicy"), "eltrain removes the pods of a job that has ended.")
	im.drop(policy.get("ttlSecondsAfterFinished"), "A job that has ended stays in the state, without pods, until it is removed from the files.")
	im.drop(policy.get("activeDeadlineSeconds"), "eltrain has no deadline for a job.")
	im.dropUnless(policy.get("managedBy"), "kubeflow.org/training-operator", "eltrain manages the jobs of its files itself.")
	scheduling := policy.get("schedulingPolicy").open()
	im.dropUnless(scheduling.get("minAvailable"), strconv.Itoa(leastSlots(j)), "%d pods start together or not at all: the minimum of each role.", leastSlots(j))
	im.drop(scheduling.get("minResources"), "The minimum of each role starts together or not at all.")
	im.noQueue(scheduling.get("queue"))
	im.drop(scheduling.get("scheduleTimeoutSeconds"), "A job waits for capacity without a limit.")
	im.priorityClass(j, scheduling.get("priorityClass"))
}

// leastSlots returns the minimum number of slots of a job.
func leastSlots(j *imported) int {
	sum := 0
	for _, r := range j.roles {
		least, _ := r.Bounds()
		sum += least
	}
	return sum
}

// noQueue drops the queue of a job whose provider has no queues, with a warning unless it is the default one.
func (im *importer) noQueue(v *value) {
	im.dropUnless(v, defaultQueue, "Queues need the volcano provider: provider = \"volcano\" in the job, and provider \"volcano\" { queue = %q }.", scalarOf(v))
}

// priorityClass sets the priority class of all pods that have none of their own.
func (im *importer) priorityClass(j *imported, v *value) {
	class, ok := im.text(v)
	if !ok || class == "" {
		return
	}
	for _, r := range j.roles {
		spec, _ := r.Pod["spec"].(map[string]any)
		if spec == nil {
			spec = map[string]any{}
		}
		if _, own := spec["priorityClassName"]; own {
			im.warn(v, "Another priority class", "The pods of the role %s keep their own class.", r.Name)
			continue
		}
		spec["priorityClassName"] = class
		im.recordOrigin(spec, "priorityClassName", v)
		if r.Pod == nil {
			r.Pod = map[string]any{}
		}
		r.Pod["spec"] = spec
	}
}
