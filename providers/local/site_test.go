package local

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/eltrain/eltrain/providers"
)

// A run directory keeps its site when it is moved or copied, and no other directory has it.
func TestTheSiteIsTheRunDirectorys(t *testing.T) {
	b := newBench(t)
	site := b.Capabilities().Site
	if _, err := os.Stat(filepath.Join(b.dir, runDirName, siteFile)); err == nil || site == "" {
		t.Fatalf("the site %q was written by looking", site)
	}
	b.ok(b.Publish(b.ctx, providers.Service{URL: "https://127.0.0.1:1"}))
	link := filepath.Join(t.TempDir(), "link")
	b.ok(os.Symlink(b.dir, link))
	copied, moved := filepath.Join(t.TempDir(), "copied"), filepath.Join(t.TempDir(), "moved")
	b.ok(os.CopyFS(copied, os.DirFS(b.dir)))
	for _, dir := range []string{b.dir, link, copied} {
		if got := b.elsewhere(dir).Capabilities().Site; got != site {
			t.Errorf("in %s it is %q, not %q", dir, got, site)
		}
	}
	b.ok(os.Rename(b.dir, moved))
	if got := b.elsewhere(moved).Capabilities().Site; got != site {
		t.Errorf("moved it is %q, not %q", got, site)
	}
	if got := b.elsewhere(t.TempDir()).Capabilities().Site; got == site {
		t.Errorf("another directory is %q too", got)
	}
}
