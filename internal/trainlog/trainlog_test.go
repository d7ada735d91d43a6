package trainlog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

type event struct {
	Ev   string `json:"ev"`
	Step int    `json:"step"`
}

func TestReadLeavesOutWhatIsNotWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Read[event](path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	write(`{"ev": "start", "step": 0}
{"ev": "ckp{"ev": "error", "step": 1, "msg": "{\"ev\": "}
{{"ev": "st{"ev": "step", "step": 2}
{"ev": "step"`)
	got, err := Read[event](path)
	if want := []event{{"start", 0}, {"error", 1}, {"step", 2}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	write("{\"ev\": \"start\"}\nTraceback\n")
	if _, err := Read[event](path); err == nil || !strings.Contains(err.Error(), "Traceback") {
		t.Errorf("of another line: %v", err)
	}
}
