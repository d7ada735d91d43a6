package importer

import (
	"slices"
	"strconv"
	"strings"

	"github.com/eltrain/eltrain/job"
)

// elasticJob reads DLRover's ElasticJob (go/elasticjob/api/v1alpha1 in intelligent-machine-learning/dlrover).
func (im *importer) elasticJob(doc *value, j *imported) bool {
	spec := doc.get("spec").open()
	switch strategy, _ := im.text(spec.get("distributionStrategy")); strategy {
	case "", "AllreduceStrategy", "Local":
	default:
		im.warn(spec.get("distributionStrategy"), "Strategy of another kind", "DLRover writes the cluster of a %s to TF_CONFIG, but eltrain does not: the program must find its parameter servers by itself.", strategy)
	}
	im.dropUnless(spec.get("optimizeMode"), "manunal", "eltrain scales within the bounds of a role; it has no optimizer.") // DLRover's spelling
	im.suspended(spec.get("suspend"))
	im.drop(spec.get("brainService"), "eltrain does not ask a service about resources.")
	im.elasticLimits(j, spec.get("resourceLimits"))

	specs := spec.get("replicaSpecs").open()
	workers, _ := strconv.Atoi(scalarOf(specs.get("worker").get("replicas")))
	known := map[string]string{}
	if workers > 0 {
		known["NODE_NUM"] = strconv.Itoa(workers)
	}
	for _, f := range spec.get("envs").entries() {
		if text, ok := commonVariable(f); ok {
			known[f.name] = text
		}
	}
	for _, rs := range specs.entries() {
		if rs.name == "dlrover-master" {
			im.drop(rs, "eltrain has a master of its own.")
			continue
		}
		im.elasticRole(rs, j, known)
	}
	im.commonVariables(spec.get("envs"), j)
	if len(j.roles) == 0 {
		im.fail(doc.at, "Nothing to run", "This %s has no replicas to import.", j.from)
		return false
	}
	return true
}

func scalarOf(v *value) string {
	text, _ := v.scalar()
	return text
}

func (im *importer) elasticRole(rs *value, j *imported, known map[string]string) {
	rs.open()
	replicas, some := im.replicas(rs, "replicas", 1)
	if !some {
		return
	}
	r := im.newRole(j, rs.name, rs)
	r.Ranked = rs.name != "ps" && rs.name != "evaluator"
	im.template(r, rs, []string{mainContainer}, known)
	im.applyLaunch(j, r, size{replicas: replicas})
	if n, ok := im.number(rs.get("restartCount"), 0, maxRestarts); ok {
		r.addRestarts(n)
		r.restartsValue = rs.get("restartCount")
	}
	if im.restartPolicy(rs.get("restartPolicy")) == "Never" {
		r.setFailFast(rs.get("restartPolicy"))
	}
	im.dropUnless(rs.get("autoScale"), "true", "The bounds of the role say whether it scales. In DLRover this changes nothing for a job of workers alone.")
	im.drop(rs.get("restartTimeout"), "A restart has no timeout of its own. See rendezvous { timeout = … }.")
	im.drop(rs.get("priority"), "Priority belongs to the job and is a whole number. A pod's class is pod.spec.priorityClassName.")
	for _, name := range []string{"BatchScheduler", "batchScheduler"} {
		im.dropUnless(rs.get(name), "default", "The kubernetes provider starts a role's minimum together with scheduling gates, with any scheduler.")
	}
}

// elasticLimits reads the job's resource limits.
func (im *importer) elasticLimits(j *imported, v *value) {
	for _, f := range v.open().entries() {
		text, _ := f.scalar()
		if j.Limits == nil {
			j.Limits = &job.Limits{}
		}
		var err error
		switch {
		case f.name == "cpu":
			var cpu job.CPU
			if cpu, err = parseCPU(text); err == nil {
				j.Limits.CPU = &cpu
			}
		case f.name == "memory":
			var memory job.Bytes
			if memory, err = parseMemory(text); err == nil {
				j.Limits.Memory = &memory
			}
		case f.name == "gpu" || isDevice(f.name):
			var n int
			if n, err = parseDevices(text); err == nil {
				if j.Limits.Devices == nil {
					j.Limits.Devices = map[string]int{}
				}
				name := f.name
				if name == "gpu" {
					name = "nvidia.com/gpu" // the only ones that DLRover counts
				}
				j.Limits.Devices[name] = n
			}
		default:
			continue
		}
		if err != nil {
			im.drop(f, "%s.", err)
			continue
		}
		f.use()
	}
	if j.Limits != nil && j.Limits.CPU == nil && j.Limits.Memory == nil && j.Limits.Devices == nil {
		j.Limits = nil
	}
}

// commonVariable returns the value of a variable of all roles: a string, or { value = … }.
func commonVariable(f *value) (text string, ok bool) {
	if text, ok = f.scalar(); !ok {
		text, ok = f.get("value").scalar()
	}
	ok = ok && f.name != "" && !strings.ContainsAny(f.name, "=\x00") && !strings.Contains(text, "\x00") && len(referencesIn(text)) == 0
	if !ok {
		return "", false
	}
	return expand(text, nil), true
}

// commonVariables reads the variables of all roles, a map by name.
func (im *importer) commonVariables(v *value, j *imported) {
	for _, f := range v.open().entries() {
		if slices.Contains(ownVariables, f.name) {
			im.drop(f, ownVariableReason, f.name)
			continue
		}
		text, ok := commonVariable(f)
		if !ok {
			im.drop(f, "Only a variable with a literal value can be set for all roles.")
			continue
		}
		if f.kind == scalar {
			f.use()
		}
		f.open().get("value").use()
		for _, r := range j.roles {
			if _, own := r.Env[f.name]; !own {
				r.set(f.name, text, f)
			}
		}
	}
}

// suspended reads the suspend field, which all kinds have.
func (im *importer) suspended(v *value) {
	im.dropUnless(v, "false", "Jobs in the files run. To suspend one, remove it from the files.")
}
