// Package planfile keeps plans in files: what was read, what was seen and what is to be done, so that the plan that
// was looked at is the plan that runs. It must not know how plans are made or carried out.
//
// A file is one line of text, "eltrain plan VERSION SHA256 LENGTH", and behind it LENGTH bytes of gzipped JSON. The sum
// finds what was cut or edited. It is no signature: who may write the file decides what runs.
//
// Sensitive values are not in it: what plans are made from has seals in their places (see job.Sealer).
package planfile

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/internal/atomicfile"
	"github.com/eltrain/eltrain/lang"
)

// Version is that of the format.
const Version = 1

// Bounds of what is read: a plan over 100,000 slots is some 100 MB of JSON.
const (
	maxFile     = 256 << 20
	maxInflated = 2 << 30
	maxHeader   = 200
)

const magic = "eltrain plan"

// File is a saved plan.
type File struct {
	Eltrain string    `json:"eltrain_version"` // that made it
	Made    time.Time `json:"made"`
	// Lineage and Serial are the state's; a state that is not there yet has none. Home is where it is kept.
	Lineage string `json:"lineage,omitempty"`
	Serial  uint64 `json:"serial"`
	Home    string `json:"home"`
	// Place is the directory that its processes run in, if any run on this machine.
	Place string `json:"place,omitempty"`

	// The configuration as it was read. Its jobs are in Facts.
	Settings  lang.Settings `json:"settings"`
	Providers []Provider    `json:"providers,omitempty"`
	// Assignments are the -var-files, and the -vars that are not sensitive: sensitive values are read by them again.
	Assignments []lang.Assignment `json:"assignments,omitempty"`

	// Facts are the observation and the records that it was made from, and the plan.
	Facts view.PlanFacts `json:"facts"`
	// Expects is what the objects that the plan touches are like.
	Expects []Expectation `json:"expects,omitempty"`
}

// Provider is a provider's block, as JSON of its own type.
type Provider struct {
	Name   string          `json:"name"`
	Config json.RawMessage `json:"config"`
}

// Write replaces the plan at path, readable by its owner alone. Another file that is there is left as it is.
func (f *File) Write(path string) error {
	if err := checkReplaceable(path); err != nil {
		return fmt.Errorf("save the plan: %w", err)
	}
	var body bytes.Buffer
	z, err := gzip.NewWriterLevel(&body, gzip.BestSpeed)
	if err != nil {
		return fmt.Errorf("save the plan: %w", err)
	}
	if err := json.NewEncoder(z).Encode(f); err != nil {
		return fmt.Errorf("save the plan: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("save the plan: %w", err)
	}
	sum := sha256.Sum256(body.Bytes())
	header := fmt.Sprintf("%s %d %s %d\n", magic, Version, hex.EncodeToString(sum[:]), body.Len())
	err = Replace(path, append([]byte(header), body.Bytes()...))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("save the plan: the directory %s does not exist", filepath.Dir(path))
	case err != nil:
		return fmt.Errorf("save the plan: %w", err)
	}
	return nil
}

// checkReplaceable refuses to put a plan in the place of a file that is none: it may be the state. An empty file is as
// mktemp makes them.
func checkReplaceable(path string) error {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil // Replace reports what is no file
	}
	was, err := os.Open(path)
	if err != nil {
		return err
	}
	defer was.Close()
	begin := make([]byte, len(magic))
	if _, err := io.ReadFull(was, begin); err != nil || string(begin) != magic {
		return fmt.Errorf("%q exists and is not a saved plan, so it is left unchanged. Name another file, or remove that one", path)
	}
	return nil
}

// Replace writes a file whole or not at all, readable by its owner alone: half of it must not lie where a whole one was.
// A symbolic link stays one. What is no regular file, as a device or a pipe, is refused.
func Replace(path string, text []byte) error {
	path, err := atomicfile.Resolve(path)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, text, 0o600)
}

// Errors of a file that is not a whole plan of this version. Their texts say what to do.
var (
	ErrNoPlan = errors.New("it is not a saved plan: make one with eltrain plan -out=FILE")
	ErrCut    = errors.New("it is truncated. Copy it again, or plan again")
	ErrEdited = errors.New("it was changed after it was saved: its checksum is wrong. Plan again")
)

// VersionError is of a plan of another version.
type VersionError struct{ Made, This string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("it was made by %s, and this is %s: plan again with the eltrain that will apply it", e.Made, e.This)
}

// Read reads a plan that eltrain of the given version made.
func Read(path, eltrain string) (*File, error) {
	text, err := readRegular(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the file %s does not exist: make a plan with eltrain plan -out=%s", path, path)
	case err != nil:
		return nil, fmt.Errorf("read the plan %s: %w", path, err)
	}
	f, err := parse(text, eltrain)
	if err != nil {
		return nil, fmt.Errorf("the plan %s cannot be used: %w", path, err)
	}
	return f, nil
}

func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("it has %d bytes; a plan has at most %d", info.Size(), maxFile)
	}
	return os.ReadFile(path)
}

func parse(text []byte, eltrain string) (*File, error) {
	header, _, whole := bytes.Cut(text[:min(len(text), maxHeader)], []byte("\n"))
	if !whole {
		if bytes.HasPrefix(header, []byte(magic)) || bytes.HasPrefix([]byte(magic), header) && len(header) > 0 {
			return nil, ErrCut
		}
		return nil, ErrNoPlan
	}
	body := text[len(header)+1:]
	var version, length int
	var sum string
	if _, err := fmt.Sscanf(string(header), magic+" %d %s %d", &version, &sum, &length); err != nil {
		if _, err := fmt.Sscanf(string(header), magic+" %d", &version); err != nil || version == Version {
			return nil, ErrNoPlan
		}
	}
	if version != Version {
		return nil, &VersionError{fmt.Sprintf("an eltrain with plans of version %d", version), fmt.Sprintf("eltrain %s with version %d", eltrain, Version)}
	}
	if len(body) < length {
		return nil, ErrCut
	}
	if got := sha256.Sum256(body); len(body) > length || hex.EncodeToString(got[:]) != sum {
		return nil, ErrEdited
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, ErrEdited
	}
	inflated, err := io.ReadAll(io.LimitReader(z, maxInflated))
	if err != nil {
		return nil, ErrEdited
	}
	var made struct {
		Eltrain string `json:"eltrain_version"`
	}
	if err := json.Unmarshal(inflated, &made); err != nil {
		return nil, ErrEdited
	}
	if made.Eltrain != eltrain {
		return nil, &VersionError{"eltrain " + made.Eltrain, "eltrain " + eltrain}
	}
	f := new(File)
	if err := json.Unmarshal(inflated, f); err != nil {
		return nil, fmt.Errorf("decode it: %w", err)
	}
	return f, nil
}
