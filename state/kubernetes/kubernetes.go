// Package kubernetes keeps a state in a Kubernetes API server, for masters that share a cluster and no disk.
//
// State NAME is, in one namespace, the Lease eltrain-state-NAME (see lock.go), the Secret eltrain-state-NAME,
// which is its head, and for a large state further Secrets, its parts (see head.go). A head holds the newest
// state and the one before it, the backup. It is a Secret because a state holds the environment of the jobs.
// The Secret eltrain-key-NAME holds the place's key (see key.go).
// The package must not know what is in the records.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/eltrain/eltrain/kube"
	"github.com/eltrain/eltrain/state"
)

const (
	// DefaultLease is how long a holder must be silent before another takes its lock: the default of Kubernetes'
	// own components for leader election, long enough for an API server to restart.
	DefaultLease = 15 * time.Second
	// DefaultInline leaves room in the head for two states of this size below Kubernetes' limit of 1 MiB for a
	// Secret. Compressed, some 10,000 slots fit: for most jobs a write is one request.
	DefaultInline = 256 << 10
	// DefaultPart is below 1 MiB, and including its envelope below etcd's limit of 1.5 MiB for a request.
	DefaultPart = 768 << 10
)

// Options configure a Store. Zero values are the defaults, except for the name.
type Options struct {
	Kubeconfig, Context, Namespace string // as in kube.Access
	Name                           string // distinguishes states in one namespace
	// Lease is how long the lock outlives its last renewal, in whole seconds, the resolution of a Lease object. It is
	// renewed three times as often.
	Lease time.Duration
	// Inline is how many bytes of a compressed state are kept in the head Secret itself, Part the maximum in each
	// further one.
	Inline, Part int
}

// Store is one process's handle of a state in a namespace. It is safe for concurrent use.
type Store struct {
	namespace string
	name      string
	lease     time.Duration
	inline    int
	part      int
	typed     *kube.Client
	metadata  metadata.Interface // lists parts without their content
	requests  kube.Group
	reviews   kube.Group // tell who uses the API server
	author    *authorPolicy

	mu sync.Mutex // guards what follows; never held while waiting
	// known is the head as last read or written. It saves reading the head again; if it is stale, the write, which is
	// conditional on its resourceVersion, fails.
	known *corev1.Secret
}

var _ state.Store = (*Store)(nil)

// maxName is the maximum length of a label's value: parts are found by the state's name.
const maxName = 63

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// New returns a handle of the state, without connecting.
func New(o Options) (*Store, error) {
	if o.Lease == 0 {
		o.Lease = DefaultLease
	}
	if o.Inline == 0 {
		o.Inline = DefaultInline
	}
	if o.Part == 0 {
		o.Part = DefaultPart
	}
	if len(o.Name) > maxName || !validName.MatchString(o.Name) {
		return nil, fmt.Errorf("state %q: a name in Kubernetes consists of lower case letters, digits and \"-\", at most %d, and begins and ends with a letter or digit", o.Name, maxName)
	}
	if o.Lease < time.Second || o.Lease%time.Second != 0 {
		return nil, fmt.Errorf("state %q: a lease of %v is invalid: write whole seconds", o.Name, o.Lease)
	}
	if o.Inline < 1 || o.Inline > DefaultInline || o.Part < 1 || o.Part > DefaultPart {
		return nil, fmt.Errorf("state %q: %d bytes in the head and %d in a part: the limits are %d and %d", o.Name, o.Inline, o.Part, DefaultInline, DefaultPart)
	}
	config, namespace, err := kube.Access{Kubeconfig: o.Kubeconfig, Context: o.Context, Namespace: o.Namespace}.Client(0)
	if err != nil {
		return nil, fmt.Errorf("state %q: %w", o.Name, err)
	}
	s := &Store{namespace: namespace, name: o.Name, lease: o.Lease, inline: o.Inline, part: o.Part}
	if err := s.connect(config); err != nil {
		return nil, fmt.Errorf("state %q: %w", o.Name, err)
	}
	return s, nil
}

func (s *Store) connect(config *rest.Config) (err error) {
	if s.metadata, err = metadata.NewForConfig(config); err != nil {
		return err
	}
	if s.requests, err = kube.NewGroup(config, requestVersion, addRequests); err != nil {
		return err
	}
	if s.reviews, err = kube.NewGroup(config, authenticationv1.SchemeGroupVersion, authenticationv1.AddToScheme); err != nil {
		return err
	}
	if s.author, err = newAuthorPolicy(config); err != nil {
		return err
	}
	// Protobuf carries a Secret's bytes unchanged, where JSON needs a third more for base64.
	binary := rest.CopyConfig(config)
	binary.ContentType = runtime.ContentTypeProtobuf
	binary.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	s.typed, err = kube.NewClient(binary)
	return err
}

// object is the name of the head Secret and of the Lease.
func (s *Store) object() string { return "eltrain-state-" + s.name }

func (s *Store) String() string { return s.namespace + "/" + s.object() }

// Read implements state.Store. A damaged state is a *DamagedError.
func (s *Store) Read(ctx context.Context) (state.State, error) {
	st, err := s.read(ctx)
	if err != nil {
		return state.State{}, fmt.Errorf("read state %s: %w", s, err)
	}
	return st, nil
}

func (s *Store) read(ctx context.Context) (state.State, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	head, err := s.getHead(ctx)
	for err == nil {
		st, damage := s.load(ctx, head)
		if damage == nil {
			return st, nil
		}
		// Parts are removed once two newer states are stored, possibly before a slow reader gets them: missing parts
		// are damage only if the head still names them.
		var now *corev1.Secret
		if now, err = s.getHead(ctx); err != nil {
			break
		}
		if sameVersion(head, now) {
			return state.State{}, s.explain(ctx, head, damage)
		}
		head = now
	}
	return state.State{}, err
}

// sameVersion reports whether two readings of an object, nil if it did not exist, are the same.
func sameVersion(a, b *corev1.Secret) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.UID == b.UID && a.ResourceVersion == b.ResourceVersion
}

// getHead reads the head; nil if there is none.
func (s *Store) getHead(ctx context.Context) (*corev1.Secret, error) {
	head, err := s.getSecret(ctx, s.object())
	if apierrors.IsNotFound(err) {
		head, err = nil, nil
	}
	if err == nil {
		s.remember(head)
	}
	return head, err
}

func (s *Store) getSecret(ctx context.Context, name string) (secret *corev1.Secret, err error) {
	err = s.call(ctx, "get", "secrets", name, func(ctx context.Context) error {
		secret, err = s.typed.CoreV1().Secrets(s.namespace).Get(ctx, name, metav1.GetOptions{})
		return err
	})
	return secret, err
}

func (s *Store) remember(head *corev1.Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = head
}

func (s *Store) knownHead() *corev1.Secret {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known
}

// Write implements state.Store. Transient errors of the API server are retried until patience or ctx ends. After an
// error either the old or the new state is stored, whole: if the answer to the last request is lost, only the next
// Read shows which.
//
// A write under a lost lock is impossible: it is an update of the head, conditional on the resourceVersion in
// which this lock's holder was seen to be the newest, and each new holder changes the head, adding its epoch,
// before its Lock returns.
func (s *Store) Write(ctx context.Context, next state.State, l state.Lock) error {
	held, ours := l.(*lock)
	if !ours {
		return fmt.Errorf("write state %s: the lock belongs to another kind of store (%T)", s, l)
	}
	// One write at a time under a lock: the sweep considers parts that no head names to be left over.
	select {
	case held.writing <- struct{}{}:
		defer func() { <-held.writing }()
	case <-ctx.Done():
		return fmt.Errorf("write state %s: %w", s, ctx.Err())
	}
	if err := s.write(ctx, next, held); err != nil {
		return fmt.Errorf("write state %s: %w", s, err)
	}
	return nil
}

func (s *Store) write(ctx context.Context, next state.State, l *lock) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	next, old, err := s.accept(ctx, next, l)
	if err != nil {
		return err
	}
	written, content, err := encode(next)
	if err != nil {
		return err
	}
	inline, further := content[:min(len(content), s.inline)], content[min(len(content), s.inline):]
	unswept := l.unswept
	if len(further) > 0 {
		l.unswept = true // until the new head names them, the new parts count as left over
	}
	if written.Parts, err = s.putParts(ctx, written.ID, further); err != nil {
		return fmt.Errorf("a part of the new state: %w", err)
	}
	for {
		head, err := s.headOf(old, fenceOf(l.Info()), written, inline)
		if err != nil {
			return err
		}
		if head, err = s.putHead(ctx, head); err == nil {
			s.remember(head)
			l.unswept = unswept
			break
		}
		s.remember(nil)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
		now, err := s.getHead(ctx)
		if err != nil {
			return err
		}
		if d, _, err := described(now, currentState); err == nil && d.ID == written.ID {
			l.unswept = true
			break // changed by this very write: its answer was lost and it was sent again
		}
		if _, old, err = s.accept(ctx, next, l); err != nil {
			return err
		}
	}
	if err := s.tidy(ctx, l, old); err != nil {
		return fmt.Errorf("the new state is stored, but the old parts could not be removed: %w", err)
	}
	return nil
}

// accept checks a write against the lock and the stored state. It returns the head that it read, on which the
// write is conditional.
func (s *Store) accept(ctx context.Context, next state.State, l *lock) (state.State, *corev1.Secret, error) {
	if l.over() {
		return next, nil, state.ErrFenced
	}
	if head := s.knownHead(); head != nil {
		if accepted, err := s.judge(head, next, l); err == nil && fenced(head) == fenceOf(l.Info()) {
			return accepted, head, nil
		}
	}
	head, err := s.getHead(ctx)
	if err != nil {
		return next, nil, err
	}
	accepted, err := s.judge(head, next, l)
	if errors.As(err, new(*contentError)) {
		err = s.explain(ctx, head, err)
	}
	if err != nil {
		return next, nil, err
	}
	if fenced(head) != fenceOf(l.Info()) {
		// The head was removed, or replaced by an old one, by hand.
		if err := l.confirm(ctx); err != nil {
			return next, nil, err
		}
	}
	return accepted, head, nil
}

// judge applies state.Accept to a write that would replace a head's state.
func (s *Store) judge(head *corev1.Secret, next state.State, l *lock) (state.State, error) {
	if newest := fenced(head); newest.fences(fenceOf(l.Info())) {
		return next, fmt.Errorf("%w (its newest holder has epoch %d, this lock is of epoch %d)", state.ErrFenced, newest.epoch, l.Info().Epoch)
	}
	now, _, err := stored(head)
	if err != nil {
		return next, err
	}
	return state.Accept(state.State{Lineage: now.Lineage, Serial: now.Serial, Epoch: now.Epoch}, next, l.Info().Epoch)
}

// putHead creates the head if it has no resourceVersion, and updates it otherwise.
func (s *Store) putHead(ctx context.Context, head *corev1.Secret) (put *corev1.Secret, err error) {
	secrets := s.typed.CoreV1().Secrets(s.namespace)
	if head.ResourceVersion == "" {
		err = s.call(ctx, "create", "secrets", head.Name, func(ctx context.Context) error {
			put, err = secrets.Create(ctx, head, metav1.CreateOptions{FieldManager: manager})
			return err
		})
		return put, err
	}
	err = s.call(ctx, "update", "secrets", head.Name, func(ctx context.Context) error {
		put, err = secrets.Update(ctx, head, metav1.UpdateOptions{FieldManager: manager})
		return err
	})
	if apierrors.IsNotFound(err) { // removed meanwhile: for a conditional write this is a conflict
		err = apierrors.NewConflict(corev1.Resource("secrets"), head.Name, err)
	}
	return put, err
}

// raiseFence makes f the fence of the head: writes of older holders fail from then on. It returns state.ErrFenced
// if f itself is fenced.
func (s *Store) raiseFence(ctx context.Context, f fence) error {
	for {
		old, err := s.getHead(ctx)
		if err != nil {
			return err
		}
		switch newest := fenced(old); {
		case newest.fences(f):
			return state.ErrFenced
		case newest == f:
			return nil // by this very call: its answer was lost
		}
		head := s.emptyHead()
		if old != nil {
			head = old.DeepCopy()
		}
		setFence(head, f)
		head, err = s.putHead(ctx, head)
		if err == nil {
			s.remember(head)
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
}
