//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// part is a set of eltrain's packages, linked into a program that does nothing.
type part struct {
	name    string
	imports []string
}

// parts is in the order of the report. The last one has everything that eltrain links.
var parts = []part{
	{"nothing", nil},
	{"the language", []string{"lang"}},
	{"the service, with its metrics", []string{"elastic"}},
	{"Kubernetes' client", []string{"kube"}},
	{"all but Kubernetes", withoutKubernetes},
	{"all", append([]string{"providers/volcano", "state/kubernetes"}, withoutKubernetes...)},
}

var withoutKubernetes = []string{"apply", "cmd/planfile", "cmd/view", "lang/importer", "providers/local", "state/file"}

// source returns a program that only initializes its imports and prints its own memory status.
func (p part) source() string {
	var b strings.Builder
	b.WriteString("package main\n\nimport (\n\t\"os\"\n")
	for _, room := range p.imports {
		fmt.Fprintf(&b, "\t_ %q\n", "github.com/eltrain/eltrain/"+room)
	}
	fmt.Fprintf(&b, ")\n\nfunc main() {\n\tstatus, _ := os.ReadFile(%q)\n\tos.Stdout.Write(status)\n}\n", ownStatus)
	return b.String()
}

// measure builds the program as make build does, and returns the minimum memory of a process linked from these packages:
// its peak resident memory in bytes. The program prints it itself, because the value that the kernel reports to its parent
// is at least the parent's own peak.
func (p part) measure(ctx context.Context, dir string) (peak int64, err error) {
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte(p.source()), 0o644); err != nil {
		return 0, err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, source)
	build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	if err := build.Run(); err != nil {
		return 0, fmt.Errorf("build a program with %s: %w", p.name, err)
	}
	status, err := exec.CommandContext(ctx, program).Output()
	if err != nil {
		return 0, fmt.Errorf("run a program with %s: %w", p.name, err)
	}
	return peakIn(string(status))
}

// floor measures all parts.
func floor(ctx context.Context, dir string, res *result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, p := range parts {
		peak, err := p.measure(ctx, dir)
		if err != nil {
			return err
		}
		res.floor = append(res.floor, peak)
	}
	return nil
}
