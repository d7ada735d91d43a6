// Package kube says how a Kubernetes API server is reached: the provider that runs pods and the store that
// keeps state there share it. It knows of no object what it is for, and no policy.
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
	Kubeconfig string // a file; "" is $KUBECONFIG, then ~/.kube/config, then the pod that this runs in
	Context    string // "" is the file's current one
	Namespace  string // "" is the context's, or the pod's own
}

// Client is how to reach it, and the namespace to work in. client-go's own limit of 5 requests a second is
// taken off: the API server says by itself, with 429 and Retry-After, what is too much. A qps above 0 is a limit
// of the user's.
func (a Access) Client(qps float64) (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if path := a.Kubeconfig; path != "" {
		if rest, home := strings.CutPrefix(path, "~/"); home {
			dir, err := os.UserHomeDir()
			if err != nil {
				return nil, "", fmt.Errorf("find %s: %w", path, err)
			}
			path = filepath.Join(dir, rest)
		}
		rules.ExplicitPath = path
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
