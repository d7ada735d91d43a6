// Package kubelet runs pods as real processes of this machine.
package kubelet

import (
	_ "github.com/containerd/cgroups/v3"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "k8s.io/api/core/v1"
	_ "k8s.io/client-go/kubernetes"
	_ "sigs.k8s.io/yaml"
)
