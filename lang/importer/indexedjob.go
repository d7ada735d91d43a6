package importer

// indexVariable is the environment variable with the index of a pod of an Indexed Job.
const indexVariable = "JOB_COMPLETION_INDEX"

// indexedJob reads Kubernetes' Job (batch/v1), which suits training if its completions are indexed: the pods run at the
// same time and can address each other.
func (im *importer) indexedJob(doc *value, j *imported) bool {
	spec := doc.get("spec").open()
	completions, some := im.replicas(spec, "completions", 0)
	if !some {
		im.fail(doc.at, "Nothing to run", "This %s has no completions.", j.from)
		return false
	}
	parallelism, some := im.replicas(spec, "parallelism", max(completions, 1))
	if !some {
		im.fail(doc.at, "Nothing to run", "This %s runs nothing: its parallelism is 0.", j.from)
		return false
	}
	if completions == 0 {
		completions = parallelism
	}
	mode, _ := im.text(spec.get("completionMode"))
	indexed := mode == "Indexed"
	if !indexed {
		at := spec.get("completionMode")
		if at == nil {
			at = doc.get("kind")
		}
		im.warn(at, "Not an Indexed Job", "Its pods are independent, but the slots of an eltrain job train together: they get ranks in one world.")
	}
	if parallelism < completions {
		im.warn(spec.get("parallelism"), "All at once", "The Job runs %d of %d at a time. eltrain runs all slots of a role at once.", parallelism, completions)
	}
	r := im.newRole(j, "worker", nil)
	if indexed {
		r.slotEnv = []string{indexVariable}
	}
	im.template(r, spec, nil, nil)
	im.applyLaunch(j, r, size{replicas: completions})
	if n, ok := im.number(spec.get("backoffLimit"), 0, maxRestarts); ok {
		r.addRestarts(n)
	}
	im.suspended(spec.get("suspend"))
	spec.get("selector").use() // set by the Job controller
	spec.get("manualSelector").use()
	im.drop(spec.get("activeDeadlineSeconds"), "eltrain has no deadline for a job.")
	im.drop(spec.get("ttlSecondsAfterFinished"), "A job that has ended stays in the state, without pods, until it is removed from the files.")
	im.drop(spec.get("backoffLimitPerIndex"), "A job has one budget of restarts, heal { budget { … } }.")
	im.drop(spec.get("maxFailedIndexes"), "A world needs all its slots; scaling { min = … } allows fewer.")
	im.drop(spec.get("podFailurePolicy"), "eltrain distinguishes program failures from node failures by itself.")
	im.drop(spec.get("successPolicy"), "A job has succeeded when all its ranked roles have.")
	im.dropUnless(spec.get("podReplacementPolicy"), "TerminatingOrFailed", "A slot's next pod starts when the previous one is known to be gone.")
	im.dropUnless(spec.get("managedBy"), "kubernetes.io/job-controller", "eltrain manages the jobs of its files itself.")
	return true
}
