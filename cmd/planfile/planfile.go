// Package planfile saves plans in files, with the configuration and observation that they were made from, so that
// exactly the reviewed plan is applied. The file does not contain the plan itself: Read makes it again from the file's facts,
// so that what is shown cannot differ from what is applied. The package must not know how plans are carried out.
//
// A file is one line of text, "eltrain plan VERSION SHA256 LENGTH", followed by LENGTH bytes of gzipped JSON. The checksum
// detects truncation and edits. It is not a signature: whoever can write the file decides what runs.
//
// Sensitive values are not in it: seals replace them in the input of plans (see job.Sealer).
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
	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
)

// Version is the version of the format.
const Version = 2

// Limits for reading: a plan for 100,000 slots is some 100 MB of JSON.
const (
	maxFile     = 256 << 20
	maxInflated = 512 << 20
	maxHeader   = 200
)

const magic = "eltrain plan"

// File is a saved plan.
type File struct {
	Eltrain string    `json:"eltrain_version"` // version that made it
	Made    time.Time `json:"made"`
	// Lineage and Serial are the state's, empty if it did not exist yet. Home is where the state is stored.
	Lineage string `json:"lineage,omitempty"`
	Serial  uint64 `json:"serial"`
	Home    string `json:"home"`
	// Place is the directory that the processes run in, if any run on this machine.
	Place string `json:"place,omitempty"`

	// The configuration. Its jobs are in Facts.
	Settings  lang.Settings `json:"settings"`
	Providers []Provider    `json:"providers,omitempty"`
	// Assignments are the -var-files and the -vars that are not sensitive, from which sensitive values are read again.
	Assignments []lang.Assignment `json:"assignments,omitempty"`

	// Facts are what the plan is made from, and the plan, which is not stored.
	Facts view.PlanFacts `json:"facts"`
	// UIDs are those of the jobs that are new in the plan, by name.
	UIDs map[string]string `json:"uids,omitempty"`
}

// Provider is a provider's configuration, as JSON of the provider's own type.
type Provider struct {
	Name   string          `json:"name"`
	Config json.RawMessage `json:"config"`
}

// Write writes the plan to path, readable only by its owner. It replaces an earlier plan, but no other file.
func (f *File) Write(path string) error {
	if err := checkReplaceable(path); err != nil {
		return fmt.Errorf("save the plan: %w", err)
	}
	var body bytes.Buffer
	z, err := gzip.NewWriterLevel(&body, gzip.BestSpeed)
	if err != nil {
		return fmt.Errorf("save the plan: %w", err)
	}
	stored := *f
	stored.Facts.Plan = plan.Plan{}
	if err := json.NewEncoder(z).Encode(stored); err != nil {
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

// checkReplaceable returns an error if path is a file other than a plan: it may be the state. An empty file, as from
// mktemp, may be replaced.
func checkReplaceable(path string) error {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil // Replace reports what is not a regular file
	}
	was, err := regular.OpenNamed(path)
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

// Replace writes a file atomically, readable only by its owner. A symbolic link stays one and its target is replaced.
// Anything other than a regular file, such as a device or a pipe, is an error.
func Replace(path string, text []byte) error {
	path, err := atomicfile.Resolve(path)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, text, 0o600)
}

// inflate unpacks a plan. It unpacks it once before to count: what is refused takes no memory.
func inflate(body []byte) ([]byte, error) {
	size, err := inflateTo(io.Discard, body)
	if err != nil {
		return nil, err
	}
	text := bytes.NewBuffer(make([]byte, 0, size))
	_, err = inflateTo(text, body)
	return text.Bytes(), err
}

// inflateTo returns how many bytes it wrote.
func inflateTo(w io.Writer, body []byte) (int64, error) {
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return 0, ErrEdited
	}
	n, err := io.Copy(w, io.LimitReader(z, maxInflated+1))
	switch {
	case err != nil:
		return 0, ErrEdited
	case n > maxInflated:
		return 0, ErrLarge
	}
	return n, nil
}

// Errors of a file that is not a complete plan. Their texts say what to do.
var (
	ErrNoPlan = errors.New("it is not a saved plan: make one with eltrain plan -out=FILE")
	ErrCut    = errors.New("it is truncated. Copy it again, or plan again")
	ErrEdited = errors.New("it was changed after it was saved: its checksum is wrong. Plan again")
	ErrLarge  = fmt.Errorf("it has more than %s unpacked, more than any plan. Plan again", job.Bytes(maxInflated))
)

// VersionError is the error of a plan of another version.
type VersionError struct{ Made, This string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("it was made by %s, and this is %s: plan again with the eltrain that will apply it", e.Made, e.This)
}

// Read reads a plan that was made by the given version of eltrain.
func Read(path, eltrain string) (*File, error) {
	text, err := regular.ReadNamed(path, maxFile)
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
		return nil, &VersionError{fmt.Sprintf("an eltrain with plan format %d", version), fmt.Sprintf("eltrain %s with format %d", eltrain, Version)}
	}
	if len(body) < length {
		return nil, ErrCut
	}
	if got := sha256.Sum256(body); len(body) > length || hex.EncodeToString(got[:]) != sum {
		return nil, ErrEdited
	}
	inflated, err := inflate(body)
	if err != nil {
		return nil, err
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
	if err := f.checkInput(); err != nil {
		return nil, fmt.Errorf("%w. Plan again", err)
	}
	f.Facts.Input.NewUID = func(name string) string { return f.UIDs[name] }
	f.Facts.Plan = plan.Make(f.Facts.Input)
	if err := f.Facts.Plan.Records.Check(); err != nil { // new jobs have UIDs of their own
		return nil, fmt.Errorf("%w. Plan again", err)
	}
	return f, nil
}
