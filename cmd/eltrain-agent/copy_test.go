package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An init container installs the program in a pod with this.
func TestItCopiesItself(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "eltrain-agent")
	if err := os.WriteFile(path, []byte("an older one"), 0o600); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	if code := run([]string{"-copy-to=" + path}, &stderr); code != 0 {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o755 {
		t.Fatalf("%v, %v", info, err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, want) {
		t.Errorf("the copy has %d bytes of %d, %v", len(have), len(want), err)
	}
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no such directory": {[]string{"-copy-to=" + filepath.Join(dir, "no", "eltrain-agent")}, "no such file"},
		"no path":           {[]string{"-copy-to="}, "one path"},
		"more than that":    {[]string{"-copy-to=" + path, "-job=gpt"}, "exactly one path"},
	} {
		stderr.Reset()
		if code := run(c.args, &stderr); code == 0 || !strings.Contains(stderr.String(), c.says) {
			t.Errorf("%s: exit code %d: %s", name, code, &stderr)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("it left %v behind, %v", left, err)
	}
}
