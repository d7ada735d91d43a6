// Package kube connects to a Kubernetes API server, for the provider that runs pods and the store that keeps
// state there. It does not know what objects are used for, and has no policy.
package kube

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Access names a cluster as kubectl does.
type Access struct {
	Kubeconfig string // file; "" means $KUBECONFIG, then ~/.kube/config, then the ServiceAccount of the pod this runs in
	Context    string // "" means the file's current context
	Namespace  string // "" means the context's, or the pod's own
}

// Home returns the path of a kubeconfig, of which a leading "~/" is the home directory, if that is known.
func Home(path string) string {
	rest, home := strings.CutPrefix(path, "~/")
	dir, err := os.UserHomeDir()
	if !home || err != nil {
		return path
	}
	return filepath.Join(dir, rest)
}

// Client returns a client configuration and the namespace to use. It removes client-go's default limit of 5 requests
// per second, since the API server itself rejects what is too much, with 429 and Retry-After. A qps above 0 is the
// user's limit.
func (a Access) Client(qps float64) (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if a.Kubeconfig != "" {
		rules.ExplicitPath = Home(a.Kubeconfig)
	}
	loading := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: a.Context})
	config, err := loading.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("read the Kubernetes client configuration: %w", err)
	}
	namespace := a.Namespace
	if namespace == "" {
		if namespace, _, err = loading.Namespace(); err != nil {
			return nil, "", fmt.Errorf("read the namespace: %w", err)
		}
	}
	config.QPS, config.Burst = -1, 0
	if qps > 0 {
		config.QPS, config.Burst = float32(qps), max(int(qps), 1)
	}
	config.UserAgent = "eltrain"
	return config, namespace, nil
}
