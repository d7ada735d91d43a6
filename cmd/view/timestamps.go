package view

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// timestampLayout is RFC 3339 of a fixed width, in UTC.
const timestampLayout = "2006-01-02T15:04:05.000Z"

// Timestamped begins each line with the time at which it is written, as kubectl logs --timestamps and docker logs -t do.
func Timestamped(s Screen, now func() time.Time) Screen {
	s.Writer = &timestamps{to: s.Writer, now: now}
	if s.Terminal {
		s.Width = max(20, s.Width-len(timestampLayout)-1)
	}
	return s
}

type timestamps struct {
	to  io.Writer
	now func() time.Time

	mu     sync.Mutex
	within bool // a line has begun
}

func (t *timestamps) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	stamp := t.now().UTC().Format(timestampLayout)
	var out bytes.Buffer
	for line := range bytes.SplitAfterSeq(b, []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		if !t.within {
			out.WriteString(stamp)
			if line[0] != '\n' {
				out.WriteByte(' ')
			}
		}
		out.Write(line)
		t.within = line[len(line)-1] != '\n'
	}
	if _, err := t.to.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(b), nil
}
