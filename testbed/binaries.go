package testbed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// binariesEnv names a folder of prebuilt components.
const binariesEnv = "ELTRAIN_TESTBED_BIN"

// The Kubernetes version that testbed/controlplane/go.mod pins. The module's source does not contain it: without
// these the API server reports v0.0.0-master.
const (
	kubernetesVersion = "v1.36.3"
	kubernetesMajor   = "1"
	kubernetesMinor   = "36"
)

// module is a module of this checkout that pins components and has no code.
type module struct {
	name      string            // of its folder in testbed/
	holds     string            // for people
	programs  map[string]string // component to package
	built     map[string]string // Go's name of a program, if it differs from the component's
	linkFlags string
	// copies are folders of required modules with files that the programs need.
	copies []copied
}

// copied is a folder of a module, and its name next to the programs.
type copied struct{ module, folder, to string }

var controlplane = module{
	name:  "controlplane",
	holds: "etcd, Kubernetes " + kubernetesVersion + " and KWOK",
	programs: map[string]string{
		Etcd:              "go.etcd.io/etcd/server/v3",
		APIServer:         "k8s.io/kubernetes/cmd/kube-apiserver",
		ControllerManager: "k8s.io/kubernetes/cmd/kube-controller-manager",
		Scheduler:         "k8s.io/kubernetes/cmd/kube-scheduler",
		KWOK:              "sigs.k8s.io/kwok/cmd/kwok",
		Kubectl:           "k8s.io/kubernetes/cmd/kubectl",
	},
	built:     map[string]string{"server": Etcd},
	linkFlags: kubernetesLinkFlags(),
}

var volcano = module{
	name:  "volcano",
	holds: "Volcano's scheduler and controllers",
	programs: map[string]string{
		VolcanoScheduler:  "volcano.sh/volcano/cmd/scheduler",
		VolcanoController: "volcano.sh/volcano/cmd/controller-manager",
	},
	built:     map[string]string{"scheduler": VolcanoScheduler, "controller-manager": VolcanoController},
	linkFlags: "-s -w",
	copies: []copied{
		{"volcano.sh/volcano", "config/crd/volcano/bases", definitionsDir},
		{"volcano.sh/volcano", "config/crd/jobflow/bases", definitionsDir},
		{"volcano.sh/volcano", "installer/helm/chart/volcano/config", volcanoConfigDir},
	},
}

var terraform = module{
	name:      "terraform",
	holds:     "terraform",
	programs:  map[string]string{"terraform": "github.com/hashicorp/terraform"},
	linkFlags: "-s -w -X github.com/hashicorp/terraform/version.dev=no", // as in its releases
}

// Binaries returns the folder of the control plane's programs: $ELTRAIN_TESTBED_BIN, or the one in the user's cache
// that Build made from the sources pinned by this checkout. It must be called from within the checkout, as tests
// are.
func Binaries() (string, error) { return controlplane.binaries() }

// VolcanoBinaries is Binaries for Volcano's programs. In $ELTRAIN_TESTBED_BIN they are next to the control plane's, with two
// folders of Volcano's module: definitions (its CRDs) and config (its chart's).
func VolcanoBinaries() (string, error) { return volcano.binaries() }

func (m module) binaries() (string, error) {
	if dir := os.Getenv(binariesEnv); dir != "" {
		return dir, nil
	}
	source, err := m.source()
	if err != nil {
		return "", err
	}
	dir, err := m.cacheDir(source)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("%s: not built: run `make testbed` (%w)", m.holds, err)
	}
	return dir, nil
}

// Build builds the components into the user's cache if they are missing, and returns the folders that Binaries and
// VolcanoBinaries return. It takes some minutes with an empty build cache, half a minute with a warm one. Concurrent
// builds wait for each other; a folder is created atomically. Progress goes to w.
func Build(ctx context.Context, w io.Writer) ([]string, error) {
	var dirs []string
	for _, m := range []module{controlplane, volcano} {
		dir, err := m.ensure(ctx, w)
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// Terraform builds the terraform that benchmarks compare with, like Build, and returns its path. No test needs it.
func Terraform(ctx context.Context, w io.Writer) (string, error) {
	dir, err := terraform.ensure(ctx, w)
	return filepath.Join(dir, "terraform"), err
}

func (m module) ensure(ctx context.Context, w io.Writer) (string, error) {
	source, err := m.source()
	if err != nil {
		return "", err
	}
	dir, err := m.cacheDir(source)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	held, err := lock(filepath.Join(filepath.Dir(dir), "lock"))
	if err != nil {
		return "", err
	}
	defer held.Close()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	unfinished := dir + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil { // of a killed build
		return "", err
	}
	fmt.Fprintf(w, "building %s into %s: some minutes the first time\n", m.holds, dir)
	if err := m.build(ctx, w, held, source, unfinished); err != nil {
		return "", errors.Join(err, os.RemoveAll(unfinished))
	}
	return dir, os.Rename(unfinished, dir)
}

// build passes the lock to the compilers: if this process is killed they continue, and no other build may start.
func (m module) build(ctx context.Context, w io.Writer, held *os.File, source, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	arguments := []string{"build", "-mod=readonly", "-trimpath", "-ldflags", m.linkFlags, "-o", dir + "/"}
	for _, program := range m.programs {
		arguments = append(arguments, program)
	}
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	cmd.Stdout, cmd.Stderr = w, w
	cmd.ExtraFiles = []*os.File{held}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s in %s: %w", m.holds, source, err)
	}
	for from, to := range m.built {
		if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			return err
		}
	}
	for _, c := range m.copies {
		if err := c.copy(ctx, w, source, dir); err != nil {
			return fmt.Errorf("copy %s of %s: %w", c.folder, c.module, err)
		}
	}
	return nil
}

// copy copies the folder's files out of the module cache.
func (c copied) copy(ctx context.Context, w io.Writer, source, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", c.module)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.Stderr = w
	found, err := cmd.Output()
	if err != nil {
		return err
	}
	from := filepath.Join(strings.TrimSpace(string(found)), c.folder)
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	to := filepath.Join(dir, c.to)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(from, entry.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, entry.Name()), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func kubernetesLinkFlags() string {
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X", pkg+".gitVersion="+kubernetesVersion,
			"-X", pkg+".gitMajor="+kubernetesMajor,
			"-X", pkg+".gitMinor="+kubernetesMinor,
			"-X", pkg+".gitTreeState=clean",
		)
	}
	return strings.Join(flags, " ")
}

// cacheDir names the folder by a hash of everything that it is built from.
func (m module) cacheDir(source string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version(), runtime.GOOS, runtime.GOARCH, m.linkFlags)
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", err
		}
		hash.Write(content)
	}
	const digits = 12 // enough to distinguish a user's few builds
	return filepath.Join(cache, "eltrain", "testbed", hex.EncodeToString(hash.Sum(nil))[:digits]), nil
}

// source finds the module in the checkout around the working directory.
func (m module) source() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		source := filepath.Join(dir, "testbed", m.name)
		if _, err := os.Stat(filepath.Join(source, "go.mod")); err == nil {
			return source, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no testbed/%s in or above %s: set %s", m.name, start, binariesEnv)
		}
	}
}

// lock waits for the exclusive lock on a file. It is released when the last process that has the file open closes it
// or exits.
func lock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return file, nil
}
