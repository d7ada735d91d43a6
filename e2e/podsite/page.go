package podsite

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/testbed"
)

// Page is a page of docs/ whose commands a test runs exactly as written.
type Page struct {
	t     *testing.T
	path  string
	ahead string // the rest of its text
}

// OpenPage opens a page at a heading, which includes its # marks.
func OpenPage(t *testing.T, path, heading string) *Page {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := &Page{t: t, path: path, ahead: string(text)}
	p.To(heading)
	return p
}

// To skips to a heading.
func (p *Page) To(heading string) {
	p.t.Helper()
	_, ahead, there := strings.Cut(p.ahead, "\n"+heading+"\n")
	if !there {
		p.t.Fatalf("%s has no further %q", p.path, heading)
	}
	p.ahead = ahead
}

// Block skips to the next code block of a language and returns its text, without the indentation of the list around it.
func (p *Page) Block(language string) string {
	p.t.Helper()
	found := regexp.MustCompile("(?ms)^( *)```" + language + "\n(.*?)^ *```$").FindStringSubmatchIndex(p.ahead)
	if found == nil {
		p.t.Fatalf("%s has no further %s", p.path, language)
	}
	indent, text := p.ahead[found[2]:found[3]], p.ahead[found[4]:found[5]]
	p.ahead = p.ahead[found[1]:]
	return regexp.MustCompile("(?m)^"+indent).ReplaceAllString(text, "")
}

// Kubectl returns the path of the testbed's kubectl, so that tests do not depend on this machine's.
func Kubectl(t *testing.T) string {
	t.Helper()
	binaries, err := testbed.Binaries()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(binaries, testbed.Kubectl)
}

// Shell runs commands in a directory as the administrator of the site's cluster, by default in the site's namespace, and
// returns their output. The test ends at the first that fails.
func (s *Site) Shell(dir, commands string) string {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), site.Bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-e", "-c", commands)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.adminKubeconfig(), "PATH="+filepath.Dir(Kubectl(s.T))+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.T.Fatalf("%s\n%v\n%s", commands, err, out)
	}
	return string(out)
}

// adminKubeconfig returns the administrator's kubeconfig, for the site's namespace.
func (s *Site) adminKubeconfig() (path string) {
	s.T.Helper()
	config, err := clientcmd.LoadFromFile(s.Cluster.AdminKubeconfig())
	s.OK(err)
	config.Contexts[config.CurrentContext].Namespace = s.Namespace
	path = filepath.Join(s.T.TempDir(), "admin.kubeconfig")
	s.OK(clientcmd.WriteToFile(*config, path))
	return path
}
