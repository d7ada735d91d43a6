package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/internal/atomicfile"
	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/job"
)

// Below the run directory, all directories 0700:
//
//	service                                     the service's URL
//	site                                        where the run directory was made: see siteOf
//	jobs/UID/token, name                        one job
//	jobs/UID/slots/ROLE-INDEX/INCARNATION/      one incarnation:
//	    launch.json                             what was asked for; written before the agent is started
//	    lock, agent.json, processes.json, exit.json   written by the agent: see package agent
//	    agent.log                               the agent's own output
//	    ended.json                              the last observation, once nothing of it is left
//	logs/JOB/ROLE-INDEX.log                     the output of all incarnations of a slot
//	logs/JOB/ROLE-INDEX.log.marks               see package logmarks
const (
	runDirName       = ".eltrain" // in the job directory, unless configured otherwise
	serviceFile      = "service"
	certificatesFile = "service-ca.pem"
	siteFile         = "site"
	tokenFile        = "token"
	nameFile         = "name"
	launchFile       = "launch.json"
	lockFile         = "lock"
	agentFile        = "agent.json"
	processesFile    = "processes.json"
	exitFile         = "exit.json"
	endedFile        = "ended.json"
	agentLogFile     = "agent.log"
	logExt           = ".log"
)

// maxRecord bounds each file that is read as a whole. The largest are exit.json, of some 32 KiB (see package agent), and
// certificates.
const maxRecord = 1 << 20

// launchRecord is what is kept of a launch: what Observe reports, and the cgroups of its limits. The program is omitted,
// since its environment may hold secrets.
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

// agentRecord is written by the agent to identify itself.
type agentRecord struct {
	identity
	BootID  string    `json:"boot_id"`
	Started time.Time `json:"started"`
}

// processesRecord is written by the agent to identify what it started. The processes lead process groups of their own.
type processesRecord struct {
	BootID    string     `json:"boot_id"`
	Processes []identity `json:"processes"`
	// Descendants are other descendants of the agent, as of its last beat.
	Descendants []identity `json:"descendants,omitempty"`
	// OOMKills is how many of its processes the agent knows to have been killed by the kernel for memory.
	OOMKills int `json:"oom_kills,omitempty"`
}

// key identifies an incarnation.
type key struct {
	uid    string
	role   string
	index  int
	number int
}

func (k key) String() string { return fmt.Sprintf("%s[%d] incarnation %d", k.role, k.index, k.number) }

// slotDir is the slot's name as a directory or file. Names of roles have no slash.
func slotDir(role string, index int) string { return role + "-" + strconv.Itoa(index) }

func (p *Provider) jobDir(uid string) string { return filepath.Join(p.runDir, "jobs", uid) }

func (p *Provider) dir(k key) string {
	return filepath.Join(p.jobDir(k.uid), "slots", slotDir(k.role, k.index), strconv.Itoa(k.number))
}

// logPath uses the job's name, not its UID: output stays when the job is forgotten.
func (p *Provider) logPath(slot job.Address) string {
	return filepath.Join(p.runDir, "logs", slot.Job, slotDir(slot.Role, slot.Index)+logExt)
}

// checkUID rejects what cannot be the name of one directory.
func checkUID(uid string) error {
	if !job.ValidUID(uid) {
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
		if checkUID(uid) != nil { // being forgotten
			continue
		}
		if err := regular.CheckPrivate(p.jobDir(uid)); err != nil {
			return nil, err
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

// list returns the names in a private directory; none if it does not exist.
func list(dir string) ([]string, error) {
	if err := regular.CheckPrivate(dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	// A directory that is removed while it is read counts as missing.
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

// readJSON reads a file that is replaced atomically. found is false if it does not exist.
func readJSON(dir, name string, v any) (found bool, err error) {
	b, err := regular.Read(filepath.Join(dir, name), maxRecord)
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

// writeJSON replaces a file atomically, readable by its owner alone.
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

// lock locks an incarnation's directory for an agent, which inherits the lock and holds it until it exits. It returns nil if
// another agent holds it. As a probe (locked) holds the lock for an instant, lock retries.
func lock(dir string) (*os.File, error) {
	f, err := regular.Open(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
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

// locked reports whether an agent holds the lock. It probes with a shared lock, released at once.
func locked(dir string) bool {
	f, err := regular.Open(filepath.Join(dir, lockFile), os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// lastLines are the last n lines of a file, cut to a few KiB, for people; none if it cannot be read.
func lastLines(path string, n int) []string {
	f, err := regular.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	const most = 8 << 10 // a line may have any length
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil
	}
	start, err := tailOffset(f, max(0, end-most), end, n)
	if err != nil {
		return nil
	}
	b := make([]byte, most)
	m, _ := f.ReadAt(b, start)
	text := strings.TrimSpace(string(b[:m]))
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}
