package kubernetes

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A refusal is a missing right once it stands. One that was followed by silence is told, and nobody acts on it.
func TestARefusalThatDidNotStandIsNoMissingRight(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "s", errors.New(`User "ada" cannot get resource "secrets"`))
	failed := apierrors.NewInternalError(errors.New("etcd is away"))
	for name, c := range map[string]struct {
		answers []error // then silence
		missing bool
		says    string
	}{
		"once, then silence":      {[]error{refused}, false, `User "ada" cannot get resource "secrets"`},
		"a failure, then silence": {[]error{refused, failed}, false, "etcd is away"},
		"for long":                {make([]error, 100), true, `User "ada" cannot get resource "secrets"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := bounded(t.Context())
				defer cancel()
				asked := 0
				err := (&Store{namespace: "ml"}).call(ctx, "get", "secrets", "s", func(ctx context.Context) error {
					if asked++; asked <= len(c.answers) {
						if err := c.answers[asked-1]; err != nil {
							return err
						}
						return refused
					}
					<-ctx.Done()
					return &timeoutError{}
				})
				if errors.As(err, new(*ForbiddenError)) != c.missing || !strings.Contains(err.Error(), c.says) {
					t.Errorf("it says %v", err)
				}
				if !c.missing && !strings.Contains(err.Error(), "the API server did not do it within "+patience.String()) {
					t.Errorf("that the time was up is not said: %v", err)
				}
			})
		})
	}
}

// timeoutError is of a connection that hangs.
type timeoutError struct{}

func (*timeoutError) Error() string   { return "i/o timeout" }
func (*timeoutError) Timeout() bool   { return true }
func (*timeoutError) Temporary() bool { return true }
