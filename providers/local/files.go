package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/internal/atomicfile"
	"github.com/eltrain/eltrain/job"
)

// Below the run directory, all directories 0700:
//
//	service                                     the service's URL
//	jobs/UID/token, name                        one job
//	jobs/UID/slots/ROLE-INDEX/INCARNATION/      one incarnation:
//	    launch.json                             what was asked for; written before the agent is started
//	    lock, agent.json, processes.json, exit.json   the agent's own word; package agent says more
//	    agent.log                               the agent's own output
//	    ended.json                              the last observation, when nothing of it is left
//	logs/JOB/ROLE-INDEX.log                     the output of all incarnations of a slot
const (
	runDirName       = ".eltrain" // in the job directory, unless another is named
	serviceFile      = "service"
	certificatesFile = "service-ca.pem" // empty where the system vouches for the service
	tokenFile        = "token"
	nameFile         = "name"
	launchFile       = "launch.json"
	lockFile         = "lock"
	agentFile        = "agent.json"
	processesFile    = "processes.json"
	exitFile         = "exit.json"
	endedFile        = "ended.json"
	agentLogFile     = "agent.log"
)

// launchRecord is what is kept of a launch: what Observe reports, and where its limits are. The program is
// not in it, since its environment may hold secrets.
type launchRecord struct {
	Slot        job.Address   `json:"slot"`
	UID         string        `json:"uid"`
	Incarnation int           `json:"incarnation"`
	Node        string        `json:"node"`
	Fingerprint string        `json:"fingerprint"`
	Reserved    job.Resources `json:"reserved"`
	Asked       time.Time     `json:"asked"`
	Cgroups     []string      `json:"cgroups,omitempty"` // directories; see cgroupName
	Home        string        `json:"home,omitempty"`    // the run directory, without symbolic links
}

// agentRecord is the agent's word on who it is.
type agentRecord struct {
	identity
	BootID  string    `json:"boot_id"`
	Started time.Time `json:"started"`
}

// processesRecord is the agent's word on what it started. The processes are leaders of groups of their own.
type processesRecord struct {
	BootID    string     `json:"boot_id"`
	Processes []identity `json:"processes"`
	// OOMKills is how many of its processes the agent has known the kernel to kill for memory.
	OOMKills int `json:"oom_kills,omitempty"`
}

// key names an incarnation.
type key struct {
	uid    string
	role   string
	index  int
	number int
}

func (k key) String() string { return fmt.Sprintf("%s[%d] incarnation %d", k.role, k.index, k.number) }

// slotDir is the slot's name as a directory or file. Roles' names have no slash.
func slotDir(role string, index int) string { return role + "-" + strconv.Itoa(index) }

func (p *Provider) jobDir(uid string) string { return filepath.Join(p.runDir, "jobs", uid) }

func (p *Provider) dir(k key) string {
	return filepath.Join(p.jobDir(k.uid), "slots", slotDir(k.role, k.index), strconv.Itoa(k.number))
}

// logPath is by the job's name, not its UID: output stays when the job is forgotten.
func (p *Provider) logPath(slot job.Address) string {
	return filepath.Join(p.runDir, "logs", slot.Job, slotDir(slot.Role, slot.Index)+".log")
}

// checkUID refuses what cannot be one directory's name.
func checkUID(uid string) error {
	if !job.ValidName(uid) {
		return fmt.Errorf("%q is not a job's UID", uid)
	}
	return nil
}

// keys lists the incarnations that have a directory.
func (p *Provider) keys() ([]key, error) {
	var keys []key
	uids, err := list(filepath.Join(p.runDir, "jobs"))
	if err != nil {
		return nil, err
	}
	for _, uid := range uids {
		if checkUID(uid) != nil { // one that is being forgotten
			continue
		}
		slots, err := list(filepath.Join(p.jobDir(uid), "slots"))
		if err != nil {
			return nil, err
		}
		for _, slot := range slots {
			numbers, err := list(filepath.Join(p.jobDir(uid), "slots", slot))
			if err != nil {
				return nil, err
			}
			role, digits, _ := cutLast(slot, "-")
			index, err := strconv.Atoi(digits)
			if err != nil {
				continue
			}
			for _, digits := range numbers {
				if n, err := strconv.Atoi(digits); err == nil {
					keys = append(keys, key{uid, role, index, n})
				}
			}
		}
	}
	return keys, nil
}

// list returns the names in a directory; none if it is not there.
func list(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	// A directory removed while it is read reads as not there.
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

// readJSON reads a file that is replaced whole. found is false if it is not there.
func readJSON(dir, name string, v any) (found bool, err error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, fmt.Errorf("read %s: %w", filepath.Join(dir, name), err)
	}
	return true, nil
}

// writeJSON replaces a file whole, readable by its owner alone.
func writeJSON(dir, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, name), append(b, '\n'), 0o600)
}

const (
	lockFD    = 3 // in the agent: the first of exec.Cmd's ExtraFiles
	lockTries = 10
	lockPause = 20 * time.Millisecond
)

// lock takes an incarnation's directory for an agent: it keeps the lock until it ends, and has it from the first. It is
// nil if another one has. A probe has the lock for an instant itself, so one refusal proves nothing.
func lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for range lockTries {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		time.Sleep(lockPause)
	}
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
}

// locked reports whether an agent holds the directory. The probe is a shared lock, let go at once.
func locked(dir string) bool {
	f, err := os.Open(filepath.Join(dir, lockFile))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// lastLines are the last n lines of a small file's end, for a person; none if it cannot be read.
func lastLines(path string, n int) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	start, err := tailOffset(f, n)
	if err != nil {
		return nil
	}
	const most = 8 << 10 // one line may be of any length
	if end, err := f.Seek(0, 2); err == nil {
		start = max(start, end-most)
	}
	b := make([]byte, most)
	m, _ := f.ReadAt(b, start)
	text := strings.TrimSpace(string(b[:m]))
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}
