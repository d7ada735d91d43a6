package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/eltrain/eltrain/job"
)

func reader(texts map[int]string) Open {
	return func(_ context.Context, slot job.Address) (io.ReadCloser, error) {
		text, ok := texts[slot.Index]
		if !ok {
			return nil, fmt.Errorf("open the log of %s: %w", slot, fs.ErrNotExist)
		}
		return io.NopCloser(strings.NewReader(text)), nil
	}
}

func TestPrint(t *testing.T) {
	sources := []Source{
		{Slot: job.Address{Role: "w"}, Prefix: "w[0] "},
		{Slot: job.Address{Role: "w", Index: 1}, Prefix: "w[1] ", Only: "[rank 1] "},
	}
	long := strings.Repeat("x", maxLine+10)
	var out bytes.Buffer
	mute, err := Print(context.Background(), &out, append(sources, Source{Slot: job.Address{Role: "w", Index: 2}}), reader(map[int]string{0: "one\n" + long + "\nlast", 1: "[rank 0] no\n[rank 1] yes\n"}))
	if err != nil || len(mute) != 1 || mute[0].Index != 2 {
		t.Fatalf("without output are %v, %v", mute, err)
	}
	want := "w[0] one\nw[0] " + long[:maxLine] + "\nw[0] " + long[maxLine:] + "\nw[0] last\nw[1] [rank 1] yes\n"
	if out.String() != want {
		t.Errorf("got\n%.300s", out.String())
	}
}

func TestFollowKeepsLinesWhole(t *testing.T) {
	defer goleak.VerifyNone(t)
	var sources []Source
	texts := map[int]string{}
	for i := range 20 {
		sources = append(sources, Source{Slot: job.Address{Role: "w", Index: i}, Prefix: string(rune('a'+i)) + " "})
		texts[i] = strings.Repeat(strings.Repeat(string(rune('a'+i)), 100)+"\n", 50)
	}
	var out bytes.Buffer
	if err := Follow(context.Background(), &out, sources, reader(texts)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 1000 {
		t.Fatalf("%d lines", len(lines))
	}
	for _, line := range lines {
		if line[1] != ' ' || line[2:] != strings.Repeat(line[:1], 100) {
			t.Fatalf("a torn line: %q", line)
		}
	}
}

func TestFollowEndsWithItsContextAndItsErrors(t *testing.T) {
	defer goleak.VerifyNone(t)
	sources := []Source{{Slot: job.Address{Role: "w"}}, {Slot: job.Address{Role: "w", Index: 1}}}
	// One slot's output never ends, the other's cannot be opened.
	read := func(ctx context.Context, slot job.Address) (io.ReadCloser, error) {
		if slot.Index == 1 {
			return nil, errors.New("logs of w[1]: gone")
		}
		r, w := io.Pipe()
		context.AfterFunc(ctx, func() { w.Close() })
		return r, nil
	}
	err := Follow(context.Background(), io.Discard, sources, read)
	if err == nil || err.Error() != "logs of w[1]: gone" {
		t.Errorf("the error is %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Follow(ctx, io.Discard, sources[:1], read); err != nil {
		t.Errorf("an interrupt is the error %v", err)
	}
}

func TestNobodyHoldsNoRank(t *testing.T) {
	if slot, n, err := HolderOf(&job.Record{UID: "u"}, -1); err != nil || n != 0 || slot != (job.Address{}) {
		t.Errorf("rank -1 is held by %v, %d, %v", slot, n, err)
	}
}
