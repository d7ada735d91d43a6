package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/eltrain/eltrain/elastic"
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
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("the token of POST /v1/reconcile: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("the token of POST /v1/reconcile: %w", err)
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("the token of POST /v1/reconcile: %s is not a regular file", path)
	}
	if mode := info.Mode().Perm(); mode&forbiddenMode(info) != 0 {
		return "", fmt.Errorf("the token of POST /v1/reconcile: others can read or write %s, its mode is %04o; run: chmod 600 %s", path, mode, path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", fmt.Errorf("the token of POST /v1/reconcile: %w", err)
	}
	token := strings.TrimSpace(string(text))
	switch {
	case len(token) < minToken:
		return "", fmt.Errorf("the token of POST /v1/reconcile: %s has %d characters, at least %d are required; make one with: openssl rand -hex 32", path, len(token), minToken)
	case len(text) > maxToken:
		return "", errors.New("the token of POST /v1/reconcile: " + path + " is not a token: it is too large")
	}
	return token, nil
}

// forbiddenMode returns the permissions that a token's file must not have: any for group and others, except that the group may
// read root's file, as when Kubernetes gives a Secret to a pod with an fsGroup. PostgreSQL has the same rule for keys.
func forbiddenMode(info fs.FileInfo) fs.FileMode {
	if ownedByRoot(info) {
		return 0o037
	}
	return 0o077
}
