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
	// leastToken is the length below which a token can be guessed. `openssl rand -hex 32` gives 64 characters.
	leastToken = 16
	// mostToken is far above what anybody uses, and fits into a request's header.
	mostToken = 4 << 10
)

// webhook passes requests to reconcile on to the reconciler, which needs the server that takes them.
type webhook struct {
	reconcile func(context.Context, elastic.ReconcileRequest) elastic.ReconcileReply
	report    func(error) // whether the token can be read
	tokenFile string
}

func (w *webhook) answer(ctx context.Context, asked elastic.ReconcileRequest) elastic.ReconcileReply {
	return w.reconcile(ctx, asked) // the server is ready, so it is set
}

// token reads the token for each request, so that it can be exchanged while a master runs.
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
	text, err := io.ReadAll(io.LimitReader(f, mostToken+1))
	if err != nil {
		return "", fmt.Errorf("the token of POST /v1/reconcile: %w", err)
	}
	token := strings.TrimSpace(string(text))
	switch {
	case len(token) < leastToken:
		return "", fmt.Errorf("the token of POST /v1/reconcile: %s has %d characters, at least %d are required; make one with: openssl rand -hex 32", path, len(token), leastToken)
	case len(text) > mostToken:
		return "", errors.New("the token of POST /v1/reconcile: " + path + " is not a token: it is too large")
	}
	return token, nil
}

// forbiddenMode are the permissions that a token's file must not have: any for others. A file of root's may be read by
// its group, which is how Kubernetes hands a Secret to a pod with an fsGroup; PostgreSQL has the same rule for keys.
func forbiddenMode(info fs.FileInfo) fs.FileMode {
	if ownedByRoot(info) {
		return 0o037
	}
	return 0o077
}
