package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/internal/atomicfile"
	"github.com/eltrain/eltrain/job"
)

// The files in an incarnation's directory. They are how a provider on the same machine finds an agent
// again, knows how it ended, and ends what it may have left behind. Each is replaced by a rename.
const (
	agentFile     = "agent.json"     // agentRecord; written before anything else happens
	processesFile = "processes.json" // processesRecord; written at each start of processes, and when they are gone
	exitFile      = "exit.json"      // job.LastWord; the agent's last act
)

// lastWordRest is room for what of a last word is not its Exit: three names, and two words of some letters.
const lastWordRest = 128

// processID tells a process from a later one with the same pid.
type processID struct {
	PID int `json:"pid"`
	// StartTime is field 22 of /proc/PID/stat: clock ticks since boot. 0 where there is no /proc.
	StartTime uint64 `json:"start_time"`
}

type agentRecord struct {
	processID
	BootID  string    `json:"boot_id"` // start times and pids mean nothing after another boot
	Started time.Time `json:"started"`
}

// processesRecord lists the training processes that run. Each leads a process group of its own. A
// provider that finds the agent dead ends these groups: the kernel ends the leaders with the agent, but
// not what they had started themselves.
type processesRecord struct {
	BootID     string      `json:"boot_id"`
	Generation int         `json:"generation"`
	Processes  []processID `json:"processes"`
	// OOMKills is how many of its processes this agent has seen killed for memory. If the cgroup counts one
	// more, it was the agent itself.
	OOMKills int `json:"oom_kills,omitempty"`
}

var errStarted = errors.New("this incarnation was already started")

// record is an incarnation's directory, held by this agent, and the file that takes its last word. The zero
// value, for an agent that nobody looks for, keeps nothing.
type record struct {
	dir  string
	word string // the LastWordFile
	boot string
	lock *os.File // nil for none; the kernel lets it go with this process
}

// openRecord takes the directory for this agent's whole life and writes agent.json. lockFD is the descriptor that holds
// the directory's lock, 0 for none; whoever starts an agent takes the lock, so that there is no moment in which it was
// started and nobody seems to be there. It fails with errStarted if this incarnation had an agent: an incarnation is
// started once, ever.
func openRecord(dir string, lockFD int, word string, now time.Time) (*record, error) {
	r := &record{dir: dir, word: word, boot: bootID()}
	if lockFD > 0 {
		unix.CloseOnExec(lockFD) // the lock is this process's, and not its children's
		r.lock = os.NewFile(uintptr(lockFD), "lock")
	}
	if dir == "" {
		return r, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		r.close()
		return nil, fmt.Errorf("make the agent's directory: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, agentFile)); err == nil {
		r.close()
		return nil, errStarted
	}
	self := agentRecord{identify(os.Getpid()), r.boot, now}
	if err := r.write(agentFile, self); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *record) processes(generation int, ids []processID, oomKills int) error {
	return r.write(processesFile, processesRecord{r.boot, generation, ids, oomKills})
}

// exit keeps the agent's last word, in its directory and in the last word's file.
func (r *record) exit(w job.LastWord) error {
	return errors.Join(r.write(exitFile, w), r.say(w))
}

// say writes the last word into its file as far as it takes it. The file is not replaced: it is mounted into
// the container by itself, and nor is it made, which systems refuse for another user's file in a shared
// directory (fs.protected_regular).
func (r *record) say(w job.LastWord) error {
	if r.word == "" {
		return nil
	}
	if w.Exit != nil {
		exit := fit(*w.Exit, job.LastWordSize-lastWordRest)
		w.Exit = &exit
	}
	text, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("write the termination message: %w", err)
	}
	f, err := os.OpenFile(r.word, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return fmt.Errorf("write the termination message: %w", err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the termination message: %w", err)
	}
	return nil
}

func (r *record) close() {
	if r.lock != nil {
		r.lock.Close()
	}
}

// write replaces a file whole, readable by its owner alone.
func (r *record) write(name string, v any) error {
	if r.dir == "" {
		return nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := atomicfile.Write(filepath.Join(r.dir, name), append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
