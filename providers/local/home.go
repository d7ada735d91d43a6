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
)

// A job directory may be copied, or moved, with its state and its run directory. The records in a copy name the original's
// processes and cgroups: they are the original's to end.

// cgroupName is where below eltrain an incarnation's cgroups are: JOB/SLOT. The job's UID and the incarnation's number are
// in the state too, and a copy's state has the same: what tells its cgroups from the original's is the run directory, home,
// without symbolic links. The name is never made a second time to find a cgroup: the launch record has it, so what an older
// version named otherwise is found, and what was launched before the directory was moved.
func cgroupName(home string, k key) string {
	const enough = 6 // bytes of the digest: a job has a few copies
	digest := sha256.Sum256([]byte(home))
	return fmt.Sprintf("%s-%x/%s-%d", k.uid, digest[:enough], slotDir(k.role, k.index), k.number)
}

// home is what the run directory that an incarnation was launched for is to this one.
type home int

const (
	here      home = iota // it is this one, perhaps by another name; also if an older version launched, which did not record it
	vanished              // it is no longer there: it was moved to here, or this is a copy and it was removed
	elsewhere             // it is another one, of which this is a copy
)

// homeOf looks for the run directory that l was launched for below root, where an agent's file system begins.
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

// copied reports whether an incarnation's launch record was copied to here with its directory, which is still there: what
// the original's agent left behind is not ended from here. A directory that cannot be looked at counts as there. i.mu is
// held and the record was read.
func (p *Provider) copied(i *incarnation) bool {
	if i.ours {
		return false
	}
	home, _ := p.homeOf(i.launch, "/")
	return home == elsewhere
}

// atHome tells, with an awayError, of an agent that runs for another run directory than this one: this is a copy of it, whose
// master must not take the original's processes for its own, or it was moved, and the agent finds no service anymore. What
// counts is the directory as the agent sees it, which may be in a container. i.mu is held.
func (p *Provider) atHome(i *incarnation) error {
	root := filepath.Join("/proc", strconv.Itoa(i.record.PID), "root")
	home, err := p.homeOf(i.launch, root)
	if err != nil || home == here { // what cannot be looked at is not mistaken for a copy
		i.ours = true
		return nil
	}
	if _, err := os.Stat(root); err != nil {
		return nil // it has ended meanwhile, or is not ours to look at
	}
	return &awayError{home: home, launched: i.launch.Home, here: p.runDir, agents: []int{i.record.PID}}
}

// awayError is agents that run for another run directory than this one.
type awayError struct {
	home     home   // vanished or elsewhere
	launched string // the run directory that they run for
	here     string // this one
	agents   []int  // their process ids
}

func (e *awayError) Error() string {
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

// joinAway is one error for all agents that run elsewhere, with a part for each directory; nil if there are none.
func joinAway(all []*awayError) error {
	var parts []*awayError
	for _, e := range all {
		n := slices.IndexFunc(parts, func(part *awayError) bool { return part.home == e.home && part.launched == e.launched })
		if n < 0 {
			n = len(parts)
			parts = append(parts, &awayError{home: e.home, launched: e.launched, here: e.here})
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
