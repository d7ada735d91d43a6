// Package sourcefiles finds and reads the files of a training program: those in a directory that patterns match. It reads
// regular files only, and nothing outside of the directory, wherever links lead.
package sourcefiles

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/bmatcuk/doublestar/v4"
)

// maxEntries bounds the directory entries that one pattern looks at.
const maxEntries = 20_000

// Found is what a pattern matches.
type Found struct {
	// Files are paths relative to the directory, sorted, with slashes.
	Files []string
	// Looked are the files and directories that this depends on; directories end in a slash.
	Looked []string
}

// CheckPattern returns an error for a pattern that can match nothing in the directory.
func CheckPattern(pattern string) error {
	switch parts := strings.Split(pattern, "/"); {
	case pattern == "":
		return errors.New("the pattern is empty")
	case strings.HasPrefix(pattern, "/"):
		return fmt.Errorf("%q is an absolute path: write one relative to the directory of the .hcl file", pattern)
	case slices.Contains(parts, ".."):
		return fmt.Errorf("%q leads out of the directory of the .hcl file: source names files in it and below", pattern)
	case parts[len(parts)-1] == "":
		return fmt.Errorf("%q names a directory: write %q for all files below it", pattern, strings.TrimRight(pattern, "/")+"/**")
	case slices.Contains(parts, "") || slices.Contains(parts, "."):
		return fmt.Errorf("%q has an empty part, or the part \".\": leave it out", pattern)
	case !doublestar.ValidatePattern(pattern):
		return fmt.Errorf("%q is not a pattern: a bracket or brace is not closed", pattern)
	}
	return nil
}

// Find returns the files in dir that match a pattern, in which ** is any number of directories. Wildcards match no names that
// begin with a dot, no Python bytecode and no names that skip reports, and ** follows no links.
func Find(dir, pattern string, skip func(name string) bool) (found Found, err error) {
	pattern = strings.TrimPrefix(pattern, "./")
	if err := CheckPattern(pattern); err != nil {
		return found, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return found, err
	}
	defer root.Close()
	seen := &view{FS: root.FS(), skip: func(name string) bool { return name == "__pycache__" || path.Ext(name) == ".pyc" || skip(name) }}
	err = doublestar.GlobWalk(seen, pattern, func(name string, e fs.DirEntry) error {
		if e.Type()&fs.ModeSymlink != 0 {
			info, err := root.Stat(name)
			if err != nil {
				return err
			}
			if info.IsDir() {
				return nil // not followed
			}
		}
		found.Files = append(found.Files, name)
		return nil
	}, doublestar.WithFilesOnly(), doublestar.WithNoFollow(), doublestar.WithNoHidden(), doublestar.WithFailOnIOErrors())
	slices.Sort(found.Files)
	found.Files = slices.Compact(found.Files)
	slices.Sort(seen.looked)
	found.Looked = slices.Compact(append(seen.looked, found.Files...))
	if err == nil && len(found.Files) == 0 {
		err = unmatched(root, pattern)
	}
	return found, err
}

func unmatched(root *os.Root, pattern string) error {
	if info, err := root.Stat(pattern); err == nil && info.IsDir() {
		return fmt.Errorf("%q is a directory: write %q for all files below it", pattern, pattern+"/**")
	}
	return fmt.Errorf("no file matches %q; patterns are relative to the directory of the .hcl file", pattern)
}

// view is the directory as wildcards see it. It notes what they look at.
type view struct {
	fs.FS
	skip    func(name string) bool
	looked  []string
	entries int
}

// ReadDir lists a directory.
func (v *view) ReadDir(name string) ([]fs.DirEntry, error) {
	v.looked = append(v.looked, name+"/")
	all, err := fs.ReadDir(v.FS, name)
	if v.entries += len(all); v.entries > maxEntries {
		return nil, fmt.Errorf("more than %d files and directories have to be looked at: name the directories that the program is in", maxEntries)
	}
	return slices.DeleteFunc(all, func(e fs.DirEntry) bool { return v.skip(e.Name()) }), err
}

// Stat describes a file that a pattern names without wildcards.
func (v *view) Stat(name string) (fs.FileInfo, error) {
	v.looked = append(v.looked, name)
	return fs.Stat(v.FS, name)
}

// Read reads a file of dir, of at most limit bytes, and reports whether its owner may execute it.
func Read(dir, name string, limit int64) (content []byte, executable bool, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, false, err
	}
	defer root.Close()
	// Without waiting: it may be a named pipe by now.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	if !info.Mode().IsRegular() {
		return nil, false, fmt.Errorf("%s is not a regular file", name)
	}
	content, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = ErrTooLarge
	}
	return content, info.Mode()&0o100 != 0, err
}

// ErrTooLarge is returned by Read for a file above its limit.
var ErrTooLarge = errors.New("the file is too large")

// Digest identifies the content of a file, and whether it is executable: "…" or "… executable", with its SHA-256 in hex.
func Digest(content []byte, executable bool) string {
	sum := sha256.Sum256(content)
	text := hex.EncodeToString(sum[:])
	if executable {
		text += Executable
	}
	return text
}

// Executable ends the digest of an executable file.
const Executable = " executable"
