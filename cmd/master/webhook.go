package master

import (
	"context"
	"fmt"
	"strings"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/internal/regular"
)

const (
	// minToken is the length below which a token can be guessed. `openssl rand -hex 32` gives 64 characters.
	minToken = 16
	// maxToken is far longer than any real token, and fits into a request's header.
	maxToken = 4 << 10
)

// webhook passes requests to the reconciler. It breaks a cycle: the reconciler needs the server, which needs the webhook.
type webhook struct {
	reconcile func(context.Context, elastic.ReconcileRequest) elastic.ReconcileReply
	report    func(error) // called with the result of each read of the token
	tokenFile string
}

func (w *webhook) answer(ctx context.Context, asked elastic.ReconcileRequest) elastic.ReconcileReply {
	return w.reconcile(ctx, asked) // the server is ready, so it is set
}

// token reads the token at each request, so that it can be replaced while a master runs.
func (w *webhook) token() (string, error) {
	token, err := webhookToken(w.tokenFile)
	w.report(err) // the server is ready, so it is set
	return token, err
}

// webhookToken reads the token of POST /v1/reconcile.
func webhookToken(path string) (string, error) {
	text, err := regular.ReadSecret(path, maxToken)
	if err != nil {
		return "", fmt.Errorf("the token of POST /v1/reconcile: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if len(token) < minToken {
		return "", fmt.Errorf("the token of POST /v1/reconcile: %s has %d characters, at least %d are required; make one with: openssl rand -hex 32", path, len(token), minToken)
	}
	return token, nil
}
