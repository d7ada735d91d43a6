package importer

import (
	"slices"
	"strconv"
)

// trainJob reads Kubeflow's TrainJob (pkg/apis/trainer/v1alpha1 in kubeflow/trainer). Much of such a job is defined by the
// runtime that it refers to, which is not in the file.
func (im *importer) trainJob(doc *value, j *imported) bool {
	spec := doc.get("spec").open()
	runtime := scalarOf(spec.get("runtimeRef").get("name"))
	im.drop(spec.get("runtimeRef"), "The runtime %q is not in this file: its image, command, volumes and policies. Add what the job takes from it.", runtime)
	trainer := spec.get("trainer").open()
	nodes, some := im.replicas(trainer, "numNodes", 1)
	if !some {
		im.fail(doc.at, "Nothing to run", "This %s has no nodes.", j.from)
		return false
	}
	r := im.newRole(j, "worker", nil)
	r.container = "node"
	known := map[string]string{"PET_NNODES": strconv.Itoa(nodes)}

	im.image(r, trainer.get("image"))
	known = im.environment(r, trainer, known)
	im.requirements(r, trainer.get("resourcesPerNode"))
	at := trainer
	if at == nil {
		at = doc
	}
	im.commandOf(r, trainer.get("command"), trainer.get("args"), at, known)
	im.launcherEnvironment(r, trainer.get("env"))
	im.operatorVariables(r, trainer)
	im.operatorOption(r, "nproc-per-node", trainer.get("numProcPerNode"))
	if r.Image == "" {
		im.warn(at, "No image", "The image comes from the runtime. Write it as the role's image.")
	}
	im.trainerOverlay(r, trainer)
	for _, name := range []string{"podTemplateOverrides", "podSpecOverrides"} {
		list := spec.get(name).open()
		for _, override := range list.list() {
			im.podOverride(r, override)
		}
	}
	im.applyLaunch(j, r, size{replicas: nodes})

	im.suspended(spec.get("suspend"))
	im.dropUnless(spec.get("managedBy"), "trainer.kubeflow.org/trainjob-controller", "eltrain manages the jobs of its files itself.")
	im.drop(spec.get("initializer"), "eltrain does not load datasets or models before the start. Let the program do it, or an init container in pod.spec.initContainers.")
	for _, name := range []string{"labels", "annotations"} {
		im.podMetadata(r, spec.get(name))
	}
	return true
}

// trainerOverlay moves to the overlay what only Kubernetes can resolve: the remaining variables and resources.
func (im *importer) trainerOverlay(r *role, trainer *value) {
	main := map[string]any{}
	if env, ok := im.rest(trainer.get("env")); ok {
		main["env"] = env
		im.recordOrigin(main, "env", trainer.get("env"))
	}
	if resources, ok := im.rest(trainer.get("resourcesPerNode")); ok {
		main["resources"] = resources
		im.recordOrigin(main, "resources", trainer.get("resourcesPerNode"))
	}
	if len(main) == 0 {
		return
	}
	main["name"] = mainContainer
	im.recordOrigin(main, "", trainer)
	overlaySpec(r)["containers"] = []any{main}
}

// overlaySpec returns the spec of a role's overlay, creating it if there is none.
func overlaySpec(r *role) map[string]any {
	if r.Pod == nil {
		r.Pod = map[string]any{}
	}
	spec, ok := r.Pod["spec"].(map[string]any)
	if !ok {
		spec = map[string]any{}
		r.Pod["spec"] = spec
	}
	return spec
}

// podMetadata adds labels or annotations to a role's pods.
func (im *importer) podMetadata(r *role, v *value) {
	rest, ok := im.rest(v)
	fields, isMap := rest.(map[string]any)
	if !ok || !isMap {
		return
	}
	if r.Pod == nil {
		r.Pod = map[string]any{}
	}
	meta, isMap := r.Pod["metadata"].(map[string]any)
	if !isMap {
		meta = map[string]any{}
		r.Pod["metadata"] = meta
	}
	if old, isMap := meta[v.name].(map[string]any); isMap {
		for name := range old {
			im.moveField(fields, name, old)
		}
	}
	meta[v.name] = fields
	im.recordOrigin(meta, v.name, v)
}

// podOverride merges an override into the overlay if it applies to the trainer's pods, the runtime's job "node".
func (im *importer) podOverride(r *role, override *value) {
	targets := override.get("targetJobs")
	ours := false
	for _, t := range targets.list() {
		if name, _ := t.get("name").scalar(); name == "node" {
			ours = true
			t.open().get("name").use()
		}
	}
	if !ours {
		im.drop(override, "It applies to pods of the runtime that do not train.")
		return
	}
	override.open()
	targets.open()
	spec := override.get("spec")
	if spec == nil {
		spec = override // podSpecOverrides have the fields directly
	} else {
		for _, name := range []string{"labels", "annotations"} {
			im.podMetadata(r, override.get("metadata").open().get(name))
		}
	}
	im.podFields(r, spec.open())
	overlay := overlaySpec(r)
	for _, f := range spec.entries() {
		if f == targets || f.name == "metadata" && spec == override {
			continue
		}
		if f.name == "containers" {
			im.containerOverrides(overlay, f)
			continue
		}
		if _, taken := overlay[f.name]; taken {
			im.drop(f, "An earlier override sets another value.")
			continue
		}
		if rest, ok := im.rest(f); ok {
			overlay[f.name] = rest
			im.recordOrigin(overlay, f.name, f)
		}
	}
	if len(overlay) == 0 {
		delete(r.Pod, "spec")
	}
}

// containerOverrides adds overrides of containers; the trainer's container is renamed to main.
func (im *importer) containerOverrides(overlay map[string]any, v *value) {
	list, _ := overlay["containers"].([]any)
	for _, c := range v.open().list() {
		rest, _ := im.rest(c)
		fields, ok := rest.(map[string]any)
		if !ok {
			continue
		}
		name, _ := fields["name"].(string)
		if name == "node" {
			fields["name"] = mainContainer
		}
		at := slices.IndexFunc(list, func(other any) bool {
			o, _ := other.(map[string]any)
			return o["name"] == fields["name"]
		})
		if at < 0 {
			list = append(list, fields)
			continue
		}
		into := list[at].(map[string]any)
		for key, field := range fields {
			old, isList := into[key].([]any)
			more, alsoList := field.([]any)
			switch {
			case into[key] == nil:
				im.moveField(into, key, fields)
			case isList && alsoList:
				into[key] = append(old, more...)
			case key != "name":
				im.warn(c, "Not imported", "%s is set twice for the trainer's container; the first one is used.", key)
			}
		}
	}
	if len(list) > 0 {
		overlay["containers"] = list
	}
}
