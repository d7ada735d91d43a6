package site

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestLineOfAProcessThatWasKilledAmidItIsPassedOver(t *testing.T) {
	dir := t.TempDir()
	text := `{"ev": "step", "step": 10, "loss": 2.5}
{"ev": "ckp{"ev": "start", "step": 10, "world": 4}
{"ev": "step", "step": 20, "loss": 1.5}
{"ev": "st`
	if err := os.WriteFile(filepath.Join(dir, EventsFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []Event{{Ev: "step", Step: 10, Loss: 2.5}, {Ev: "start", Step: 10, World: 4}, {Ev: "step", Step: 20, Loss: 1.5}}
	if got := Events(t, dir); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
