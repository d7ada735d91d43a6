package lang

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/incident"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/progress"
	"github.com/eltrain/eltrain/signature"
)

// checkpointSignals are those that a process can catch and that have no other meaning in a training job.
var checkpointSignals = []string{"SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGWINCH", "SIGURG"}

// causes lists the causes that heal's "on" blocks can adjust.
var causes = adjustable()

func adjustable() (causes []string) {
	for _, row := range incident.Causes {
		if len(row.Actions) > 0 {
			causes = append(causes, string(row.Code))
		}
	}
	slices.Sort(causes)
	return causes
}

const (
	// minLease gives agents on a loaded host time for their heartbeats, which they send at a fraction of the lease.
	minLease = job.Duration(time.Second)
	// maxProcesses is far above the number of devices of any host.
	maxProcesses = 1024
)

// maxContext is the maximum number of lines of a block that are shown around an error in it.
const maxContext = 5

// complain reports an error about one argument of a block.
func (l *loader) complain(at *hcl.Range, t *tree, summary, format string, args ...any) {
	d := &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: at}
	if around := hcl.RangeOver(t.def, *at); around.End.Line-around.Start.Line < maxContext {
		d.Context = &around
	}
	l.report(d)
}

// checkJob checks a job against the rules that go beyond types. A rule is skipped if the values that it
// is about are already known to be invalid.
func (l *loader) checkJob(j *job.Job, t *tree) {
	if usable := l.usable(); t.sound("provider") && !l.root().incomplete && !slices.Contains(usable, j.Provider) {
		known := slices.Sorted(maps.Keys(l.opts.Providers))
		hint := suggest(j.Provider, usable)
		if hint == "" && slices.Contains(known, j.Provider) {
			hint = fmt.Sprintf(" Add a block: provider %q {}.", j.Provider)
		}
		l.complain(t.at("provider"), t, "Unknown provider", "No provider %q is declared; there are %s.%s", j.Provider, list(usable), hint)
	}
	if len(j.Roles) == 0 && t.sound("role") {
		l.complain(&t.def, t, "No role", "A job needs at least one role: role \"worker\" { command = […] }.")
	}
	roles := t.blocks["role"]
	for i := range j.Roles {
		l.checkRole(&j.Roles[i], roles[i])
	}
	l.checkSources(j, roles)
	l.checkStartOrder(j, roles)
	l.checkLimits(j, t, roles)
	l.checkGroups(j, t.block("topology"), roles)
	l.checkPolicies(j, t)
	l.checkEnds(j, t)
}

// checkSources rejects a source that has checkpoints: each would replace the slots that have written it.
func (l *loader) checkSources(j *job.Job, roles []*tree) {
	if j.Checkpoint == nil || j.Checkpoint.Dir == "" {
		return
	}
	dir := j.Checkpoint.Dir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(l.root().dir, dir)
	}
	for i := range j.Roles {
		for _, path := range slices.Sorted(maps.Keys(j.Roles[i].Source)) {
			if rel, err := filepath.Rel(dir, l.inDir(path)); err == nil && filepath.IsLocal(rel) {
				l.complain(roles[i].at("source"), roles[i], "Invalid source", "%q is in checkpoint.dir, which the training processes write to: each checkpoint would replace the slots. Name only files that you edit.", path)
				break
			}
		}
	}
}

func (l *loader) checkRole(r *job.Role, t *tree) {
	if t.sound("replicas") && r.Replicas < 1 {
		l.complain(t.at("replicas"), t, "Invalid number of replicas", "A role needs at least 1 slot, not %d. To run none, remove the role.", r.Replicas)
		t.failed["replicas"] = true
	}
	if s := t.block("scaling"); s != nil && r.Scaling != nil {
		l.checkScaling(r, t, s)
	}
	if t.sound("processes") && (r.Processes < 1 || r.Processes > maxProcesses) {
		l.complain(t.at("processes"), t, "Invalid number of processes", "A slot runs 1 to %d training processes, not %d.", maxProcesses, r.Processes)
	}
	if t.sound("command") {
		l.checkCommand(r, t)
	}
	if b := t.block("update"); b != nil && r.Update != nil {
		if t.sound("ranked") && r.Ranked {
			l.complain(&b.def, b, "Update of a ranked role", "A ranked role is updated as a whole: its world needs all slots. Remove the block, or set ranked = false.")
		}
		if b.sound("max_unavailable") && r.Update.MaxUnavailable < 1 {
			l.complain(b.at("max_unavailable"), b, "Invalid max_unavailable", "At least 1 slot has to be down to be replaced, not %d.", r.Update.MaxUnavailable)
		}
	}
	if b := t.block("accelerators"); b != nil && r.Accelerators != nil && b.sound("command", "dcgm") {
		l.checkAccelerators(r.Accelerators, b)
	}
	l.checkEnv(r, t)
	if b := t.block("resources"); b != nil {
		l.checkDevices(r.Resources.Devices, b)
	}
}

// eachProgram returns the role's program, or the programs of all its slots if they differ.
func eachProgram(r *job.Role) []job.Program {
	if len(r.PerSlot) > 0 {
		return r.PerSlot
	}
	return []job.Program{r.Program}
}

// checkAccelerators requires one source of figures.
func (l *loader) checkAccelerators(a *job.Accelerators, t *tree) {
	byCommand, byDCGM := t.attrs["command"] != nil, t.attrs["dcgm"] != nil
	switch {
	case byCommand && byDCGM:
		l.complain(t.at("dcgm"), t, "Two sources of figures", "The figures come either from a command or from a DCGM exporter: set only one of the two.")
	case byCommand && (len(a.Command) == 0 || a.Command[0] == ""):
		l.complain(t.at("command"), t, "Empty command", "The command names a program and its arguments, as [\"eltrain-nvml\"].")
	case byDCGM:
		if u, err := url.Parse(a.DCGM); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			l.complain(t.at("dcgm"), t, "Invalid URL", "The URL of a DCGM exporter begins with http:// or https:// and names a host, as in \"http://localhost:9400/metrics\".")
		}
	case !byCommand:
		l.complain(t.at("command"), t, "Empty accelerators block", "Set command or dcgm, or remove the block.")
	}
}

func (l *loader) checkCommand(r *job.Role, t *tree) {
	for _, p := range eachProgram(r) {
		if len(p.Command) == 0 || p.Command[0] == "" {
			l.complain(t.at("command"), t, "Empty command", "The command names a program and its arguments, as [\"python3\", \"train.py\"].")
			return
		}
	}
}

// envNames returns the sorted names of the environment variables of each of a role's programs; only the certain ones if
// not all values are known.
func envNames(r *job.Role, t *tree) [][]string {
	if !t.sound("env") {
		return [][]string{slices.Sorted(slices.Values(t.certain["env"]))}
	}
	var out [][]string
	for _, p := range eachProgram(r) {
		out = append(out, slices.Sorted(maps.Keys(p.Env)))
	}
	return out
}

func (l *loader) checkEnv(r *job.Role, t *tree) {
	var own []string
	for _, names := range envNames(r, t) {
		for _, name := range names {
			if name == "" || strings.ContainsAny(name, "=\x00") {
				l.complain(t.at("env"), t, "Invalid environment variable", "%q is not a valid name of an environment variable: it must not be empty or contain \"=\".", name)
				return
			}
			if slices.Contains(job.ProcessVariables, name) && !slices.Contains(own, name) {
				own = append(own, name)
			}
		}
	}
	if len(own) > 0 {
		l.complain(t.at("env"), t, "Reserved environment variable",
			"eltrain sets %s for each training process from its world and would overwrite this value. Remove it, or use another name.", list(own))
	}
}

func (l *loader) checkDevices(devices map[string]int, t *tree) {
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		if devices[name] < 0 {
			l.complain(t.at("devices"), t, "Invalid number of devices", "There cannot be %d of %q: write 0 or more.", devices[name], name)
		}
	}
}

// checkStartOrder finds cycles in depends_on.
func (l *loader) checkStartOrder(j *job.Job, trees []*tree) {
	index := map[string]int{}
	for i, r := range j.Roles {
		index[r.Name] = i
	}
	state := make([]visit, len(j.Roles))
	var path []int
	var walk func(i int)
	walk = func(i int) {
		switch state[i] {
		case visited:
			return
		case visiting:
			var names []string
			for _, p := range path[slices.Index(path, i):] {
				names = append(names, "role."+j.Roles[p].Name)
			}
			names = append(names, "role."+j.Roles[i].Name)
			l.complain(trees[i].at("depends_on"), trees[i], "Start order in a cycle",
				"Each waits for the next one to run: %s. None would ever start. (A role's values may refer to a role that starts later; only depends_on orders starts.)",
				strings.Join(names, " -> "))
			return
		}
		state[i] = visiting
		path = append(path, i)
		for _, name := range j.Roles[i].DependsOn {
			walk(index[name])
		}
		path = path[:len(path)-1]
		state[i] = visited
	}
	for i := range j.Roles {
		walk(i)
	}
}

// checkLimits reports a gang that can never be admitted: the sum of all roles at their smallest sizes exceeds the limits. An
// unknown amount counts as 0 in the gang and as unlimited in the limits, so a reported excess holds for any value.
func (l *loader) checkLimits(j *job.Job, t *tree, roles []*tree) {
	b := t.block("limits")
	if b == nil || j.Limits == nil {
		return
	}
	l.checkDevices(j.Limits.Devices, b)
	gang := job.Resources{Devices: map[string]int{}}
	var parts []string
	for i := range j.Roles {
		r := &j.Roles[i]
		if r.Scaling == nil && !roles[i].sound("replicas") || !roles[i].sound("scaling") || !soundBlock(roles[i].block("scaling")) {
			return
		}
		least, most := r.Bounds()
		if least < 1 || most < least || most > MaxSlots {
			return
		}
		if legal := r.Ceil(least); legal > 0 {
			least = legal
		}
		gang = addTimes(gang, r.Resources, least)
		parts = append(parts, fmt.Sprintf("%d %s", least, r.Name))
	}
	if gang.Within(j.Limits) {
		return
	}
	l.complain(&b.def, b, "The job can never fit its limits",
		"The smallest world is %s, which needs %s, but the limits allow %s. Raise the limits, or lower min, replicas or resources.",
		strings.Join(parts, " and "), gang, limitsText(j.Limits))
}

// checkGroups checks a parallel layout: each world that may form has to be divisible by it.
func (l *loader) checkGroups(j *job.Job, t *tree, roles []*tree) {
	if t == nil || !t.sound("group") {
		return
	}
	blocks := t.blocks["group"]
	rest := slices.IndexFunc(blocks, func(b *tree) bool { return b.attrs["size"] == nil })
	unit, last, sound := 1, (*tree)(nil), true
	for i, d := range j.Topology.Groups {
		b := blocks[i]
		wrong := func(at *hcl.Range, summary, format string, args ...any) {
			l.complain(at, b, summary, format, args...)
			sound = false
		}
		switch {
		case b.attrs["size"] == nil && i > rest:
			wrong(&b.def, "Two groups without a size", "Only one dimension can take what the others leave, and %q does. Set size.", j.Topology.Groups[rest].Name)
		case b.attrs["size"] == nil:
		case !b.sound("size"):
			sound = false
		case d.Size < 1 || d.Size > MaxSlots:
			wrong(b.at("size"), "Invalid size", "A group has 1 to %d ranks, not %d.", MaxSlots, d.Size)
		case d.Name == job.DataDimension && rest < 0:
			wrong(b.at("size"), "Data group with a size", "The data dimension takes what the others leave. Remove size, or rename the group.")
		default:
			last, unit = b, min(unit*d.Size, MaxSlots*maxProcesses+1)
		}
	}
	if world := worldNotDividedBy(unit, j, roles); sound && world > 0 {
		is := "is"
		if slices.ContainsFunc(j.Roles, func(r job.Role) bool { return r.Ranked && r.Scaling != nil }) {
			is = "may be"
		}
		l.complain(last.at("size"), last, "The layout does not divide the world",
			"WORLD_SIZE %s %d, which is no multiple of %d, the product of all sizes. Correct the sizes, or the replicas, scaling or processes of the roles.", is, world, unit)
	}
}

// worldNotDividedBy returns the number of processes of a world that may form and is no multiple of unit; 0 if there is none, or if that
// is not known.
func worldNotDividedBy(unit int, j *job.Job, roles []*tree) int {
	least := 0
	for i := range j.Roles {
		r, t := &j.Roles[i], roles[i]
		if !t.sound("ranked", "replicas", "processes", "scaling") || !soundBlock(t.block("scaling")) {
			return 0
		}
		if low, high := r.Bounds(); low < 1 || high < low || high > MaxSlots || r.Processes < 1 {
			return 0
		}
		if r.Ranked {
			least += r.Sizes().Least() * r.Processes
		}
	}
	if least%unit != 0 {
		return least
	}
	for i := range j.Roles {
		r := &j.Roles[i]
		if !r.Ranked {
			continue
		}
		for n := range r.Sizes().All() {
			if more := (n - r.Sizes().Least()) * r.Processes; more%unit != 0 {
				return least + more
			}
		}
	}
	return 0
}

func soundBlock(t *tree) bool { return t == nil || len(t.failed) == 0 }

// maxAmount is more than any cluster has, and small enough to be added without overflow.
const maxAmount = math.MaxInt64 / 4

// addTimes returns sum + n*r, saturating at maxAmount.
func addTimes(sum, r job.Resources, n int) job.Resources {
	times := func(sum, one int64) int64 {
		if one > maxAmount/int64(n) {
			return maxAmount
		}
		return min(sum+one*int64(n), maxAmount)
	}
	out := job.Resources{
		CPU:     job.CPU(times(int64(sum.CPU), int64(r.CPU))),
		Memory:  job.Bytes(times(int64(sum.Memory), int64(r.Memory))),
		Devices: maps.Clone(sum.Devices),
	}
	for name, count := range r.Devices {
		out.Devices[name] = int(times(int64(sum.Devices[name]), int64(count)))
	}
	return out
}

func limitsText(l *job.Limits) string {
	var parts []string
	if l.CPU != nil {
		parts = append(parts, l.CPU.String()+" cpu")
	}
	if l.Memory != nil {
		parts = append(parts, l.Memory.String())
	}
	for _, name := range slices.Sorted(maps.Keys(l.Devices)) {
		parts = append(parts, fmt.Sprintf("%d %s", l.Devices[name], name))
	}
	return strings.Join(parts, ", ")
}

func (l *loader) checkPolicies(j *job.Job, t *tree) {
	if b := t.block("progress"); b != nil && b.sound("pattern", "recognizers") {
		l.checkProgress(j.Progress, b)
	}
	if b := t.block("checkpoint"); b != nil {
		if b.attrs["signal"] != nil && b.sound("signal") && j.Checkpoint.Signal != "" {
			l.checkSignal(j.Checkpoint.Signal, b)
		}
		if b.attrs["pattern"] != nil && b.sound("pattern") && j.Checkpoint.Pattern != "" {
			l.checkPattern(j.Checkpoint.Pattern, b)
		}
	}
	if b := t.block("rendezvous"); b != nil && b.sound("settle", "timeout") && j.Rendezvous.Settle >= j.Rendezvous.Timeout {
		at := b.at("timeout")
		if b.attrs["timeout"] == nil {
			at = b.at("settle")
		}
		l.complain(at, b, "Settle time above the timeout", "settle is %s and timeout is %s: a world could never settle in time. Shorten settle.",
			j.Rendezvous.Settle, j.Rendezvous.Timeout)
	}
	if b := t.block("topology"); b != nil && b.sound("rank_by") {
		l.checkRankBy(j.Topology.RankBy, b)
	}
	if b := t.block("detect"); b != nil && b.sound("lease") && j.Detect.Lease < minLease {
		l.complain(b.at("lease"), b, "Lease too short", "With a lease of %s a busy host would be considered lost: the minimum is %s.", j.Detect.Lease, minLease)
	}
	if b := t.block("detect").block("hang"); b != nil {
		l.checkHang(j.Detect.Hang, b)
	}
	if b := t.block("detect").block("check"); b != nil {
		rendezvous := t.block("rendezvous")
		l.checkNodeCheck(j, b, rendezvous == nil || rendezvous.sound("timeout"))
	}
	heal := t.block("heal")
	if b := heal.block("budget"); b != nil {
		l.checkBudget(j.Heal.Budget, b)
	}
	if heal != nil {
		l.checkExitCodes(j.Heal.ExitCodes, heal)
		l.checkSignatures(j.Heal.Signatures, heal)
		for i, b := range heal.blocks["on"] {
			l.checkOn(j.Heal.On[i], b)
		}
	}
}

func (l *loader) checkHang(h *job.HangLimits, t *tree) {
	switch {
	case t.sound("floor") && h.Floor.Std() < job.LeastFloor:
		l.complain(t.at("floor"), t, "Floor too short", "A busy host can delay training for %s: the minimum is %s.", h.Floor, job.Duration(job.LeastFloor))
	case t.sound("floor", "ceiling") && h.Ceiling != 0 && h.Ceiling < h.Floor:
		at := t.at("ceiling")
		if t.attrs["ceiling"] == nil {
			at = t.at("floor")
		}
		l.complain(at, t, "Ceiling below the floor", "floor is %s and ceiling is %s. Raise ceiling, or set it to 0s for no limit.", h.Floor, h.Ceiling)
	}
}

// checkNodeCheck checks when and for how long nodes are checked; known, whether the rendezvous timeout is.
func (l *loader) checkNodeCheck(j *job.Job, t *tree, known bool) {
	c := j.Detect.Check
	if t.sound("when") && !slices.Contains(job.CheckTimes, c.When) {
		times := texts(job.CheckTimes)
		l.complain(t.at("when"), t, "Unknown time of a check", "%q is not when a node can be checked; possible are %s.%s", c.When, list(times), suggest(string(c.When), times))
	}
	switch {
	case !t.sound("timeout"):
	case c.Timeout.Std() < job.LeastCheck:
		l.complain(t.at("timeout"), t, "Timeout too short", "On a busy host a good node would not pass in %s: the minimum is %s.", c.Timeout, job.Duration(job.LeastCheck))
	case known && c.Timeout >= j.Rendezvous.Timeout:
		l.complain(t.at("timeout"), t, "Timeout above the rendezvous timeout", "A check may take %s, and slots wait for a world for at most %s. Shorten it, or raise rendezvous.timeout.", c.Timeout, j.Rendezvous.Timeout)
	}
	if t.sound("command") && len(c.Command) > 0 && c.Command[0] == "" {
		l.complain(t.at("command"), t, "Missing program", "The first element is the program to run, and it is empty.")
	}
}

// exitVerdicts is what heal's exit_codes can say of a code.
var exitVerdicts = []string{job.ExitFails, job.ExitRetries}

func (l *loader) checkExitCodes(codes map[string]string, t *tree) {
	if len(codes) == 0 || !t.sound("exit_codes") {
		return
	}
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		if n, err := strconv.Atoi(code); err != nil || n < 1 || n > 255 || strconv.Itoa(n) != code {
			l.complain(t.at("exit_codes"), t, "Invalid exit code", "%q is not an exit code: write a number from 1 to 255.", code)
		}
		if verdict := codes[code]; !slices.Contains(exitVerdicts, verdict) {
			l.complain(t.at("exit_codes"), t, "Unknown verdict", "%q is not something to do about exit code %s; possible are %s.%s",
				verdict, code, list(exitVerdicts), suggest(verdict, exitVerdicts))
		}
	}
}

// checkSignatures tries the samples of a job's own signatures.
func (l *loader) checkSignatures(text string, t *tree) {
	if t.attrs["signatures"] == nil || !t.sound("signatures") {
		return
	}
	own, err := signature.ParseSignatures(text)
	if err == nil {
		err = signature.Check(own)
	}
	if err != nil {
		l.complain(t.at("signatures"), t, "Invalid signatures", "The signatures are invalid: %s.\n\nThey are a JSON list, each with name, cause, patterns and samples.", err)
	}
}

// checkProgress requires one way to read progress.
func (l *loader) checkProgress(p *job.Progress, t *tree) {
	switch {
	case p.Pattern == "" && p.Recognizers == "" && t.attrs["pattern"] == nil && t.attrs["recognizers"] == nil:
		l.complain(t.at("pattern"), t, "Empty progress block", "Set pattern or recognizers, or remove the block: what known frameworks print is recognized without it.")
	case t.attrs["recognizers"] == nil:
		l.checkPattern(p.Pattern, t)
	case t.attrs["pattern"] != nil:
		l.complain(t.at("recognizers"), t, "Pattern and recognizers", "The pattern takes the place of all recognizers: set only one of the two.")
	default:
		own, err := progress.ParseRecognizers(p.Recognizers)
		if err == nil {
			err = progress.Check(own)
		}
		if err != nil {
			l.complain(t.at("recognizers"), t, "Invalid recognizers", "The recognizers are invalid: %s.\n\nThey are a JSON list, each with name, patterns and samples.", err)
		}
	}
}

func (l *loader) checkPattern(pattern string, t *tree) {
	if len(pattern) > maxPattern {
		l.complain(t.at("pattern"), t, "Invalid pattern", "The pattern is longer than %d bytes.", maxPattern)
		return
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		l.complain(t.at("pattern"), t, "Invalid pattern", "This is not a regular expression (RE2): %s.", err)
		return
	}
	if re.SubexpIndex("step") < 0 {
		l.complain(t.at("pattern"), t, "Pattern without step", "The pattern must have a group named step, as in \"step (?P<step>\\\\d+)\": progress is measured in steps.")
	}
}

func (l *loader) checkSignal(signal string, t *tree) {
	if slices.Contains(checkpointSignals, signal) {
		return
	}
	hint := suggest(signal, checkpointSignals)
	if slices.Contains(checkpointSignals, "SIG"+strings.ToUpper(signal)) {
		hint = fmt.Sprintf(" Did you mean %q?", "SIG"+strings.ToUpper(signal))
	}
	l.complain(t.at("signal"), t, "Unknown signal", "%q cannot request a checkpoint; possible signals are %s.%s", signal, list(checkpointSignals), hint)
}

const labelPrefix = "node.labels."

func (l *loader) checkRankBy(levels []string, t *tree) {
	seen := map[string]bool{}
	for _, level := range levels {
		name, ok := strings.CutPrefix(level, labelPrefix)
		if !ok || name == "" {
			hint := ""
			if level != "" && !strings.Contains(level, ".") {
				hint = fmt.Sprintf(" Did you mean %q?", labelPrefix+level)
			}
			l.complain(t.at("rank_by"), t, "Invalid level", "%q does not name a node label: write \"node.labels.NAME\".%s", level, hint)
			continue
		}
		if seen[level] {
			l.complain(t.at("rank_by"), t, "Duplicate level", "%q is listed twice; use each level once.", level)
		}
		seen[level] = true
	}
}

func (l *loader) checkBudget(b job.Budget, t *tree) {
	if t.sound("restarts") && b.Restarts < 0 {
		l.complain(t.at("restarts"), t, "Invalid budget", "restarts cannot be %d: write 0 to never restart after the program's own failures, or the number allowed.", b.Restarts)
	}
	if t.sound("window") && b.Window < job.Duration(time.Second) {
		l.complain(t.at("window"), t, "Invalid budget", "A window of %s never contains two failures: the minimum is 1s.", b.Window)
	}
}

// maxBackoff is far above any outage that a restart is to survive.
const maxBackoff = job.Duration(time.Hour)

func (l *loader) checkOn(on job.On, t *tree) {
	if !slices.Contains(causes, on.Cause) {
		l.complain(&t.labelRanges[0], t, "Unknown cause", "Healing cannot be adjusted for %q, only for %s.%s", on.Cause, list(causes), suggest(on.Cause, causes))
		return
	}
	row := incident.Of(job.Cause(on.Cause))
	given := func(name string) bool { return t.attrs[name] != nil && t.sound(name) }
	if given("action") && !slices.Contains(row.Actions, on.Action) {
		possible := texts(row.Actions)
		l.complain(t.at("action"), t, "Unknown action", "%q is not something to do about %q; possible are %s.%s", on.Action, on.Cause, list(possible), suggest(string(on.Action), possible))
	}
	if given("memory") && row.Memory == 0 {
		l.complain(t.at("memory"), t, "Invalid memory", "Only a slot that ran out of memory can get more: on \"oom\".")
	}
	if given("limit") && (on.Limit < 1 || on.Limit >= job.MaxIncidents) {
		l.complain(t.at("limit"), t, "Invalid limit", "limit is from 1 to %d, not %d: %d incidents are remembered.", job.MaxIncidents-1, on.Limit, job.MaxIncidents)
	}
	if (given("limit") || given("window")) && row.Code != job.PendingTimeout && cmp.Or(on.Action, row.Default) == job.RemedyReport && t.sound("action") {
		l.complain(t.def.Ptr(), t, "Limit without an action", "Nothing is done about %q that a limit could bound: it is only reported. Set action, or remove limit and window.", on.Cause)
	}
	l.checkAfter(on, t)
	if given("limit") && row.Code == job.PendingTimeout {
		l.complain(t.at("limit"), t, "Invalid limit", "A job waits for places once at a time: set after.")
	}
	if given("window") && (row.Memory > 0 || row.OfJob()) {
		l.complain(t.at("window"), t, "Invalid window", "The limit of %q is without a window.", on.Cause)
	} else if given("window") && on.Window < job.Duration(time.Second) {
		l.complain(t.at("window"), t, "Invalid window", "A window of %s never contains two faults: the minimum is 1s.", on.Window)
	}
	if given("backoff") && (row.OfWorld() || row.OfJob()) {
		l.complain(t.at("backoff"), t, "Invalid backoff", "What is done about %q is done at once.", on.Cause)
	} else if given("backoff") && (on.Backoff < job.Duration(time.Millisecond) || on.Backoff > maxBackoff) {
		l.complain(t.at("backoff"), t, "Invalid backoff", "A second restart waits from 1ms to %s, not %s.", maxBackoff, on.Backoff)
	}
}

// checkAfter requires the time that a job may wait where it counts, and only there.
func (l *loader) checkAfter(on job.On, t *tree) {
	counts, given := job.Cause(on.Cause) == job.PendingTimeout, t.attrs["after"] != nil
	switch {
	case counts && !given:
		l.complain(&t.labelRanges[0], t, "Missing time", "Say how long the job may wait, as in after = \"2h\".")
	case !given || !t.sound("after"):
	case !counts:
		l.complain(t.at("after"), t, "Invalid time", "Only waiting has a time after which it counts: on \"pending_timeout\".")
	case on.After < job.Duration(time.Second):
		l.complain(t.at("after"), t, "Invalid time", "A job waits for at least 1s, not %s.", on.After)
	}
}
