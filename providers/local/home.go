package local

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/eltrain/eltrain/internal/regular"
)

// A job directory may be copied, or moved, with its state and its run directory. The records in a copy name the original's
// processes and cgroups: only the original may end them.

// cgroupName is where an incarnation's cgroups are below eltrain: JOB/SLOT. The state has the job's UID and the incarnation's
// number, so a copy has the same ones: a hash of the run directory, home, without symbolic links, makes its cgroups distinct.
// An existing cgroup is found by the launch record, never by making the name again, so those of older versions, and those
// launched before the directory was moved, are found too.
func cgroupName(home string, k key) string {
	const enough = 6 // bytes of the digest: a job has a few copies
	digest := sha256.Sum256([]byte(home))
	return fmt.Sprintf("%s-%x/%s-%d", k.uid, digest[:enough], slotDir(k.role, k.index), k.number)
}

// siteOf names a run directory, as HOST:PATH of where it was made: it keeps its name when it is moved or copied, and no other one has it.
// A state that is used with two run directories has jobs that run in one of them, and would be started again in the other.
func siteOf(runDir string) (string, error) {
	text, err := regular.Read(filepath.Join(runDir, siteFile), maxRecord)
	if err == nil {
		return strings.TrimSpace(string(text)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name this machine: %w", err)
	}
	if there, err := filepath.EvalSymlinks(runDir); err == nil {
		runDir = there
	} else if there, err := filepath.EvalSymlinks(filepath.Dir(runDir)); err == nil { // it does not exist yet
		runDir = filepath.Join(there, filepath.Base(runDir))
	}
	return host + ":" + runDir, nil
}

// home is how the run directory that an incarnation was launched for relates to this one.
type home int

const (
	here      home = iota // the same, perhaps by another path; also for records of older versions, which have no Home
	vanished              // it no longer exists: it was moved to here, or this is a copy and the original was removed
	elsewhere             // another one, of which this is a copy
)

// homeOf looks up the run directory that l was launched for below root, the root of an agent's file system.
func (p *Provider) homeOf(l *launchRecord, root string) (home, error) {
	if l.Home == "" {
		return here, nil
	}
	there, err := os.Stat(filepath.Join(root, l.Home))
	if errors.Is(err, fs.ErrNotExist) {
		return vanished, nil
	}
	if err != nil {
		return elsewhere, err
	}
	this, err := os.Stat(p.runDir)
	if err != nil || !os.SameFile(this, there) {
		return elsewhere, err
	}
	return here, nil
}

// copied reports whether an incarnation's launch record is a copy and its original run directory still exists: what the
// original's agent left behind is not ended from here. A directory that cannot be read counts as existing. i.mu is held and
// the record was read.
func (p *Provider) copied(i *incarnation) bool {
	if i.ours {
		return false
	}
	home, _ := p.homeOf(i.launch, "/")
	return home == elsewhere
}

// checkHome returns an otherHomeError if the agent runs for another run directory: either this is a copy, whose master must not treat
// the original's processes as its own, or it was moved, and the agent can no longer find the service. The directory is looked
// up as the agent sees it, which may be in a container. i.mu is held.
func (p *Provider) checkHome(i *incarnation) error {
	root := filepath.Join("/proc", strconv.Itoa(i.record.PID), "root")
	home, err := p.homeOf(i.launch, root)
	if err != nil || home == here { // what cannot be read does not count as a copy
		i.ours = true
		return nil
	}
	if _, err := os.Stat(root); err != nil {
		return nil // it has just ended, or may not be read by us
	}
	return &otherHomeError{home: home, launched: i.launch.Home, here: p.runDir, agents: []int{i.record.PID}}
}

// otherHomeError reports agents that run for another run directory than this one.
type otherHomeError struct {
	home     home   // vanished or elsewhere
	launched string // the run directory that they run for
	here     string // this one
	agents   []int  // their process ids
}

func (e *otherHomeError) Error() string {
	pids := make([]string, len(e.agents))
	for n, pid := range e.agents {
		pids[n] = strconv.Itoa(pid)
	}
	who, them := "agent "+pids[0]+" runs", "that process"
	if len(pids) > 1 {
		who, them = "agents "+strings.Join(pids, ", ")+" run", "those processes"
	}
	where := strings.TrimSuffix(e.launched, "/"+runDirName)
	if e.home == vanished {
		return fmt.Sprintf("%s for %s, which was moved or removed: move it back, or end %s, to continue here", who, where, them)
	}
	return fmt.Sprintf("%s for %s, and this is a copy: run eltrain there, or remove %s and the state, eltrain.state, here and start over",
		who, where, e.here)
}

// joinOtherHomes joins the errors of all such agents, with one part for each directory; nil if there are none.
func joinOtherHomes(all []*otherHomeError) error {
	var parts []*otherHomeError
	for _, e := range all {
		n := slices.IndexFunc(parts, func(part *otherHomeError) bool { return part.home == e.home && part.launched == e.launched })
		if n < 0 {
			n = len(parts)
			parts = append(parts, &otherHomeError{home: e.home, launched: e.launched, here: e.here})
		}
		parts[n].agents = append(parts[n].agents, e.agents...)
	}
	errs := make([]error, len(parts))
	for n, part := range parts {
		slices.Sort(part.agents)
		errs[n] = part
	}
	return errors.Join(errs...)
}
