package kubernetes

import (
	"strconv"

	"github.com/eltrain/eltrain/job"
)

// Name is what a job's provider argument and Node.Provider say.
const Name = "kubernetes"

// Labels by which a pod is known. They are the truth about what runs: a master that has lost its state finds
// everything again by them.
const (
	labelJob         = "eltrain.dev/job"
	labelUID         = "eltrain.dev/uid"
	labelRole        = "eltrain.dev/role"
	labelIndex       = "eltrain.dev/index"
	labelIncarnation = "eltrain.dev/incarnation"
)

// annotationLaunch holds the launched record of a pod, as JSON: what labels have no room for.
const annotationLaunch = "eltrain.dev/launch"

// launched is what of a Launch an Incarnation shows again.
type launched struct {
	Fingerprint string        `json:"fingerprint"`
	Reserved    job.Resources `json:"reserved"`
}

// key is one incarnation.
type key struct {
	uid    string
	role   string
	index  int
	number int
}

// keyOf reads an incarnation's key and slot from a pod's labels. False: it is no pod of ours.
func keyOf(labels map[string]string) (key, job.Address, bool) {
	index, err := strconv.Atoi(labels[labelIndex])
	number, err2 := strconv.Atoi(labels[labelIncarnation])
	k := key{labels[labelUID], labels[labelRole], index, number}
	if err != nil || err2 != nil || k.uid == "" || k.role == "" || labels[labelJob] == "" {
		return key{}, job.Address{}, false
	}
	return k, job.Address{Job: labels[labelJob], Role: k.role, Index: index}, true
}
