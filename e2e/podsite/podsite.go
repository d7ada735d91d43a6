// Package podsite is a site on a cluster: with a namespace, a user with the rights of deploy/, pods that are processes on this
// machine, and a job's objects on the API server, found by their labels.
//
//	podsite.go    a site in a namespace
//	cluster.go    objects and processes
//	demo.go       the example job on its own nodes
//	faults.go     faults of pods and their nodes, for the suite of package heal
//	gate.go       stops a master at one of its writes
//	image.go      the image that deploy/ builds from the programs
//	page.go       runs the commands of a page of docs/ as written
package podsite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/testbed"
)

// Rights is what deploy/ grants eltrain. Tests use no other rights.
var Rights = filepath.Join(site.Root, "deploy", "base", "rbac.yaml")

// Runnable reports whether this package's tests can run: not with -short, and not without root.
func Runnable() bool { return !testing.Short() && os.Geteuid() == 0 }

// RequireCluster skips a test that cannot run here: with -short, or without root.
func RequireCluster(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("brings up a Kubernetes control plane: not with -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("the process nodes make mounts and namespaces: needs root")
	}
}

// Site is a job directory with its own namespace and user.
type Site struct {
	*site.Site
	Cluster   *testbed.Cluster
	Namespace string
	Work      string // working directory of its processes, as they see it; "" if there are none
}

// New makes a namespace, a user with the rights of deploy/, and a directory.
func New(t *testing.T, c *testbed.Cluster, programs site.Programs, job string) *Site {
	t.Helper()
	s := In(t, c, programs, job, c.Namespace(t))
	s.As(s.User())
	return s
}

// In returns a site in an existing namespace. It has no user.
func In(t *testing.T, c *testbed.Cluster, programs site.Programs, job, namespace string) *Site {
	t.Helper()
	return &Site{Site: site.New(t, programs, job), Cluster: c, Namespace: namespace}
}

// User returns eltrain's user on the API server.
func (s *Site) User() testbed.User {
	return testbed.User{Namespace: s.Namespace, Roles: []string{Rights}}
}

// As makes eltrain another user.
func (s *Site) As(user testbed.User) {
	s.T.Helper()
	s.use(s.Cluster.Kubeconfig(s.T, user))
}

const kubeconfigEnv = "KUBECONFIG="

func (s *Site) use(kubeconfig string) { s.Env = []string{kubeconfigEnv + kubeconfig} }

func (s *Site) kubeconfig() string { return strings.TrimPrefix(s.Env[0], kubeconfigEnv) }
