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

// Name is what a job's provider argument and Node.Provider say.
const Name = "kubernetes"

// FieldManager owns what eltrain writes, as server-side apply and `kubectl get --show-managed-fields` name it.
const FieldManager = "eltrain"

// Labels by which a pod is known. They are the truth about what runs: a master that has lost its state finds
// everything again by them.
const (
	labelJob         = "eltrain.dev/job"
	labelUID         = "eltrain.dev/uid"
	labelRole        = "eltrain.dev/role"
	labelIndex       = "eltrain.dev/index"
	labelIncarnation = "eltrain.dev/incarnation"
)

// labelAsleep is on no pod: what selects it selects none.
const labelAsleep = "eltrain.dev/asleep"

// labelGroup has the name of what owns all that a job has: its anchor.
const labelGroup = "app.kubernetes.io/instance"

// annotationLaunch holds the launched record of a pod, as JSON: what labels have no room for.
const annotationLaunch = "eltrain.dev/launch"

// annotationSlot says once more which incarnation a pod is, should somebody edit its labels:
// UID/JOB/ROLE/INDEX/INCARNATION. It is not part of the launched record, which the pods of a role share.
const annotationSlot = "eltrain.dev/slot"

// What keeps those who save on nodes from taking one away from under a world. An overlay may say otherwise.
const (
	annotationSafeToEvict  = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	annotationDoNotDisrupt = "karpenter.sh/do-not-disrupt"
)

// annotationState is the state under which anchors and pods were made, as its master calls it; labelState is a hash of
// that, to select by: `kubectl get pods -L eltrain.dev/state`. An annotation takes any text, a label does not.
const (
	annotationState = "eltrain.dev/state"
	// annotationMoved is when the service was reached otherwise last, in UTC (RFC 3339).
	annotationMoved = "eltrain.dev/service-moved"
	labelState      = "eltrain.dev/state"
)

// stateMarks are the label and the annotation of what is made under a state; nil without one.
func stateMarks(owner string) (labels, annotations map[string]string) {
	if owner == "" {
		return nil, nil
	}
	return map[string]string{labelState: hash(owner)[:stateHash]}, map[string]string{annotationState: owner}
}

// gangGate is the scheduling gate under which every pod is created, until its job's gang is whole.
const gangGate = "eltrain.dev/gang"

// ourDomain begins the labels and annotations that nobody else may set.
const ourDomain = "eltrain.dev/"

// mainContainer runs the agent, which runs the training processes.
const mainContainer = "main"

// launched is what of a Launch an Incarnation shows again, and what of the pod can be edited afterwards: the
// API server lets nobody change anything else.
type launched struct {
	Fingerprint string        `json:"fingerprint"`
	Reserved    job.Resources `json:"reserved"`
	Extra       job.Resources `json:"extra,omitzero"`       // what the pod requests beside that
	Image       string        `json:"image"`                // of the main container
	InitImage   string        `json:"init_image,omitempty"` // of the container that brings the agent; "" without one
	// SafeToEvict and DoNotDisrupt are the values of those annotations.
	SafeToEvict  string `json:"safe_to_evict,omitempty"`
	DoNotDisrupt string `json:"do_not_disrupt,omitempty"`
}

// text is the record as the annotation has it.
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

// identify reports which incarnation a pod is, by its labels or, where somebody has edited those, by its annotation. Its
// name, which nobody can edit, has to agree. False: it is no pod of ours.
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

// podLabels are those of every pod: ours, by which it is known; the recommended ones, which tools group by;
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

// jobLabels are those of everything that belongs to a job.
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

// selectJob finds everything of a job.
func selectJob(uid string) string { return labelUID + "=" + uid }

// Lengths of names. A pod's may be longer, but tools put it into labels.
const (
	longestName = validation.DNS1123LabelMaxLength // 63
	uidPart     = 5                                // enough to tell two jobs of one name apart, short enough to read
	hashPart    = 6
	stateHash   = 8 // of a state, in a label that is looked at and never parsed
)

// groupName names what a job has beside its pods, and its headless Service, so it begins with a letter:
// <job>-<first 5 of uid>.
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

// podName is deterministic, so that a create that is retried makes no second pod, and has the incarnation
// in it, so that the name of a zombie is never waited for. The index is the last part: Volcano orders by it.
func podName(uid string, slot job.Address, incarnation int) string {
	index := "-" + strconv.Itoa(slot.Index)
	full := fmt.Sprintf("%s-e%d-%s", groupName(uid, slot.Job), incarnation, slot.Role)
	return dnsName(full, longestName-len(index)) + index
}

// hostName is what a pod calls itself and is found by below the job's Service: <role>-<index>.
func hostName(slot job.Address) string {
	index := "-" + strconv.Itoa(slot.Index)
	return dnsName(slot.Role, longestName-len(index)) + index
}

// dnsName makes a name of at most the given length of small letters, digits and "-". One that had to be
// changed ends in a hash of what it was, so that two names stay two.
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

// plain reports whether s has nothing but small letters and digits, and something of them.
func plain(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// checkNames refuses what cannot be a label: names may end in "-" or "_", labels may not.
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

// checkUID refuses what cannot be a label.
func checkUID(uid string) error {
	if uid == "" || len(validation.IsValidLabelValue(uid)) > 0 {
		return fmt.Errorf("%q is not the UID of a job", uid)
	}
	return nil
}

// checkLaunch refuses what no pod can be made of.
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
