package file

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/statetest"
)

func TestMain(m *testing.M) {
	if child := os.Getenv(childEnv); child != "" {
		os.Exit(runChild(child))
	}
	goleak.VerifyTestMain(m)
}

// place is one state file.
type place struct {
	t     *testing.T
	path  string
	lease time.Duration
}

// memoryDir is a directory on a file system with cheap fsync, if there is one.
func memoryDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "eltrain-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (p place) Lease() time.Duration { return p.lease }

func (p place) Open() state.Store {
	s, err := New(p.path, Options{Lease: p.lease})
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

func (p place) Silence(l state.Lock) {
	if err := l.(*lock).Halt(context.Background()); err != nil {
		p.t.Fatal(err)
	}
}

func (p place) Resume(l state.Lock) { l.(*lock).keep(time.Now()) }

// The suite runs on a fake clock only: real time would make a starved test machine look like a silent holder.
// Real processes and real time are in process_test.go.
func TestConformance(t *testing.T) {
	statetest.RunInBubble(t, func(t *testing.T) statetest.Opener {
		return place{t, filepath.Join(memoryDir(t), "eltrain.state"), time.Second}
	})
}
