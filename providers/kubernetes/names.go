package kubernetes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/eltrain/eltrain/job"
)

// Name is the value of a job's provider argument and of Node.Provider.
const Name = "kubernetes"

// FieldManager is the field manager of what eltrain writes, in server-side apply and `kubectl get --show-managed-fields`.
const FieldManager = "eltrain"

// Labels that identify a pod. They are the truth about what runs: a master that lost its state finds everything again
// by them.
const (
	labelJob         = "eltrain.dev/job"
	labelUID         = "eltrain.dev/uid"
	labelRole        = "eltrain.dev/role"
	labelIndex       = "eltrain.dev/index"
	labelIncarnation = "eltrain.dev/incarnation"
)

// labelAsleep is on no pod: a selector with it selects none.
const labelAsleep = "eltrain.dev/asleep"

// labelGroup is the name of the anchor, which owns all of a job's objects.
const labelGroup = "app.kubernetes.io/instance"

// annotationLaunch holds the launched record of a pod, as JSON: labels have no room for it.
const annotationLaunch = "eltrain.dev/launch"

// annotationSlot repeats which incarnation a pod is, in case its labels are edited:
// UID/JOB/ROLE/INDEX/INCARNATION. It is not part of the launched record, which the pods of a role share.
const annotationSlot = "eltrain.dev/slot"

// Annotations that keep node autoscalers from consolidating a node under a world. An overlay may change them.
const (
	annotationSafeToEvict  = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	annotationDoNotDisrupt = "karpenter.sh/do-not-disrupt"
)

// annotationState is the state under which anchors and pods were created, as its master names it; labelState is a hash of
// it, to select by: `kubectl get pods -L eltrain.dev/state`. An annotation takes any text, a label does not.
const (
	annotationState = "eltrain.dev/state"
	// annotationMoved is when the service's address or certificate last changed, in UTC (RFC 3339).
	annotationMoved = "eltrain.dev/service-moved"
	labelState      = "eltrain.dev/state"
)

// stateMarks are the label and the annotation of objects created under a state; nil without one.
func stateMarks(owner string) (labels, annotations map[string]string) {
	if owner == "" {
		return nil, nil
	}
	return map[string]string{labelState: hash(owner)[:stateHash]}, map[string]string{annotationState: owner}
}

// gangGate is the scheduling gate of every pod until its job's gang is whole.
const gangGate = "eltrain.dev/gang"

// ourDomain prefixes the labels and annotations that nobody else may set.
const ourDomain = "eltrain.dev/"

// mainContainer runs the agent, which runs the training processes.
const mainContainer = "main"

// launched is the part of a Launch that an Incarnation reports, and the fields of the pod that can be edited afterwards: the
// API server makes all others immutable.
type launched struct {
	Fingerprint string        `json:"fingerprint"`
	Reserved    job.Resources `json:"reserved"`
	Extra       job.Resources `json:"extra,omitzero"`       // what the pod requests beyond that
	Image       string        `json:"image"`                // of the main container
	InitImage   string        `json:"init_image,omitempty"` // of the container that copies the agent; "" without one
	Source      string        `json:"source,omitempty"`     // short digest of its source files
	// SafeToEvict and DoNotDisrupt are the values of the annotations of these names.
	SafeToEvict  string `json:"safe_to_evict,omitempty"`
	DoNotDisrupt string `json:"do_not_disrupt,omitempty"`
}

// text is the record as the annotation holds it.
func (l launched) text() string {
	text, err := json.Marshal(l)
	if err != nil {
		panic(fmt.Sprintf("kubernetes: a record does not encode: %v", err)) // numbers and strings: cannot be
	}
	return string(text)
}

// key is one incarnation.
type key struct {
	uid    string
	role   string
	index  int
	number int
}

// identify reports which incarnation a pod is, by its labels or, if those were edited, by its annotation. Its name, which is
// immutable, has to agree. It returns false if the pod is not ours.
func identify(o *corev1.Pod) (key, job.Address, bool) {
	if k, slot, ours := keyOf(o.Labels); ours && o.Name == podName(k.uid, slot, k.number) {
		return k, slot, true
	}
	if k, slot, ours := keyIn(o.Annotations[annotationSlot]); ours && o.Name == podName(k.uid, slot, k.number) {
		return k, slot, true
	}
	return key{}, job.Address{}, false
}

// slotText is the annotation of an incarnation; keyIn reads it back.
func slotText(k key, slot job.Address) string {
	return strings.Join([]string{k.uid, slot.Job, slot.Role, strconv.Itoa(k.index), strconv.Itoa(k.number)}, "/")
}

func keyIn(annotation string) (key, job.Address, bool) {
	parts := strings.Split(annotation, "/")
	if len(parts) != 5 {
		return key{}, job.Address{}, false
	}
	return keyOf(map[string]string{labelUID: parts[0], labelJob: parts[1], labelRole: parts[2], labelIndex: parts[3], labelIncarnation: parts[4]})
}

// keyOf reads an incarnation's key and slot from a pod's labels. It returns false if the pod is not ours.
func keyOf(labels map[string]string) (key, job.Address, bool) {
	index, err := strconv.Atoi(labels[labelIndex])
	number, err2 := strconv.Atoi(labels[labelIncarnation])
	k := key{labels[labelUID], labels[labelRole], index, number}
	if err != nil || err2 != nil || k.uid == "" || k.role == "" || labels[labelJob] == "" {
		return key{}, job.Address{}, false
	}
	return k, job.Address{Job: labels[labelJob], Role: k.role, Index: index}, true
}

// podLabels are the labels of every pod: ours, which identify it; the recommended ones, which tools group by;
// and those of the Kubeflow training operator, which dashboards and schedulers expect of a training job.
func podLabels(uid string, slot job.Address, incarnation int) map[string]string {
	labels := jobLabels(uid, slot.Job)
	index := strconv.Itoa(slot.Index)
	labels["app.kubernetes.io/component"] = slot.Role
	labels[labelRole] = slot.Role
	labels[labelIndex] = index
	labels[labelIncarnation] = strconv.Itoa(incarnation)
	labels["training.kubeflow.org/job-name"] = slot.Job
	labels["training.kubeflow.org/replica-type"] = strings.ToLower(slot.Role)
	labels["training.kubeflow.org/replica-index"] = index
	return labels
}

// jobLabels are the labels of everything that belongs to a job.
func jobLabels(uid, name string) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":       "training-job",
		labelGroup:                     groupName(uid, name),
		"app.kubernetes.io/part-of":    name,
		"app.kubernetes.io/managed-by": "eltrain",
		labelJob:                       name,
		labelUID:                       uid,
	}
}

// selectJob selects everything of a job.
func selectJob(uid string) string { return labelUID + "=" + uid }

// Lengths of names. A pod's name may be longer, but tools copy it into labels.
const (
	longestName = validation.DNS1123LabelMaxLength // 63
	uidPart     = 5                                // enough to distinguish jobs of one name, short enough to read
	hashPart    = 6
	stateHash   = 8 // of a state, in a label that people read and nothing parses
)

// groupName names a job's anchor and other objects: <job>-<first 5 of uid>. It begins with a letter, as the name of a
// Service must.
func groupName(uid, name string) string {
	id := uid
	if len(id) > uidPart {
		id = id[:uidPart]
	}
	if !plain(id) {
		id = hash(uid)[:uidPart]
	}
	base := dnsName(name, longestName-1-uidPart)
	if base[0] >= '0' && base[0] <= '9' {
		base = dnsName("j"+name, longestName-1-uidPart)
	}
	return base + "-" + id
}

// budgetName names the PodDisruptionBudget of a role.
func budgetName(uid, name, role string) string {
	return dnsName(groupName(uid, name)+"-"+role, longestName)
}

// podName is deterministic, so that a retried create makes no second pod, and includes the incarnation, so that
// no pod waits for a zombie's name. The index is the last part: Volcano orders by it.
func podName(uid string, slot job.Address, incarnation int) string {
	index := "-" + strconv.Itoa(slot.Index)
	full := fmt.Sprintf("%s-e%d-%s", groupName(uid, slot.Job), incarnation, slot.Role)
	return dnsName(full, longestName-len(index)) + index
}

// hostName is a pod's host name, under which it has a DNS name in the job's Service: <role>-<index>.
func hostName(slot job.Address) string {
	index := "-" + strconv.Itoa(slot.Index)
	return dnsName(slot.Role, longestName-len(index)) + index
}

// dnsName makes a name of at most the given length from lowercase letters, digits and "-". A name that had to be changed
// ends in a hash of the original, so that two names stay distinct.
func dnsName(name string, longest int) string {
	if len(name) <= longest && plain(strings.ReplaceAll(name, "-", "")) && !strings.HasPrefix(name, "-") && !strings.HasSuffix(name, "-") {
		return name
	}
	changed := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, name)
	room := longest - 1 - hashPart
	changed = strings.Trim(changed[:min(len(changed), room)], "-")
	if changed == "" {
		changed = "x"
	}
	return changed + "-" + hash(name)[:hashPart]
}

// plain reports whether s is not empty and has only lowercase letters and digits.
func plain(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// checkNames rejects what cannot be a label: names may end in "-" or "_", labels may not.
func checkNames(slot job.Address) error {
	if slot.Index < 0 {
		return fmt.Errorf("%d is not the index of a slot", slot.Index)
	}
	return errors.Join(checkJobName(slot.Job), checkName("role", slot.Role))
}

func checkJobName(name string) error { return checkName("job", name) }

func checkName(what, name string) error {
	if !job.ValidName(name) {
		return fmt.Errorf("%q cannot name a %s", name, what)
	}
	if why := validation.IsValidLabelValue(name); len(why) > 0 {
		return fmt.Errorf("the %s's name %q cannot be a Kubernetes label: end it with a letter or digit", what, name)
	}
	return nil
}

// checkUID rejects what cannot be a label.
func checkUID(uid string) error {
	if uid == "" || len(validation.IsValidLabelValue(uid)) > 0 {
		return fmt.Errorf("%q is not the UID of a job", uid)
	}
	return nil
}

// checkLaunch rejects what no pod can be made of.
func checkLaunch(l job.Launch) error {
	if err := errors.Join(checkUID(l.UID), checkNames(l.Slot)); err != nil {
		return err
	}
	switch {
	case l.Incarnation < 1:
		return fmt.Errorf("%d is not an incarnation: they are counted from 1", l.Incarnation)
	case len(l.Program.Command) == 0:
		return errors.New("the command is missing")
	}
	return nil
}
