// Package logmarks keeps, in a file beside a slot's log, when and by which incarnation its parts were written. The log itself has
// no times: it is what the processes print.
package logmarks

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/internal/regular"
)

// Mark says who began to write at an offset of the log, and when.
type Mark struct {
	Time        time.Time
	Offset      int64
	Incarnation int
	UID         string // of the job
}

// What follows a mark was written within span of it. Marks that are closer than that are at least dense bytes and second apart.
const (
	span   = 10 * time.Second
	second = time.Second
	dense  = 4 << 10
)

// Ext is the extension of a log's marks, after that of the log.
const Ext = ".marks"

// Writer appends an incarnation's marks. Failures are ignored: without marks less can be selected from the log, which is complete.
type Writer struct {
	log  string
	by   Mark
	f    *os.File // nil if it cannot be written
	last Mark
}

// Begin returns a writer of marks beside a log.
func Begin(log string, by Mark) *Writer {
	w := &Writer{log: log, by: by}
	w.open()
	return w
}

func (w *Writer) open() {
	w.f, _ = regular.Open(w.log+Ext, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	w.last = Mark{}
}

// Write appends a mark if one is due before a write at an offset of the log.
func (w *Writer) Write(now time.Time, offset int64) {
	passed := now.Sub(w.last.Time)
	if w.f == nil || passed < second || passed < span && offset-w.last.Offset < dense {
		return
	}
	begin := ""
	if w.last.Time.IsZero() {
		begin = "\n" // a killed writer may have left part of a line
	}
	w.last = Mark{Time: now, Offset: offset}
	fmt.Fprintf(w.f, "%s%s %d %d %s\n", begin, now.UTC().Format(time.RFC3339Nano), offset, w.by.Incarnation, w.by.UID)
}

// Rotate moves the marks to those of the rotated log.
func (w *Writer) Rotate(to string) {
	w.Close()
	os.Rename(w.log+Ext, to+Ext)
	w.open()
}

// Close ends writing.
func (w *Writer) Close() {
	if w.f != nil {
		w.f.Close()
	}
}

// Read returns a log's marks in order; none if it has none.
func Read(log string) ([]Mark, error) {
	f, err := regular.Open(log+Ext, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var marks []Mark
	for lines := bufio.NewScanner(f); ; {
		if !lines.Scan() {
			return marks, lines.Err()
		}
		m, ok := parse(lines.Text())
		if !ok {
			continue
		}
		for len(marks) > 0 && marks[len(marks)-1].Offset > m.Offset { // the log was truncated
			marks = marks[:len(marks)-1]
		}
		marks = append(marks, m)
	}
}

func parse(line string) (m Mark, ok bool) {
	at, rest, _ := strings.Cut(line, " ")
	var err error
	if m.Time, err = time.Parse(time.RFC3339Nano, at); err != nil {
		return m, false
	}
	n, err := fmt.Sscan(rest, &m.Offset, &m.Incarnation, &m.UID)
	return m, err == nil && n == 3 && m.Offset >= 0
}

// Since returns where what was written from a time on begins, at most span too early; size, the log's, if there is nothing.
// Without marks that is unknown, and the whole log counts.
func Since(marks []Mark, from time.Time, size int64) int64 {
	if len(marks) == 0 {
		return 0
	}
	for i, m := range marks {
		until := m.Time.Add(span)
		if i+1 < len(marks) && marks[i+1].Time.Before(until) {
			until = marks[i+1].Time
		}
		if until.After(from) {
			return m.Offset
		}
	}
	return size
}

// Of returns where the output of a job begins; size, the log's, if there is none yet.
func Of(marks []Mark, uid string, size int64) int64 {
	if i := slices.IndexFunc(marks, func(m Mark) bool { return m.UID == uid }); i >= 0 {
		return marks[i].Offset
	}
	return size
}

// Previous returns where the output of the newest incarnation before another one begins and ends, and whether there is any. An
// empty UID means the job that wrote last.
func Previous(marks []Mark, uid string, before int, size int64) (from, to int64, found bool) {
	if uid == "" && len(marks) > 0 {
		uid = marks[len(marks)-1].UID
	}
	newest := 0
	for i, m := range marks {
		if m.UID != uid || m.Incarnation >= before || m.Incarnation < newest {
			continue
		}
		if m.Incarnation > newest {
			newest, from, found = m.Incarnation, m.Offset, true
		}
		to = size
		if i+1 < len(marks) {
			to = marks[i+1].Offset
		}
	}
	return from, to, found
}
