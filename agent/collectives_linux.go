package agent

import (
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/job"
)

const (
	// collectivesWait is how long the hook in a process may take to answer: its thread needs Python's lock, which a process that
	// waits for its peers has released.
	collectivesWait = 2 * time.Second
	// maxCollectivesFile bounds an answer.
	maxCollectivesFile = 1 << 20
	// maxCollectiveText bounds each of its texts.
	maxCollectiveText = 80
)

// collectivesOf asks the hook of a process where that is in the collectives of its process groups; nil if it has none, does not
// answer, or PyTorch records nothing. file is that of its stacks, which the hook's own are beside.
func collectivesOf(file string) []job.Collective {
	ask, err := unix.Open(file+".ask", unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // the hook is not there, or does not read
	}
	defer unix.Close(ask)
	var info unix.Stat_t
	if unix.Fstat(ask, &info) != nil || info.Mode&unix.S_IFMT != unix.S_IFIFO {
		return nil
	}
	answer := file + ".collectives"
	if err := os.Remove(answer); err != nil && !os.IsNotExist(err) {
		return nil
	}
	if _, err := unix.Write(ask, []byte{'\n'}); err != nil {
		return nil
	}
	for begun := time.Now(); time.Since(begun) < collectivesWait; time.Sleep(collectivesWait / 200) {
		if text, err := regular.Read(answer, maxCollectivesFile); err == nil {
			return parseCollectives(text)
		}
	}
	return nil
}

// parseCollectives reads an answer: those that the process waits in first, then the busiest.
func parseCollectives(text []byte) []job.Collective {
	var all []job.Collective
	if json.Unmarshal(text, &all) != nil {
		return nil
	}
	all = slices.DeleteFunc(all, func(c job.Collective) bool { return c.Group == "" || c.Entered < 0 || c.Waits < 0 })
	place := func(c job.Collective) int {
		if c.Waiting() {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b job.Collective) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(b.Entered, a.Entered))
	})
	all = all[:min(len(all), job.MaxCollectives)]
	for i := range all {
		c := &all[i]
		for _, text := range []*string{&c.Group, &c.Title, &c.Op, &c.Sizes, &c.Peer} {
			*text = shortened([]string{sanitize(*text)}, maxCollectiveText)[0]
		}
	}
	return all
}
