package file

import (
	"path/filepath"
	"testing"

	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/statetest"
)

// BenchmarkWrite10000Slots is a whole durable write of a large job, including the disk.
func BenchmarkWrite10000Slots(b *testing.B) {
	s, err := New(filepath.Join(b.TempDir(), "eltrain.state"), Options{})
	if err != nil {
		b.Fatal(err)
	}
	l, err := s.Lock(b.Context(), state.LockInfo{}, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Unlock(b.Context())
	records := statetest.Records(10_000)
	var st state.State
	for b.Loop() {
		st = st.Next(records)
		if err := s.Write(b.Context(), st, l); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEncode10000Slots is the part of a write without the disk.
func BenchmarkEncode10000Slots(b *testing.B) {
	st := state.State{}.Next(statetest.Records(10_000))
	for b.Loop() {
		content, err := encode(st)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(content)))
	}
}

func BenchmarkRead10000Slots(b *testing.B) {
	content, err := encode(state.State{Version: state.Version}.Next(statetest.Records(10_000)))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := decode(content); err != nil {
			b.Fatal(err)
		}
	}
}
