package shells

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/eltrain/eltrain/internal/filetest"
)

func TestWords(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []string
	}{
		{"", nil},
		{"  -a   -b=c\t", []string{"-a", "-b=c"}},
		{`-var 'x=a b' "q=\"z\""`, []string{"-var", "x=a b", `q="z"`}},
		{`a\ b ''`, []string{"a b", ""}},
		{`'a\b'`, []string{`a\b`}},
	} {
		got, open := Words(c.in)
		if open || !slices.Equal(got, c.want) {
			t.Errorf("%q splits to %q, %t; want %q", c.in, got, open, c.want)
		}
	}
	for _, bad := range []string{`'a`, `"a`, `a\`} {
		if _, open := Words(bad); !open {
			t.Errorf("%q has an end", bad)
		}
	}
}

// What is escaped is one word again.
func TestEscaped(t *testing.T) {
	for _, word := range []string{"plain", `my $1.vars`, `a'b"c\d`, "job.a[0]", "~x;y|z&(*)?<>`#!{}"} {
		if words, open := Words(Escaped(word)); open || !slices.Equal(words, []string{word}) {
			t.Errorf("%q is escaped to %q, which is %q", word, Escaped(word), words)
		}
	}
}

func TestPaths(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"nodes/rack.txt", "nodes/.hidden", "job.hcl", "new.hcl"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		filetest.Put(t, name, "")
	}
	for begun, want := range map[string]struct{ files, directories []string }{
		"":         {[]string{"job.hcl", "new.hcl", "nodes/"}, []string{"nodes/"}},
		"n":        {[]string{"new.hcl", "nodes/"}, []string{"nodes/"}},
		"no":       {[]string{"nodes/", "nodes/rack.txt"}, []string{"nodes/"}}, // a shell adds a space after the only candidate
		"nodes/.h": {[]string{"nodes/.hidden"}, nil},
		"gone/":    {},
	} {
		files, directories := Files(begun), Directories(begun)
		for _, got := range [][]string{files, directories} {
			slices.Sort(got)
		}
		if begun == "" { // the entries of an only directory follow
			directories = slices.DeleteFunc(directories, func(path string) bool { return path != "nodes/" })
		}
		if !slices.Equal(files, want.files) || !slices.Equal(directories, want.directories) {
			t.Errorf("%q: files %q, directories %q, want %q", begun, files, directories, want)
		}
	}
}
