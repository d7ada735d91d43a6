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

// binariesEnv names the folder of ready-made components, for those who have their own.
const binariesEnv = "ELTRAIN_TESTBED_BIN"

// The Kubernetes version that testbed/controlplane/go.mod pins. The module's source does not know it: without
// these the API server calls itself v0.0.0-master.
const (
	kubernetesVersion = "v1.36.3"
	kubernetesMajor   = "1"
	kubernetesMinor   = "36"
)

// programs are the components' packages in testbed/controlplane.
var programs = map[string]string{
	Etcd:              "go.etcd.io/etcd/server/v3",
	APIServer:         "k8s.io/kubernetes/cmd/kube-apiserver",
	ControllerManager: "k8s.io/kubernetes/cmd/kube-controller-manager",
	Scheduler:         "k8s.io/kubernetes/cmd/kube-scheduler",
	KWOK:              "sigs.k8s.io/kwok/cmd/kwok",
}

// Binaries returns the folder that holds the components: $ELTRAIN_TESTBED_BIN, or the one in the user's cache that
// Build made from the sources this checkout pins. It must be called from somewhere in the checkout, as tests are.
func Binaries() (string, error) {
	if dir := os.Getenv(binariesEnv); dir != "" {
		return dir, nil
	}
	source, err := controlplaneModule()
	if err != nil {
		return "", err
	}
	dir, err := cacheDir(source)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("the control plane's programs are not built: run `make testbed` (%w)", err)
	}
	return dir, nil
}

// Build builds the components into the user's cache unless they are there: some minutes with an empty build
// cache, half a minute with a warm one, nothing when nothing changed. Two builds at a time wait for each other;
// the folder appears whole or not at all. Progress goes to w.
func Build(ctx context.Context, w io.Writer) (string, error) {
	source, err := controlplaneModule()
	if err != nil {
		return "", err
	}
	dir, err := cacheDir(source)
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
	if err := os.RemoveAll(unfinished); err != nil { // of a build that was killed
		return "", err
	}
	fmt.Fprintf(w, "building etcd, Kubernetes %s and KWOK into %s: some minutes the first time\n", kubernetesVersion, dir)
	if err := build(ctx, w, held, source, unfinished); err != nil {
		return "", errors.Join(err, os.RemoveAll(unfinished))
	}
	return dir, os.Rename(unfinished, dir)
}

// build has the compilers hold the lock too: when this process is killed they go on, and nobody else may begin.
func build(ctx context.Context, w io.Writer, held *os.File, source, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	arguments := []string{"build", "-mod=readonly", "-trimpath", "-ldflags", linkFlags(), "-o", dir + "/"}
	for _, program := range programs {
		arguments = append(arguments, program)
	}
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	cmd.Stdout, cmd.Stderr = w, w
	cmd.ExtraFiles = []*os.File{held}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build the control plane in %s: %w", source, err)
	}
	// Go names a program after its package's folder, and etcd's is called server.
	return os.Rename(filepath.Join(dir, "server"), filepath.Join(dir, Etcd))
}

func linkFlags() string {
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

// cacheDir names the folder after everything its content is made from.
func cacheDir(source string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version(), runtime.GOOS, runtime.GOARCH, linkFlags())
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", err
		}
		hash.Write(content)
	}
	const digits = 12 // enough to tell a user's handful of builds apart
	return filepath.Join(cache, "eltrain", "testbed", hex.EncodeToString(hash.Sum(nil))[:digits]), nil
}

// controlplaneModule finds testbed/controlplane of the checkout around the working directory.
func controlplaneModule() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		source := filepath.Join(dir, "testbed", "controlplane")
		if _, err := os.Stat(filepath.Join(source, "go.mod")); err == nil {
			return source, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no testbed/controlplane in or above %s: set %s", start, binariesEnv)
		}
	}
}

// lock waits for the exclusive lock on a file. It is let go when the last process that has the file open closes it
// or ends.
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
