package site

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Main runs a package's tests, parallel at a time: they wait far more than they work, so more than the cores is fine. It builds
// the programs in a temporary directory. up prepares what the tests share, and down removes it.
func Main(m *testing.M, parallel int, up func(Programs) error, down func(failed bool) error) {
	flag.Parse()
	code, err := run(m, parallel, up, down)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(m *testing.M, parallel int, up func(Programs) error, down func(failed bool) error) (code int, err error) {
	if err := flag.Set("test.parallel", fmt.Sprint(parallel)); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "eltrain-e2e-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	programs, err := build(dir)
	if err != nil {
		return 0, err
	}
	if err := up(programs); err != nil {
		return 0, errors.Join(err, down(true))
	}
	code = m.Run()
	return code, down(code != 0)
}

// build builds both programs as deploy/Dockerfile requires: static, so that they run in any image.
func build(dir string) (Programs, error) {
	const commands = "github.com/eltrain/eltrain/cmd/"
	build := exec.Command("go", "build", "-o", dir+"/", commands+"eltrain", commands+"eltrain-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return Programs{}, fmt.Errorf("build: %w\n%s", err, out)
	}
	return Programs{Eltrain: filepath.Join(dir, "eltrain"), Agent: filepath.Join(dir, "eltrain-agent")}, nil
}

// NotShort skips a test that trains if -short is set.
func NotShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("trains: not with -short")
	}
}
