package lang

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// linked creates symbolic links in a directory; links maps names to targets.
func linked(t *testing.T, dir string, links map[string]string) string {
	t.Helper()
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A loop of links is reported once, however many links it has and whatever else is in the directory.
func TestLoopsOfLinksAreToldOnce(t *testing.T) {
	for name, c := range map[string]struct {
		files, links map[string]string
		want         string // @ is the directory
	}{
		"to itself":          {nil, map[string]string{"a.hcl": "a.hcl"}, `form a cycle: "@/a.hcl" -> "@/a.hcl"; remove them`},
		"two":                {nil, map[string]string{"a.hcl": "b.hcl", "b.hcl": "a.hcl"}, `"@/a.hcl" -> "@/b.hcl" -> "@/a.hcl"`},
		"one that leads in":  {nil, map[string]string{"a.hcl": "b.hcl", "b.hcl": "c.hcl", "c.hcl": "b.hcl", "d.hcl": "a.hcl"}, `"@/a.hcl" -> "@/b.hcl" -> "@/c.hcl" -> "@/b.hcl"`},
		"by a whole path":    {nil, map[string]string{"a.hcl": "@/b.hcl", "b.hcl": "./a.hcl"}, `"@/a.hcl" -> "@/b.hcl" -> "@/a.hcl"`},
		"beside a good file": {map[string]string{"job.hcl": inRole("env = { X = var.declared_in_a }")}, map[string]string{"a.hcl": "a.hcl"}, `"@/a.hcl" -> "@/a.hcl"`},
		"of a module":        {map[string]string{"job.hcl": use("m", "./m")}, map[string]string{"m": "n", "n": "m"}, `Cannot read module: The module's directory "./m" cannot be read: these symbolic links form a cycle: "@/m" -> "@/n" -> "@/m"`},
		"on the way":         {map[string]string{"job.hcl": use("m", "./m/deep")}, map[string]string{"m": "m"}, "too many levels of symbolic links"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeTree(t, c.files)
			for link, to := range c.links {
				c.links[link] = strings.ReplaceAll(to, "@", dir)
			}
			wantOne(t, linked(t, dir, c.links), strings.ReplaceAll(c.want, "@", dir))
		})
	}
}

// A directory is recognized under any name that a link gives it, and the chain of names is reported in quotes.
func TestModuleThatIncludesItself(t *testing.T) {
	const way = "Module includes itself: These directories include each other in a cycle: "
	for name, c := range map[string]struct {
		files, links map[string]string
		want         string
	}{
		"source is .":          {map[string]string{"job.hcl": use("x", ".")}, nil, `Module includes itself: The source is this block's own directory, "@": it would include itself.`},
		"source is ./":         {map[string]string{"job.hcl": use("x", "./")}, nil, `this block's own directory, "@"`},
		"source is ./a/..":     {map[string]string{"job.hcl": use("x", "./a/.."), "a/main.hcl": inJob("")}, nil, `this block's own directory, "@"`},
		"source is ..":         {map[string]string{"job.hcl": use("a", "./a"), "a/main.hcl": use("up", "..")}, nil, way + `"@" -> "@/a" -> "@". Remove one of the module blocks`},
		"a -> b -> a":          {map[string]string{"job.hcl": use("a", "./a"), "a/main.hcl": use("b", "../b"), "b/main.hcl": use("a", "../a")}, nil, way + `"@/a" -> "@/b" -> "@/a". Remove`},
		"a link to itself":     {map[string]string{"job.hcl": use("a", "./a"), "a/main.hcl": use("again", "./again")}, map[string]string{"a/again": "."}, way + `"@/a" -> "@/a/again", which is "@/a" again.`},
		"a link to the top":    {map[string]string{"job.hcl": use("a", "./a"), "a/main.hcl": use("up", "./up")}, map[string]string{"a/up": ".."}, way + `"@" -> "@/a" -> "@/a/up", which is "@" again.`},
		"a link beside itself": {map[string]string{"job.hcl": use("x", "./here")}, map[string]string{"here": "."}, way + `"@" -> "@/here", which is "@" again.`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := linked(t, writeTree(t, c.files), c.links)
			wantOne(t, dir, strings.ReplaceAll(c.want, "@", dir))
		})
	}
}

func TestLinksThatLeadNowhere(t *testing.T) {
	dir := linked(t, writeTree(t, map[string]string{"job.hcl": inJob("")}), map[string]string{"other.hcl": "nowhere"})
	wantOne(t, dir, "or what it links to, was removed")
}

// A file that cannot be read or parsed may declare what others refer to: only that file is reported.
func TestWhatATornFileMayDeclareIsNotCalledUnknown(t *testing.T) {
	users := map[string]string{
		"variable": inRole("env = { X = var.x }"),
		"local":    inRole("env = { X = local.x }"),
		"module":   inRole("env = { X = module.x.y }"),
		"job":      inJob("") + "output \"o\" {\n  value = job.x.name\n}\n",
		"provider": inJob("provider = \"kubernetes\""),
		"import":   inJob("") + "import {\n  to = job.x\n  id = \"1\"\n}\n",
	}
	for name, user := range users {
		dir := writeTree(t, map[string]string{"job.hcl": user, "torn.hcl": "locals {\n  a = [1,\n}\n", "eltrain.vars": "x = 1\n"})
		wantOne(t, dir, "Invalid expression")
		dir = writeTree(t, map[string]string{"job.hcl": user})
		if cfg, diags := Load(dir, options()); !diags.HasErrors() {
			t.Errorf("%s: nothing is reported without the torn file either:\n%s", name, render(cfg, diags))
		}
	}
	for name, user := range map[string]string{
		"output":   use("m", "./m") + "output \"o\" {\n  value = module.m.x\n}\n",
		"variable": fmt.Sprintf("module \"m\" {\n  source = %q\n  x = 1\n}\n", "./m"),
		"import":   use("m", "./m") + "import {\n  to = module.m.job.x\n  id = \"1\"\n}\n",
	} {
		dir := writeTree(t, map[string]string{"job.hcl": user, "m/main.hcl": inJob(""), "m/torn.hcl": "locals {\n  a = [1,\n}\n"})
		t.Run(name+" of a module", func(t *testing.T) { wantOne(t, dir, "Invalid expression") })
	}
}
