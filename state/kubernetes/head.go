package kubernetes

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/state"
)

// The head Secret holds two states, the newest and its backup. Of each there are
//
//	an annotation  description, as JSON
//	a data key     its JSON, compressed with gzip, or the beginning of that
//
// If it is too large for the head, the rest is in parts: Secrets with unique names, which the description lists.
// Parts are immutable. They exist before a head names them and are removed after the last head that does, so
// after a crash at any step the head names a whole state.

const (
	// currentState and backupState are data keys of the head.
	currentState = "state"
	backupState  = "backup"
	partContent  = "part" // data key of a part

	annotationState  = "eltrain.dev/state"
	annotationBackup = "eltrain.dev/backup"
	// annotationFence is the fence, EPOCH/ID of the newest holder of the lock.
	annotationFence = "eltrain.dev/fence"
	// annotationUse lets a person restore the backup: with the value "backup", the backup is read, and the next write
	// succeeds it.
	annotationUse = "eltrain.dev/use"

	labelState = "eltrain.dev/state" // the state's name, on the head and on parts
	labelKind  = "eltrain.dev/kind"
	kindHead   = "head"
	kindPart   = "part"
	kindLock   = "lock"
	kindKey    = "key"

	manager = "eltrain-state" // field manager
)

var annotationOf = map[string]string{currentState: annotationState, backupState: annotationBackup}

// description describes one of a head's states. The zero value describes none.
type description struct {
	Version  int      `json:"version"`
	Lineage  string   `json:"lineage"`
	Serial   uint64   `json:"serial"`
	Epoch    uint64   `json:"epoch"`
	ID       string   `json:"id"`       // of the write that created it
	Checksum string   `json:"checksum"` // of all bytes, inline and in parts
	Size     int      `json:"size"`     // number of bytes
	Parts    []string `json:"parts,omitempty"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(content []byte) string {
	return fmt.Sprintf("crc32c:%08x", crc32.Checksum(content, castagnoli))
}

// encode compresses a state and describes it, without parts.
func encode(s state.State) (description, []byte, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return description{}, nil, fmt.Errorf("encode: %w", err)
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write(text); err != nil {
		return description{}, nil, fmt.Errorf("encode: %w", err)
	}
	if err := w.Close(); err != nil {
		return description{}, nil, fmt.Errorf("encode: %w", err)
	}
	content := z.Bytes()
	return description{
		Version: s.Version, Lineage: s.Lineage, Serial: s.Serial, Epoch: s.Epoch,
		ID: uuid.NewString(), Checksum: checksum(content), Size: len(content),
	}, content, nil
}

// contentError says what is wrong with stored content.
type contentError struct {
	problem string
	err     error
}

func (e *contentError) Error() string { return e.problem }
func (e *contentError) Unwrap() error { return e.err }

func damaged(format string, args ...any) error {
	return &contentError{problem: fmt.Sprintf(format, args...)}
}

// decode is the inverse of encode. Every error is a *contentError.
func decode(d description, content []byte) (state.State, error) {
	if len(content) != d.Size || checksum(content) != d.Checksum {
		return state.State{}, damaged("it was changed after eltrain wrote it: %d bytes with the checksum %s were written, %d with %s are there",
			d.Size, d.Checksum, len(content), checksum(content))
	}
	r, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return state.State{}, damaged("it cannot be decompressed: %v", err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return state.State{}, damaged("it cannot be decompressed: %v", err)
	}
	var s state.State
	if err := json.Unmarshal(text, &s); err != nil {
		return state.State{}, damaged("it does not contain an eltrain state: %v", err)
	}
	if s.Version != d.Version || s.Serial != d.Serial || s.Lineage != d.Lineage || s.Epoch != d.Epoch {
		return state.State{}, damaged("its content has serial %d and lineage %s, but its description has serial %d and lineage %s", s.Serial, s.Lineage, d.Serial, d.Lineage)
	}
	for name, r := range s.Jobs {
		if r == nil {
			return state.State{}, damaged("it does not contain an eltrain state: the record of job %q is null", name)
		}
	}
	return s, nil
}

// chosen is which state of a head to read: the newest, or the backup if a person chose it.
func chosen(head *corev1.Secret) string {
	if head != nil && head.Annotations[annotationUse] == backupState {
		return backupState
	}
	return currentState
}

// stored is described for the chosen state. If there is none it checks that there never was one.
func stored(head *corev1.Secret) (description, []byte, error) {
	d, inline, err := described(head, chosen(head))
	if err != nil || d.Serial > 0 || head == nil {
		return d, inline, err
	}
	if use, found := head.Annotations[annotationUse]; found {
		return d, nil, damaged("its annotation %s is %q, but there is no such state", annotationUse, use)
	}
	if backup, _, err := described(head, backupState); err != nil || backup.Serial > 0 {
		return d, nil, damaged("its newest state was removed, but its backup was not")
	}
	if head.Annotations[annotationFence] == "" {
		return d, nil, damaged("it is a Secret that eltrain did not write: the annotation %s is missing", annotationFence)
	}
	return d, nil, nil
}

// described returns a head's description of one of its states, and the state's bytes in the head itself. The zero
// description means that there is none. Every error is a *contentError.
func described(head *corev1.Secret, which string) (description, []byte, error) {
	var d description
	if head == nil {
		return d, nil, nil
	}
	text, found := head.Annotations[annotationOf[which]]
	inline := head.Data[which]
	switch {
	case !found && len(inline) == 0:
		return d, nil, nil
	case !found:
		return d, nil, damaged("its annotation %s was removed", annotationOf[which])
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return d, nil, damaged("its annotation %s is invalid: %v", annotationOf[which], err)
	}
	if d.Version > state.Version {
		err := &state.VersionError{Version: d.Version}
		return d, nil, &contentError{problem: err.Error(), err: err}
	}
	if d.Version < 1 || d.Serial == 0 || d.Lineage == "" {
		return d, nil, damaged("its annotation %s is invalid: version, serial or lineage is missing", annotationOf[which])
	}
	return d, inline, nil
}

// load reads the chosen state of a head; the zero State if it has none.
func (s *Store) load(ctx context.Context, head *corev1.Secret) (state.State, error) {
	d, inline, err := stored(head)
	if err != nil || d.Serial == 0 {
		return state.State{}, err
	}
	return s.content(ctx, d, inline)
}

// content reads a state with a description.
func (s *Store) content(ctx context.Context, d description, inline []byte) (state.State, error) {
	content := slices.Clone(inline)
	for _, name := range d.Parts {
		part, err := s.getSecret(ctx, name)
		if apierrors.IsNotFound(err) {
			return state.State{}, damaged("its part, the Secret %s, is missing", name)
		}
		if err != nil {
			return state.State{}, err
		}
		content = append(content, part.Data[partContent]...)
	}
	return decode(d, content)
}

// DamagedError is returned for a state that exists but cannot be read. It is never mistaken for an empty one, and never
// overwritten.
type DamagedError struct {
	Namespace, Secret string
	BackupSerial      uint64 // 0 if there is no backup that can be read

	cause     error
	backupErr error
}

func (e *DamagedError) Error() string {
	switch {
	case e.BackupSerial > 0:
		return fmt.Sprintf("%v.\nIts backup is intact (serial %d)", e.cause, e.BackupSerial)
	case e.backupErr != nil:
		return fmt.Sprintf("%v.\nIts backup cannot be used either: %v", e.cause, e.backupErr)
	}
	return fmt.Sprintf("%v.\nThere is no backup", e.cause)
}

// UseBackup is the annotation of the Secret that puts its backup in place of the state.
func (e *DamagedError) UseBackup() (key, value string) { return annotationUse, backupState }

func (e *DamagedError) Unwrap() error { return e.cause }

// explain makes a failed load an error that says what to do, if the content is damaged.
func (s *Store) explain(ctx context.Context, head *corev1.Secret, err error) error {
	if !errors.As(err, new(*contentError)) || errors.As(err, new(*state.VersionError)) {
		return err
	}
	e := &DamagedError{Namespace: s.namespace, Secret: s.object(), cause: err}
	if chosen(head) == backupState {
		e.backupErr = errors.New("it is the one in use")
		return e
	}
	d, inline, err := described(head, backupState)
	if err == nil && d.Serial > 0 {
		_, err = s.content(ctx, d, inline)
	}
	if e.backupErr = err; err == nil {
		e.BackupSerial = d.Serial
	}
	return e
}

func (s *Store) emptyHead() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: s.object(), Namespace: s.namespace, Labels: s.labels(kindHead), Annotations: map[string]string{}},
		Type:       corev1.SecretTypeOpaque,
	}
}

func (s *Store) labels(kind string) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":       "eltrain",
		"app.kubernetes.io/managed-by": "eltrain",
		labelState:                     s.name,
		labelKind:                      kind,
	}
}

// fence identifies the newest holder of the lock, the only one that may write. One epoch has one holder, even if the
// Lease was removed between two claims and both computed the same epoch.
type fence struct {
	epoch  uint64
	holder string // state.LockInfo's ID; "" if the lock was broken, or the head was edited by hand
}

func fenceOf(info state.LockInfo) fence { return fence{epoch: info.Epoch, holder: info.ID} }

// fences reports whether the holder of other has lost the lock.
func (f fence) fences(other fence) bool {
	return f.epoch > other.epoch || f.epoch == other.epoch && f.holder != "" && f.holder != other.holder
}

func (f fence) String() string { return fmt.Sprintf("%d/%s", f.epoch, f.holder) }

// fenced is the fence of a head; the zero value if there is none.
func fenced(head *corev1.Secret) fence {
	if head == nil {
		return fence{}
	}
	number, holder, _ := strings.Cut(head.Annotations[annotationFence], "/")
	epoch, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return fence{} // edited by hand; the stored state's own epoch fences too
	}
	return fence{epoch: epoch, holder: holder}
}

func setFence(head *corev1.Secret, f fence) {
	if head.Annotations == nil {
		head.Annotations = map[string]string{}
	}
	head.Annotations[annotationFence] = f.String()
}

// headOf is the successor of the head old: with a new state, and the former one as backup.
func (s *Store) headOf(old *corev1.Secret, f fence, now description, inline []byte) (*corev1.Secret, error) {
	head := s.emptyHead()
	var was description
	var wasInline []byte
	if old != nil {
		head = old.DeepCopy()
		var err error
		if was, wasInline, err = stored(old); err != nil {
			return nil, err
		}
	}
	setFence(head, f)
	delete(head.Annotations, annotationUse)
	delete(head.Annotations, annotationBackup)
	head.Data = map[string][]byte{currentState: inline}
	if err := describe(head, annotationState, now); err != nil {
		return nil, err
	}
	if was.Serial == 0 {
		return head, nil
	}
	head.Data[backupState] = wasInline
	return head, describe(head, annotationBackup, was)
}

func describe(head *corev1.Secret, annotation string, d description) error {
	text, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("describe the state: %w", err)
	}
	head.Annotations[annotation] = string(text)
	return nil
}

// putParts stores content in parts and returns their names. The names contain the write's unique ID, so an existing
// part is this one, and the answer to its creation was lost.
func (s *Store) putParts(ctx context.Context, id string, content []byte) (names []string, err error) {
	for chunk := range slices.Chunk(content, s.part) {
		part := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name:      fmt.Sprintf("%s-%s-%d", s.object(), id, len(names)),
				Namespace: s.namespace,
				Labels:    s.labels(kindPart),
			},
			Type:      corev1.SecretTypeOpaque,
			Immutable: new(true),
			Data:      map[string][]byte{partContent: chunk},
		}
		err := s.call(ctx, "create", "secrets", part.Name, func(ctx context.Context) error {
			_, err := s.typed.CoreV1().Secrets(s.namespace).Create(ctx, part, metav1.CreateOptions{FieldManager: manager})
			return err
		})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
		names = append(names, part.Name)
	}
	return names, nil
}

// tidy removes the parts that no head names anymore, after a write that followed old. Failed removals are left to the
// next write; only a missing permission is an error, since it would fail every time.
func (s *Store) tidy(ctx context.Context, l *lock, old *corev1.Secret) error {
	var gone []string
	if l.unswept || old == nil {
		found, err := s.unreferenced(ctx, fenceOf(l.Info()))
		if err != nil {
			l.unswept = true
			return onlyForbidden(err)
		}
		gone, l.unswept = found, false
	} else {
		gone = superseded(old)
	}
	for _, name := range gone {
		err := s.call(ctx, "delete", "secrets", name, func(ctx context.Context) error {
			return s.typed.CoreV1().Secrets(s.namespace).Delete(ctx, name, metav1.DeleteOptions{})
		})
		if err != nil && !apierrors.IsNotFound(err) {
			l.unswept = true
			return onlyForbidden(err)
		}
	}
	return nil
}

// superseded are the parts of a head's state that its successor does not keep. No later head names them.
func superseded(old *corev1.Secret) []string {
	which := backupState
	if chosen(old) == backupState {
		which = currentState
	}
	d, _, err := described(old, which)
	if err != nil {
		return nil // the next holder's first write finds them by their labels
	}
	return d.Parts
}

// unreferenced lists the parts of this state that no head names, now or ever: leftovers of interrupted writes under this
// epoch or an older one. It returns ErrFenced if the head has another holder.
//
// The list comes before the head. A newer holder raises the fence before it creates parts: if the head read afterwards
// still has this holder, no listed part is a newer holder's. An older holder's parts can no longer get into a head, and this
// holder's own are of completed writes, since it has one at a time. Names are never reused (see putParts), so even a removal
// that arrives late, under another holder, is harmless.
func (s *Store) unreferenced(ctx context.Context, f fence) (names []string, err error) {
	var found *metav1.PartialObjectMetadataList
	selector := fmt.Sprintf("%s=%s,%s=%s", labelState, s.name, labelKind, kindPart)
	err = s.call(ctx, "list", "secrets", "", func(ctx context.Context) error {
		found, err = s.metadata.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		return err
	})
	if err != nil {
		return nil, err
	}
	head, err := s.getHead(ctx) // not the known one, which a Read may have replaced by an older one
	if err != nil {
		return nil, err
	}
	if fenced(head) != f {
		return nil, state.ErrFenced
	}
	named := map[string]bool{}
	for which := range annotationOf {
		d, _, err := described(head, which)
		if err != nil {
			return nil, err
		}
		for _, name := range d.Parts {
			named[name] = true
		}
	}
	for i := range found.Items {
		if name := found.Items[i].Name; !named[name] {
			names = append(names, name)
		}
	}
	return names, nil
}
