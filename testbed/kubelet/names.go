package kubelet

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// names writes the hosts file of every pod: its own name, and the names that a cluster's DNS would resolve, for the
// pods that this Kubelet runs.
type names struct {
	k    *Kubelet
	wake chan struct{}

	mu sync.Mutex // one writer of files at a time
}

func newNames(k *Kubelet) *names { return &names{k: k, wake: make(chan struct{}, 1)} }

// poke reports a change of something that names depend on.
func (n *names) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *names) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		}
		pods := n.k.pods()
		services := n.k.serviceList()
		for _, p := range pods {
			if err := n.write(p, pods, services); err != nil {
				p.log.Warn("cannot write the hosts file", "err", err)
			}
		}
	}
}

// writeFor writes one pod's file now, before its first container starts.
func (n *names) writeFor(p *pod) error { return n.write(p, n.k.pods(), n.k.serviceList()) }

func (n *names) write(p *pod, pods []*pod, services []*corev1.Service) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	dir := filepath.Join(p.dir, "etc")
	var targets []target
	for _, other := range pods {
		targets = append(targets, other.target())
	}
	text := []byte(hostsFile(p.target(), targets, services))
	old, err := os.ReadFile(filepath.Join(dir, "hosts"))
	if err == nil && bytes.Equal(old, text) {
		return nil
	}
	if _, err := os.Stat(dir); err != nil {
		return nil // not prepared yet, or removed
	}
	fresh := filepath.Join(dir, "hosts.new")
	if err := os.WriteFile(fresh, text, 0o644); err != nil {
		return err
	}
	return os.Rename(fresh, filepath.Join(dir, "hosts"))
}

// target is a pod that names may resolve to.
type target struct {
	pod      *corev1.Pod
	ip       string
	hostname string
	ready    bool
	ended    bool
}

// hostsFile renders the hosts file of a pod. A Service's name resolves to its ready pods, or to all with
// publishNotReadyAddresses; a pod with a hostname, and a Service as its subdomain, also has a name of its own.
func hostsFile(own target, targets []target, services []*corev1.Service) string {
	var out strings.Builder
	fmt.Fprintf(&out, "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	if own.pod.Spec.Hostname != "" && own.pod.Spec.Subdomain != "" {
		fqdn := fmt.Sprintf("%s.%s.%s.svc.cluster.local", own.hostname, own.pod.Spec.Subdomain, own.pod.Namespace)
		fmt.Fprintf(&out, "%s\t%s\t%s\n", own.ip, fqdn, own.hostname)
	} else {
		fmt.Fprintf(&out, "%s\t%s\n", own.ip, own.hostname)
	}
	services = slices.Clone(services)
	sort.Slice(services, func(i, j int) bool {
		return services[i].Namespace+"/"+services[i].Name < services[j].Namespace+"/"+services[j].Name
	})
	targets = slices.Clone(targets)
	sort.Slice(targets, func(i, j int) bool { return targets[i].pod.Name < targets[j].pod.Name })
	for _, s := range services {
		if len(s.Spec.Selector) == 0 {
			continue
		}
		selector := labels.SelectorFromSet(s.Spec.Selector)
		var aliases [][2]string
		for _, t := range targets {
			if t.ended || t.pod.Namespace != s.Namespace || !selector.Matches(labels.Set(t.pod.Labels)) {
				continue
			}
			if !s.Spec.PublishNotReadyAddresses && (!t.ready || t.pod.DeletionTimestamp != nil) {
				continue
			}
			aliases = append(aliases, [2]string{t.ip, s.Name})
			if t.pod.Spec.Hostname != "" && t.pod.Spec.Subdomain == s.Name {
				aliases = append(aliases, [2]string{t.ip, t.hostname + "." + s.Name})
			}
		}
		for _, alias := range aliases {
			long := alias[1] + "." + s.Namespace
			fmt.Fprintf(&out, "%s\t%s.svc.cluster.local\t%s.svc\t%s", alias[0], long, long, long)
			if s.Namespace == own.pod.Namespace {
				fmt.Fprintf(&out, "\t%s", alias[1])
			}
			out.WriteByte('\n')
		}
	}
	return out.String()
}
