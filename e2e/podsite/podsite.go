// Package podsite has what a site adds on a cluster: a namespace of it, a user with the rights of deploy/, pods that are
// processes of this machine, and the objects that a job has on the API server, by their labels.
//
//	podsite.go    a site in a namespace
//	cluster.go    objects and processes
//	demo.go       the example job on nodes of its own
//	faults.go     what happens to pods and their nodes, for the suite of package heal
//	gate.go       stops a master at one of its writes
//	image.go      the image that deploy/ makes of the programs
//	page.go       a page of docs/ that is followed to the letter, by kubectl
package podsite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/testbed"
)

// Rights is what deploy/ grants eltrain: no test has others.
var Rights = filepath.Join(site.Root, "deploy", "base", "rbac.yaml")

// Runnable reports whether this package's tests can run: not with -short, and not without root.
func Runnable() bool { return !testing.Short() && os.Geteuid() == 0 }

// Needed skips a test where what it needs is not to be had.
func Needed(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("brings up a Kubernetes control plane: not with -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("the process nodes make mounts and namespaces: needs root")
	}
}

// Site is a job directory with a namespace and a user of its own.
type Site struct {
	*site.Site
	Cluster   *testbed.Cluster
	Namespace string
	Work      string // where its processes work, as they see it; empty without any
}

// New makes a namespace, a user with the rights of deploy/, and a directory.
func New(t *testing.T, c *testbed.Cluster, programs site.Programs, job string) *Site {
	t.Helper()
	s := In(t, c, programs, job, c.Namespace(t))
	s.As(s.User())
	return s
}

// In is a site for what is installed in a namespace: it has no user.
func In(t *testing.T, c *testbed.Cluster, programs site.Programs, job, namespace string) *Site {
	t.Helper()
	return &Site{Site: site.New(t, programs, job), Cluster: c, Namespace: namespace}
}

// User is who eltrain is for the API server.
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
