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
	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/job"
)

// The files in an incarnation's directory. With them a provider on the same machine finds an agent again, knows how it exited,
// and kills what it may have left behind. Each is replaced by a rename.
const (
	agentFile     = "agent.json"     // agentRecord; written before anything else
	processesFile = "processes.json" // processesRecord; written when processes start and when they have exited
	exitFile      = "exit.json"      // job.LastWord; written last
)

// lastWordRest is room for the parts of a last word other than its Exit: three names and two short values.
const lastWordRest = 128

// processID distinguishes a process from a later one with the same pid.
type processID struct {
	PID int `json:"pid"`
	// StartTime is field 22 of /proc/PID/stat: clock ticks since boot. 0 if there is no /proc.
	StartTime uint64 `json:"start_time"`
}

type agentRecord struct {
	processID
	BootID  string    `json:"boot_id"` // start times and pids are invalid after another boot
	Started time.Time `json:"started"`
}

// processesRecord lists the training processes that run. Each leads its own process group. A provider that finds the agent dead
// kills these groups: the kernel kills the leaders with the agent, but not their own children.
type processesRecord struct {
	BootID     string      `json:"boot_id"`
	Generation int         `json:"generation"`
	Processes  []processID `json:"processes"`
	// Descendants are other descendants of the agent outside of these groups, as of its last beat. They become init's when the
	// agent is killed, and may have nothing else that tells whose they are.
	Descendants []processID `json:"descendants,omitempty"`
	// OOMKills is how many of this agent's processes were killed for memory. If the cgroup counts one more, it was the agent
	// itself.
	OOMKills int `json:"oom_kills,omitempty"`
}

var errStarted = errors.New("this incarnation was already started")

// record is an incarnation's directory, held by this agent, and its last-word file. The zero value writes nothing.
type record struct {
	dir          string
	lastWordFile string // the path of LastWordFile
	bootID       string
	lock         *os.File // nil for none; the kernel releases it when this process exits
}

// openRecord takes the directory for the agent's lifetime and writes agent.json. lockFD is the descriptor that holds the
// directory's lock, 0 for none; whoever starts an agent takes the lock, so that a started agent is never without a lock. It
// fails with errStarted if this incarnation had an agent: an incarnation is started only once.
func openRecord(dir string, lockFD int, word string, now time.Time) (*record, error) {
	r := &record{dir: dir, lastWordFile: word, bootID: bootID()}
	if lockFD > 0 {
		unix.CloseOnExec(lockFD) // the lock is this process's, not its children's
		r.lock = os.NewFile(uintptr(lockFD), "lock")
	}
	if dir == "" {
		return r, nil
	}
	if err := regular.MakePrivate(dir, dir); err != nil {
		r.close()
		return nil, fmt.Errorf("make the agent's directory: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, agentFile)); err == nil {
		r.close()
		return nil, errStarted
	}
	self := agentRecord{identify(os.Getpid()), r.bootID, now}
	if err := r.write(agentFile, self); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *record) processes(p processesRecord) error {
	p.BootID = r.bootID
	return r.write(processesFile, p)
}

// exit writes the agent's last word, to its directory and to the last-word file.
func (r *record) exit(w job.LastWord) error {
	return errors.Join(r.write(exitFile, w), r.writeLastWord(w))
}

// writeLastWord writes the last word to its file, cut to fit. The file is not replaced, because it is a mount of its own in the
// container, and not created, because systems may refuse to open another user's file with O_CREAT in a shared directory
// (fs.protected_regular).
func (r *record) writeLastWord(w job.LastWord) error {
	if r.lastWordFile == "" {
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
	f, err := regular.Open(r.lastWordFile, os.O_WRONLY|os.O_TRUNC, 0)
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

// write replaces a file atomically, readable by its owner only.
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
