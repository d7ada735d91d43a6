package kubernetes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/state"
)

// keyContent is the key's data key in its Secret.
const keyContent = "key"

// keyObject is the name of the Secret with the key. It differs from that of every state's head.
func (s *Store) keyObject() string { return "eltrain-key-" + s.name }

// Key implements state.Store.
func (s *Store) Key(ctx context.Context) ([]byte, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	secret, err := s.getSecret(ctx, s.keyObject())
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return s.keyIn(secret, err)
}

// MakeKey implements state.Store.
func (s *Store) MakeKey(ctx context.Context) ([]byte, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	secret, err := s.getSecret(ctx, s.keyObject())
	if apierrors.IsNotFound(err) {
		secret, err = s.makeKey(ctx)
	}
	return s.keyIn(secret, err)
}

// keyIn checks the key in its Secret, which was read with err.
func (s *Store) keyIn(secret *corev1.Secret, err error) ([]byte, error) {
	if err == nil {
		err = state.CheckKey(secret.Data[keyContent])
	}
	if err != nil {
		return nil, fmt.Errorf("key of state %s: %w", s, err)
	}
	return secret.Data[keyContent], nil
}

// makeKey creates the Secret, or reads it if another process, or a request whose answer was lost, has created it.
func (s *Store) makeKey(ctx context.Context) (made *corev1.Secret, err error) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: s.keyObject(), Namespace: s.namespace, Labels: s.labels(kindKey)},
		Type:       corev1.SecretTypeOpaque,
		Immutable:  new(true),
		Data:       map[string][]byte{keyContent: state.NewKey()},
	}
	err = s.call(ctx, "create", "secrets", secret.Name, func(ctx context.Context) error {
		made, err = s.typed.CoreV1().Secrets(s.namespace).Create(ctx, secret, metav1.CreateOptions{FieldManager: manager})
		return err
	})
	if apierrors.IsAlreadyExists(err) {
		return s.getSecret(ctx, s.keyObject())
	}
	return made, err
}
