// Package checkpoint finds the checkpoints in a directory: which are whole, of which step, and which are torn. What frameworks write is a
// table, Layouts. It knows a file system only as fs.FS, and neither the clock nor who wants to know.
//
// A file system may be on a server that never answers: whoever calls bounds the time.
package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eltrain/eltrain/job"
)

const (
	// Still is how long a file that was written in place stays the same before it counts as complete, if its content does not tell.
	// A file that was renamed into place is complete at once.
	Still = 100 * time.Millisecond
	// settled is the same for a directory without any mark: a program that writes several files pauses between them.
	settled = 10 * time.Second

	// A look is bounded: of entries in the directory, of checkpoints that are examined (those of the highest steps), and of files in
	// one of them whose size counts.
	maxEntries  = 1 << 14
	maxExamined = 32
	maxFiles    = 1 << 14
	maxDepth    = 4
	// Of a checkpoint that is not whole, fewer files are looked at: each time, while it is being written.
	maxUnfinished = 4
	maxGrowing    = 256

	maxPointer = 1 << 10
	maxState   = 64 << 10 // of a JSON file, until the step; it is before what grows
	chunk      = 256
)

// Checkpoint is what was found. Its Path has slashes and begins in the directory that was looked at. Its Size and Written are known of
// files, of the newest that is whole, and of some newer ones; Written is else the time of what marks it.
type Checkpoint struct {
	job.FoundCheckpoint
	// Mark is what was written last if it is whole: its mark, the pointer that names it, or itself.
	Mark    string
	Marked  time.Time
	Renamed bool // the mark was moved into place

	MarkSize int64
}

// Look returns the checkpoints in a directory, the newest first: those of later steps, and of those without a known step what was
// written later. known is what an earlier look has returned, so that what has not changed is not read again.
func Look(fsys fs.FS, now time.Time, known []Checkpoint) ([]Checkpoint, error) {
	l := look{fsys: fsys, now: now, known: known}
	return l.all(nil)
}

// At returns the checkpoints of one step.
func At(fsys fs.FS, now time.Time, step int64) ([]Checkpoint, error) {
	l := look{fsys: fsys, now: now}
	return l.all(&step)
}

// Newest returns the first that is whole; nil if there is none.
func Newest(found []Checkpoint) *Checkpoint {
	if i := slices.IndexFunc(found, func(c Checkpoint) bool { return c.Whole() }); i >= 0 {
		return &found[i]
	}
	return nil
}

// look is one look at a directory.
type look struct {
	fsys   fs.FS
	now    time.Time
	known  []Checkpoint
	points map[string]*pointed
}

// candidate is an entry that may be a checkpoint.
type candidate struct {
	name    string
	dir     bool
	layouts []int
	step    int64 // by its name
}

func (l *look) all(only *int64) ([]Checkpoint, error) {
	l.points = map[string]*pointed{}
	candidates, unfinished, shards, err := l.list()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(candidates, func(a, b candidate) int { return cmp.Or(cmp.Compare(b.step, a.step), strings.Compare(a.name, b.name)) })
	var found []Checkpoint
	examined := 0
	for _, c := range candidates {
		// Of a known step nothing but a file in it may say another.
		if only != nil && c.step != *only && c.step != 0 {
			continue
		}
		if examined++; examined > maxExamined {
			break
		}
		if checkpoint, is := l.examine(c); is && (only == nil || checkpoint.Step == *only) {
			found = append(found, checkpoint)
		}
	}
	if shards { // the directory itself is one
		dcp := slices.IndexFunc(Layouts, func(l Layout) bool { return l.Name == "dcp" })
		if c, is := l.examine(candidate{name: ".", dir: true, layouts: []int{dcp}}); is && (only == nil || c.Step == *only) {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		if c, is := l.elsewhere(); is && (only == nil || c.Step == *only) {
			found = append(found, c)
		}
	}
	slices.SortStableFunc(found, func(a, b Checkpoint) int { return cmp.Or(cmp.Compare(b.Step, a.Step), b.Written.Compare(a.Written)) })
	if only != nil {
		return found, nil
	}
	l.measure(found)
	return append(found, unfinished...), nil
}

// list reads the directory. shards reports whether it is itself a distributed checkpoint.
func (l *look) list() (candidates []candidate, unfinished []Checkpoint, shards bool, err error) {
	dir, err := l.fsys.Open(".")
	if err != nil {
		return nil, nil, false, err
	}
	defer dir.Close()
	reader, ok := dir.(fs.ReadDirFile)
	if !ok {
		return nil, nil, false, errors.New("not a directory")
	}
	var others []candidate
	for total := 0; total < maxEntries; {
		entries, err := reader.ReadDir(chunk)
		for _, e := range entries {
			switch c, is := l.candidate(e); {
			case isTemporary(e.Name()):
				if len(unfinished) < maxUnfinished {
					unfinished = append(unfinished, l.unfinished(e.Name()))
				}
			case strings.HasSuffix(e.Name(), ".distcp"):
				shards = true
			case !is:
			case Layouts[c.layouts[0]].Alone:
				others = append(others, c)
			default:
				candidates = append(candidates, c)
			}
		}
		total += len(entries)
		if errors.Is(err, io.EOF) || len(entries) == 0 && err == nil {
			break
		}
		if err != nil {
			return nil, nil, false, err
		}
	}
	if len(candidates) == 0 && !shards {
		candidates = others
	}
	if slices.ContainsFunc(candidates, func(c candidate) bool { return c.step > 0 }) { // then a file without a step is the best, or the last model
		candidates = slices.DeleteFunc(candidates, func(c candidate) bool { return c.step == 0 && Layouts[c.layouts[0]].Name == "file" })
	}
	return candidates, unfinished, shards, nil
}

// isTemporary reports whether something is still being written, by its name.
func isTemporary(name string) bool {
	return strings.Contains(name, ".tmp") || strings.HasPrefix(name, "tmp-checkpoint-") // of older Hugging Face Trainers
}

// candidate returns the layouts that an entry may be of by its name.
func (l *look) candidate(e fs.DirEntry) (candidate, bool) {
	c := candidate{name: e.Name(), dir: e.IsDir()}
	if slices.Contains(pointers, c.name) {
		return c, false
	}
	if e.Type()&fs.ModeSymlink != 0 {
		info, err := fs.Stat(l.fsys, c.name)
		if err != nil {
			return c, false
		}
		c.dir = info.IsDir()
	} else if !c.dir && !e.Type().IsRegular() {
		return c, false
	}
	for i, re := range compiled() {
		layout := &Layouts[i]
		if layout.Dir != c.dir || layout.Alone && (len(c.layouts) > 0 || besides.MatchString(c.name)) {
			continue
		}
		m := re.FindStringSubmatch(c.name)
		if m == nil {
			continue
		}
		if group := re.SubexpIndex("step"); len(c.layouts) == 0 {
			c.step = stepOf(c.name)
			if group > 0 && m[group] != "" {
				c.step = number(m[group])
			}
		}
		c.layouts = append(c.layouts, i)
	}
	return c, len(c.layouts) > 0
}

// examine returns the checkpoint that an entry is; false if it is none, or is gone.
func (l *look) examine(c candidate) (Checkpoint, bool) {
	out := Checkpoint{FoundCheckpoint: job.FoundCheckpoint{Path: c.name, Step: c.step}}
	info, err := fs.Stat(l.fsys, c.name)
	if errors.Is(err, fs.ErrNotExist) {
		return out, false
	}
	out.Layout = Layouts[c.layouts[0]].Name
	if err != nil {
		out.Flaw = job.Flaw{Code: job.Unreadable}
		return out, true
	}
	out.mark(c.name, info)
	if !c.dir {
		out.Size = info.Size()
		out.Flaw = l.flawOfFile(&out)
		return out, true
	}
	for _, i := range c.layouts {
		layout := &Layouts[i]
		if !l.has(c.name, layout) {
			continue
		}
		out.Layout = layout.Name
		l.examineDirectory(&out, layout, info)
		return out, true
	}
	return out, false
}

// mark notes what was written last.
func (c *Checkpoint) mark(name string, info fs.FileInfo) {
	c.Mark, c.Marked, c.Renamed, c.MarkSize, c.Written = name, info.ModTime(), renamed(info) && (info.IsDir() || info.Size() > 0), info.Size(), info.ModTime()
}

// before returns what an earlier look found at a path; nil if it found nothing, or its mark has changed since.
func (l *look) before(c *Checkpoint) *Checkpoint {
	i := slices.IndexFunc(l.known, func(k Checkpoint) bool { return k.Path == c.Path })
	if i < 0 {
		return nil
	}
	if k := &l.known[i]; k.Mark == c.Mark && k.Marked.Equal(c.Marked) && k.MarkSize == c.MarkSize {
		return k
	}
	return nil
}

// flawOfFile is why a checkpoint that is a file is not whole.
func (l *look) flawOfFile(c *Checkpoint) job.Flaw {
	if c.Size == 0 {
		return job.Flaw{Code: job.Empty}
	}
	if k := l.before(c); k != nil && k.Flaw.Code != job.Changing {
		return k.Flaw
	}
	archive, whole, err := l.archive(c.Path, c.Size)
	switch {
	case err != nil:
		return job.Flaw{Code: job.Unreadable}
	case archive && !whole:
		return job.Flaw{Code: job.Cut, File: c.Path}
	case !archive && !c.Renamed && l.now.Sub(c.Marked).Abs() < Still:
		return job.Flaw{Code: job.Changing}
	}
	return job.Flaw{}
}

// archive reports whether a file is a ZIP archive, as torch.save writes, and whether its directory is there, which comes last.
func (l *look) archive(name string, size int64) (archive, whole bool, err error) {
	const begin, end = "PK\x03\x04", "PK\x05\x06"
	const tail = 22 // of an archive without a comment
	f, err := l.fsys.Open(name)
	if err != nil {
		return false, false, err
	}
	defer f.Close()
	var first [len(begin)]byte
	if _, err := io.ReadFull(f, first[:]); err != nil || string(first[:]) != begin {
		return false, false, nil
	}
	at, ok := f.(io.ReaderAt)
	if !ok || size < tail {
		return true, !ok, nil
	}
	var last [len(end)]byte
	if _, err := at.ReadAt(last[:], size-tail); err != nil {
		return true, false, nil // it has become shorter
	}
	return true, string(last[:]) == end, nil
}

// has reports whether a directory has the files of a layout.
func (l *look) has(dir string, layout *Layout) bool {
	if len(layout.Has) == 0 {
		return true
	}
	for _, name := range layout.Has {
		if !strings.Contains(name, "*") {
			if _, err := fs.Stat(l.fsys, path.Join(dir, name)); err == nil {
				return true
			}
		}
	}
	for _, name := range l.names(dir) {
		for _, pattern := range layout.Has {
			if matches, _ := path.Match(pattern, name); matches {
				return true
			}
		}
	}
	return false
}

// names are some names in a directory.
func (l *look) names(dir string) (names []string) {
	f, err := l.fsys.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	if reader, ok := f.(fs.ReadDirFile); ok {
		entries, _ := reader.ReadDir(chunk)
		for _, e := range entries {
			names = append(names, e.Name())
		}
	}
	return names
}

// examineDirectory finds out whether a directory is a whole checkpoint of its layout.
func (l *look) examineDirectory(c *Checkpoint, layout *Layout, info fs.FileInfo) {
	if layout.Unless != "" {
		if _, err := fs.Stat(l.fsys, path.Join(c.Path, layout.Unless)); !errors.Is(err, fs.ErrNotExist) {
			c.Flaw = job.Flaw{Code: job.Marked, File: layout.Unless}
			l.readStep(c, layout)
			return
		}
	}
	switch {
	case len(layout.Marks) > 0:
		l.findMark(c, layout)
	case layout.Pointer != "":
		if p := l.pointer(layout.Pointer); p != nil {
			c.Flaw = p.flawOf(c)
			c.pointedBy(p)
			return
		}
		if !layout.Optional {
			c.Flaw = job.Flaw{Code: job.Unmarked, File: layout.Pointer}
			return
		}
		fallthrough
	default:
		l.settle(c, info)
	}
	l.readStep(c, layout)
}

// findMark looks for the file in a directory that is written last.
func (l *look) findMark(c *Checkpoint, layout *Layout) {
	c.Flaw = job.Flaw{Code: job.Unmarked, File: layout.Marks[0]}
	for _, name := range layout.Marks {
		info, err := fs.Stat(l.fsys, path.Join(c.Path, name))
		if err == nil && info.Size() > 0 {
			c.mark(path.Join(c.Path, name), info)
			c.Flaw = job.Flaw{}
			return
		}
	}
}

// settle takes a directory without any mark as whole once nothing in it changes.
func (l *look) settle(c *Checkpoint, info fs.FileInfo) {
	if k := l.before(c); k != nil && k.Whole() {
		return
	}
	total, newest := l.sum(c.Path, maxGrowing)
	switch {
	case total == 0:
		c.Flaw = job.Flaw{Code: job.Empty}
	case !c.Renamed && (l.now.Sub(newest).Abs() < settled || l.now.Sub(info.ModTime()).Abs() < settled):
		c.Flaw = job.Flaw{Code: job.Changing}
	}
}

// readStep reads the step of a checkpoint from the file that has it. One whose file is not complete is not whole.
func (l *look) readStep(c *Checkpoint, layout *Layout) {
	if layout.Step == "" {
		return
	}
	if k := l.before(c); k != nil && k.Whole() && c.Whole() {
		c.Step = k.Step
		return
	}
	f, err := l.fsys.Open(path.Join(c.Path, layout.Step))
	if err != nil {
		return
	}
	defer f.Close()
	if step, ok := globalStep(io.LimitReader(f, maxState)); ok {
		c.Step = step
	}
	if at, ok := f.(io.ReaderAt); ok && c.Whole() {
		tail := make([]byte, min(c.MarkSize, 16))
		at.ReadAt(tail, c.MarkSize-int64(len(tail)))
		if !bytes.HasSuffix(bytes.TrimSpace(tail), []byte("}")) {
			c.Flaw = job.Flaw{Code: job.Cut, File: layout.Step}
		}
	}
}

// globalStep finds the field global_step of a JSON object.
func globalStep(r io.Reader) (int64, bool) {
	d := json.NewDecoder(r)
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return 0, false
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return 0, false
		}
		if key == "global_step" {
			value, _ := d.Token()
			n, is := value.(json.Number)
			step, err := strconv.ParseInt(string(n), 10, 64)
			return step, is && err == nil && step >= 0
		}
		var skipped json.RawMessage
		if err := d.Decode(&skipped); err != nil {
			return 0, false
		}
	}
	return 0, false
}

// pointed is what a pointer names.
type pointed struct {
	file string
	info fs.FileInfo
	name string // "" if it is empty
	step int64  // 0 if it names none
}

// pointer reads a pointer; nil if there is none.
func (l *look) pointer(name string) *pointed {
	if p, known := l.points[name]; known {
		return p
	}
	l.points[name] = nil
	info, err := fs.Lstat(l.fsys, name)
	if err != nil {
		return nil
	}
	p := &pointed{file: name, info: info}
	if info.Mode()&fs.ModeSymlink != 0 {
		p.name, _ = fs.ReadLink(l.fsys, name)
	} else if f, err := l.fsys.Open(name); err == nil {
		text, _ := io.ReadAll(io.LimitReader(f, maxPointer))
		f.Close()
		p.name = string(text)
	}
	p.name = filepath.ToSlash(strings.TrimSpace(p.name))
	if p.name != "" {
		p.name = path.Base(p.name)
		p.step = stepOf(p.name)
	}
	l.points[name] = p
	return p
}

// flawOf is why a checkpoint beside a pointer is not whole.
func (p *pointed) flawOf(c *Checkpoint) job.Flaw {
	if c.Path == p.name || p.step > 0 && c.Step > 0 && c.Step <= p.step {
		return job.Flaw{}
	}
	if p.name == "" {
		return job.Flaw{Code: job.Unmarked, File: p.file}
	}
	return job.Flaw{Code: job.NotNamed, File: p.file}
}

// pointedBy has the pointer as what was written last, if it names the checkpoint.
func (c *Checkpoint) pointedBy(p *pointed) {
	if c.Path == p.name || p.step > 0 && c.Step == p.step {
		c.mark(p.file, p.info)
	}
}

// elsewhere is the checkpoint that a pointer names, where none is in the directory.
func (l *look) elsewhere() (Checkpoint, bool) {
	for _, name := range pointers {
		if p := l.pointer(name); p != nil {
			c := Checkpoint{FoundCheckpoint: job.FoundCheckpoint{Path: p.file, Layout: Pointer, Step: p.step}}
			c.mark(p.file, p.info)
			if p.name == "" {
				c.Flaw = job.Flaw{Code: job.Empty}
			}
			return c, true
		}
	}
	return Checkpoint{}, false
}

// unfinished is something with a temporary name.
func (l *look) unfinished(name string) Checkpoint {
	c := Checkpoint{FoundCheckpoint: job.FoundCheckpoint{Path: name, Layout: Temporary, Flaw: job.Flaw{Code: job.Unfinished}}}
	c.Size, c.Written = l.sum(name, maxGrowing)
	return c
}

// measure finds the size of the newest that is whole, and of newer ones that may be growing.
func (l *look) measure(found []Checkpoint) {
	growing := 0
	for i := range found {
		c := &found[i]
		whole := c.Whole()
		k := l.before(c)
		switch {
		case c.Size > 0: // a file
		case whole && k != nil && k.Whole() && k.Size > 0:
			c.Size, c.Written = k.Size, k.Written
		case whole:
			if size, written := l.sum(c.Path, maxFiles); size > 0 {
				c.Size = size
				if written.After(c.Written) {
					c.Written = written
				}
			}
		case growing < maxUnfinished:
			growing++
			if size, written := l.sum(c.Path, maxGrowing); size > 0 {
				c.Size, c.Written = size, written
			}
		}
		if whole {
			return
		}
	}
}

// sum adds the sizes of some files in a directory, or of a file, and finds when the newest was written.
func (l *look) sum(root string, most int) (size int64, newest time.Time) {
	files := 0
	fs.WalkDir(l.fsys, root, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // it is gone, or not ours
		}
		if e.IsDir() {
			if root != name && strings.Count(strings.TrimPrefix(name, root), "/") >= maxDepth {
				return fs.SkipDir
			}
			return nil
		}
		if files++; files > most {
			return fs.SkipAll
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			size += info.Size()
			if info.ModTime().After(newest) {
				newest = info.ModTime()
			}
		}
		return nil
	})
	return size, newest
}

var (
	namedStep = regexp.MustCompile(`(?i)(?:step|iter)[^0-9a-z]*0*([0-9]+)`)
	digits    = regexp.MustCompile(`[0-9]+`)
)

// stepOf is the step in a name: the number after step or iter, else the last number before the extension. 0 if there is none, or if it
// counts epochs.
func stepOf(name string) int64 {
	if m := namedStep.FindStringSubmatch(name); m != nil {
		return number(m[1])
	}
	if strings.Contains(strings.ToLower(name), "epoch") {
		return 0
	}
	if ext := path.Ext(name); strings.Trim(ext, ".0123456789") != "" {
		name = strings.TrimSuffix(name, ext)
	}
	if all := digits.FindAllString(name, -1); len(all) > 0 {
		return number(all[len(all)-1])
	}
	return 0
}

// number parses a step; 0 if it is too large.
func number(text string) int64 {
	step, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return step
}
