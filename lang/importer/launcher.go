package importer

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eltrain/eltrain/job"
)

// launch has the launcher's options, from its command line and PET_* variables.
type launch struct {
	options map[string]*option
	order   []string
	bare    bool // no training program follows the options
}

type option struct {
	text    string
	missing string // the unknown part of the text, as written; "" if all is known
	at      *value
}

// option returns a given option, or nil.
func (l *launch) option(name string) *option {
	if l == nil {
		return nil
	}
	return l.options[name]
}

func (l *launch) set(name string, o *option) {
	if l.options[name] == nil {
		l.order = append(l.order, name)
	}
	l.options[name] = o
}

// launcherNames lists the launchers for messages.
const launcherNames = "torchrun, dlrover-run, or python -m torch.distributed.run"

var launcherPrograms = []string{"torchrun", "dlrover-run"}

var launcherModules = []string{
	"torch.distributed.run", "torch.distributed.launch", "torch.distributed.launcher", "torch.distributed.elastic.run",
	"dlrover.trainer.torch.elastic_run", "dlrover.trainer.torch.main",
}

// Launches reports whether a word may be the first of a launcher's command line.
func Launches(word string) bool {
	name := path.Base(word)
	return slices.Contains(launcherPrograms, name) || python.MatchString(name)
}

// wrappers run the command that follows them, and can stay in the command.
var wrappers = []string{"env", "exec", "nohup", "numactl", "stdbuf", "nice", "ionice", "tini", "dumb-init", "taskset", "catchsegv"}

// otherLaunchers are launchers that cannot be imported.
var otherLaunchers = []string{"accelerate", "deepspeed", "mpirun", "mpiexec", "horovodrun", "ray", "srun", "colossalai"}

type arity int

const (
	flagOption arity = iota
	valueOption
)

// launcherOption is one option of torchrun or dlrover-run, spelled with dashes.
type launcherOption struct {
	name  string
	arity arity
	// why says why the option is not imported. Empty: it is imported, or it configures what eltrain's service does itself.
	why string
}

const (
	ownLogs   = "eltrain keeps the output of every process itself"
	noCheck   = "eltrain does not test nodes before they join yet"
	noTuning  = "eltrain tunes no program"
	ownSpawn  = "eltrain starts each process as a separate program"
	notNeeded = ""
)

// launcherOptions are those of torch.distributed.run up to 2.9, torch.distributed.launch, and dlrover-run 0.7.
var launcherOptions = []launcherOption{
	{"nnodes", valueOption, notNeeded}, {"nproc-per-node", valueOption, notNeeded}, {"max-restarts", valueOption, notNeeded},
	{"node-unit", valueOption, notNeeded}, {"rdzv-conf", valueOption, notNeeded}, {"role", valueOption, notNeeded},
	{"module", flagOption, notNeeded}, {"no-python", flagOption, notNeeded}, {"run-path", flagOption, notNeeded},

	// How agents find each other, and how often they poll: the service handles it.
	{"rdzv-backend", valueOption, notNeeded}, {"rdzv-endpoint", valueOption, notNeeded}, {"rdzv-id", valueOption, notNeeded},
	{"standalone", flagOption, notNeeded}, {"node-rank", valueOption, notNeeded}, {"master-addr", valueOption, notNeeded},
	{"master-port", valueOption, notNeeded}, {"local-addr", valueOption, notNeeded}, {"monitor-interval", valueOption, notNeeded},
	{"use-env", flagOption, notNeeded}, {"training-port", valueOption, notNeeded},

	{"start-method", valueOption, ownSpawn}, {"event-log-handler", valueOption, "eltrain writes its own events"},
	{"log-dir", valueOption, ownLogs}, {"redirects", valueOption, ownLogs}, {"tee", valueOption, ownLogs},
	{"local-ranks-filter", valueOption, ownLogs}, {"logs-specs", valueOption, ownLogs},
	{"duplicate-stdout-filters", valueOption, ownLogs}, {"duplicate-stderr-filters", valueOption, ownLogs},
	{"signals-to-handle", valueOption, "eltrain ends processes with SIGTERM, and with SIGKILL after stop_grace"},
	{"numa-binding", valueOption, "eltrain binds no process to cores or memory"},
	{"virtual-local-rank", flagOption, "every process sees all devices of its slot, and its LOCAL_RANK"},

	{"network-check", flagOption, noCheck}, {"comm-perf-test", flagOption, noCheck}, {"exclude-straggler", flagOption, noCheck},
	{"precheck", valueOption, noCheck}, {"node-group-check", flagOption, noCheck},
	{"auto-config", flagOption, noTuning}, {"auto-tunning", flagOption, noTuning},
	{"save-at-breakpoint", flagOption, "use checkpoint { signal = … } to have one written before a planned stop"},
	{"accelerator", valueOption, "eltrain treats devices as resources of any vendor"},
	{"numa-affinity", flagOption, "eltrain binds no process to cores or memory"}, {"membind-policy", valueOption, "eltrain binds no process to cores or memory"},
	{"ucp-device-type", valueOption, "eltrain converts no checkpoint"},
}

// shortOptions are torchrun's one-letter options.
var shortOptions = map[byte]string{'m': "module", 'r': "redirects", 't': "tee"}

// optionNamed finds an option as argparse does: by its name or by an unambiguous prefix.
func optionNamed(name string) (launcherOption, bool) {
	name = strings.ReplaceAll(name, "_", "-")
	var matches []launcherOption
	for _, o := range launcherOptions {
		if o.name == name {
			return o, true
		}
		if strings.HasPrefix(o.name, name) {
			matches = append(matches, o)
		}
	}
	if len(matches) != 1 {
		return launcherOption{}, false
	}
	return matches[0], true
}

// launcherMatch is a launcher in a command; its fields index the command's words.
type launcherMatch struct {
	first   int      // first word of the launcher
	options int      // first word after its name
	program int      // first word of the training program
	run     []string // the command that runs the program: python3, python -u …; empty with --no-python
	launch  *launch
}

var (
	python     = regexp.MustCompile(`^python[0-9.]*$`)
	assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
)

// leadingAssignments returns the number of leading words that set variables for the command.
func leadingAssignments(words []word) int {
	for i, w := range words {
		if len(w.parts) == 0 || !assignment.MatchString(w.parts[0].text) || w.parts[0].variable != "" {
			return i
		}
	}
	return len(words)
}

// launcherIn finds a launcher in a simple command.
func launcherIn(words []word) (launcherMatch, bool) {
	first := leadingAssignments(words)
	last := first + 1
	if first < len(words) {
		if text, ok := words[first].literal(); ok && slices.Contains(wrappers, path.Base(text)) {
			last = len(words)
		}
	}
	for i := first; i < min(last, len(words)); i++ {
		text, ok := words[i].literal()
		switch {
		case !ok:
		case slices.Contains(launcherPrograms, path.Base(text)):
			return launcherMatch{first: i, options: i + 1, run: []string{"python3"}}, true
		case python.MatchString(path.Base(text)):
			if f, ok := launcherModule(words, i); ok {
				return f, true
			}
		}
	}
	return launcherMatch{}, false
}

// launcherModule matches python … -m torch.distributed.run.
func launcherModule(words []word, at int) (launcherMatch, bool) {
	text, _ := words[at].literal()
	f := launcherMatch{first: at, run: []string{text}}
	for i := at + 1; i < len(words); i++ {
		flag, ok := words[i].literal()
		switch {
		case !ok || !strings.HasPrefix(flag, "-"):
			return f, false
		case flag == "-m":
			if i+1 >= len(words) {
				return f, false
			}
			module, _ := words[i+1].literal()
			f.options = i + 2
			return f, slices.Contains(launcherModules, module)
		case flag == "-X" || flag == "-W":
			if i+1 >= len(words) {
				return f, false
			}
			value, _ := words[i+1].literal()
			f.run = append(f.run, flag, value)
			i++
		default:
			f.run = append(f.run, flag)
		}
	}
	return f, false
}

// readOptions reads a launcher's options, up to the training program. at returns the source of a word.
func (im *importer) readOptions(words []word, f *launcherMatch, known map[string]string, at func(i int) *value) {
	f.launch = &launch{options: map[string]*option{}}
	i := f.options
	for ; i < len(words); i++ {
		text, missing := words[i].expand(known)
		if text == "--" {
			i++
			break
		}
		if !strings.HasPrefix(text, "-") || text == "-" {
			break
		}
		name, value, attached := strings.Cut(strings.TrimLeft(text, "-"), "=")
		if !strings.HasPrefix(text, "--") {
			name, value = shortOptions[text[1]], strings.TrimPrefix(text[2:], "=")
			attached = value != ""
		}
		o, ok := optionNamed(name)
		if name == "" || !ok {
			taken := ""
			if !attached && takesNext(words, i+1) {
				value, _ = words[i+1].expand(known)
				taken = fmt.Sprintf(" The word after it, %q, is taken as its value.", value)
			}
			im.warn(at(i), "Not imported", "%s is not a known option of torchrun or dlrover-run.%s", text, taken)
			if taken != "" {
				i++
			}
			continue
		}
		if o.arity == valueOption && !attached {
			if i+1 >= len(words) {
				im.warn(at(i), "Not imported", "%s needs a value.", text)
				continue
			}
			i++
			value, missing = words[i].expand(known)
		}
		if strings.Contains(value, slotIndex) {
			missing = "the slot's index"
		}
		f.launch.set(o.name, &option{text: strings.TrimSpace(value), missing: missing, at: at(i)})
	}
	f.program = min(i, len(words))
	f.launch.bare = f.program == len(words)
	switch {
	case f.launch.option("no-python") != nil:
		f.run = nil
	case f.launch.option("module") != nil:
		f.run = append(f.run, "-m")
	}
	if f.launch.bare {
		f.run = append(f.run, missingProgram)
	}
}

// missingProgram is the placeholder for a missing training program.
const missingProgram = "TRAINING-PROGRAM"

// takesNext guesses whether the word after an unknown option is its value; a script is not.
func takesNext(words []word, i int) bool {
	if i+1 >= len(words) {
		return false
	}
	text, _ := words[i].expand(nil)
	return !strings.HasPrefix(text, "-") && !strings.HasSuffix(text, ".py")
}

// size is the number of slots that the manifest itself gives to a role; 0 means not given.
type size struct {
	replicas, least, most int
	world                 int // pods of all roles, if the launcher's --nnodes may be that number
}

// applyLaunch sets a role's size, processes and restarts from the launcher's options and the manifest.
func (im *importer) applyLaunch(j *imported, r *role, s size) {
	if len(r.Command) > 0 && r.Command[0] == "" {
		r.Command[0] = missingProgram
		im.warn(r.program, "No program", "The first word of the command names the program, but is empty. Replace %s with it.", missingProgram)
	}
	least, most := im.nodes(r, s)
	if least < most {
		r.Scaling = &job.Scaling{Min: least, Max: most, Step: 1}
	} else {
		r.Replicas = most
	}
	im.nodeUnit(r)
	if r.Scaling != nil && s.replicas > 0 {
		if start := r.Floor(max(s.replicas, r.Ceil(least))); start > 0 && start != r.Ceil(least) {
			r.Replicas = start
		}
	}
	if r.launch == nil {
		return
	}
	if r.launch.bare {
		im.warn(r.program, "No training program", "The launcher has no script to run. Replace %s with it.", missingProgram)
	}
	im.processes(r)
	if o := r.launch.option("max-restarts"); o != nil {
		if n, ok := im.optionNumber("max-restarts", o, 0, maxRestarts); ok {
			r.addRestarts(n)
		}
	}
	im.rendezvous(j, r)
	for _, name := range r.launch.order {
		spec, _ := optionNamed(name)
		if spec.why != "" {
			im.warnOption(name, r.launch.options[name], "%s", spec.why+".")
		}
	}
	if o := r.launch.option("role"); o != nil && j.Provider != localProvider && o.text != r.Name {
		im.warnOption("role", o, "The role is %q, and so is ROLE_NAME.", r.Name)
	}
}

// maxRestarts is more than any job needs, and keeps sums small.
const maxRestarts = 1_000_000

// addRestarts adds to the restarts allowed: those of processes and those of pods share one budget in eltrain.
func (r *role) addRestarts(n int) {
	if r.restarts == nil {
		r.restarts = new(int)
	}
	*r.restarts += n
}

func (im *importer) warnOption(name string, o *option, format string, args ...any) {
	im.warn(o.at, "Not imported", "--"+name+": "+format, args...)
}

func (im *importer) optionNumber(name string, o *option, least, most int) (int, bool) {
	n, err := strconv.Atoi(o.text)
	switch {
	case o.missing != "":
		im.warnOption(name, o, "The value of %s is unknown here.", o.missing)
	case err != nil || n < least || n > most:
		im.warnOption(name, o, "%q is not a whole number from %d to %d.", o.text, least, most)
	default:
		return n, true
	}
	return 0, false
}

// nodes returns the bounds of a role. The manifest's own take precedence over the command's. If the command accepts more
// nodes than there are pods, the number of pods is the maximum, since no more were requested.
func (im *importer) nodes(r *role, s size) (least, most int) {
	o := r.launch.option("nnodes")
	from, to, ok := 0, 0, false
	if o != nil {
		from, to, ok = im.nnodes(o)
	}
	switch {
	case s.least > 0 || s.most > 0:
		most = max(s.most, s.least)
		if s.most == 0 {
			most = max(s.replicas, s.least)
		}
		least = min(max(s.least, 1), most)
		if ok && (from != least || to != most) {
			im.warnOption("nnodes", o, "The manifest's bounds, %d to %d, are used.", least, most)
		}
	case ok && s.replicas == 0:
		least, most = from, to
	case ok && from == to:
		least, most = s.replicas, s.replicas
		if from != s.replicas && from != s.world {
			im.warnOption("nnodes", o, "The command waits for %d nodes, but there are %d pods; the number of pods is used.", from, s.replicas)
		}
	case ok:
		most = min(to, s.replicas)
		least = min(from, most)
		if to != s.replicas {
			im.warnOption("nnodes", o, "The command accepts %d to %d nodes, and there are %d pods: max is %d. Raise it to let the job grow.", from, to, s.replicas, most)
		}
	default:
		least = max(s.replicas, 1)
		most = least
	}
	return least, most
}

// nnodes reads "4" or "2:8".
func (im *importer) nnodes(o *option) (from, to int, ok bool) {
	if o.missing != "" {
		im.warnOption("nnodes", o, "The value of %s is unknown here.", o.missing)
		return 0, 0, false
	}
	low, high, ranged := strings.Cut(o.text, ":")
	if !ranged {
		high = low
	}
	from, err := strconv.Atoi(low)
	to, err2 := strconv.Atoi(high)
	if err != nil || err2 != nil || from < 1 || to < from || to > maxSlots {
		im.warnOption("nnodes", o, "%q is not a number of nodes, like 4 or 2:8.", o.text)
		return 0, 0, false
	}
	return from, to, true
}

// nodeUnit sets the scaling step from dlrover-run's --node_unit.
func (im *importer) nodeUnit(r *role) {
	o := r.launch.option("node-unit")
	if o == nil {
		return
	}
	unit, ok := im.optionNumber("node-unit", o, 1, maxSlots)
	switch {
	case !ok || unit == 1:
	case r.Scaling == nil && r.Replicas%unit != 0:
		im.warnOption("node-unit", o, "%d slots are not a multiple of %d; all are kept.", r.Replicas, unit)
	case r.Scaling == nil:
	case r.Scaling.Max/unit*unit < r.Scaling.Min:
		im.warnOption("node-unit", o, "No multiple of %d is between %d and %d.", unit, r.Scaling.Min, r.Scaling.Max)
	default:
		r.Scaling.Step = unit
	}
}

// maxProcesses is lang's limit.
const maxProcesses = 1024

// perDevice are the values of nproc_per_node that mean one process per device.
var perDevice = []string{"gpu", "auto", "xpu"}

func perDeviceText(number string) string {
	return fmt.Sprintf("%q means one process per device, but the number of devices is unknown here. 1 is used.", number)
}

// processes reads nproc_per_node: a number, or one of perDevice.
func (im *importer) processes(r *role) {
	o := r.launch.option("nproc-per-node")
	if o == nil {
		return
	}
	switch {
	case slices.Contains(perDevice, o.text):
		devices := 0
		for _, n := range r.Resources.Devices {
			devices += n
		}
		if len(r.Resources.Devices) == 1 && devices >= 1 && devices <= maxProcesses {
			r.Processes = devices
			return
		}
		im.warnOption("nproc-per-node", o, "%s", perDeviceText(o.text))
	case o.text == "cpu":
		im.warnOption("nproc-per-node", o, "%q means one process per core, but the number of cores is unknown here. 1 is used.", o.text)
	default:
		if n, ok := im.optionNumber("nproc-per-node", o, 1, maxProcesses); ok {
			r.Processes = n
		}
	}
}

// Defaults of torchrun's dynamic rendezvous, for when only one of the two is given (pytorch, dynamic_rendezvous.py).
const (
	keepAliveInterval = 5 * time.Second
	keepAliveAttempts = 3
)

// minLease is lang's minimum.
const minLease = time.Second

// rendezvous reads --rdzv-conf: key=value,…, times in seconds.
func (im *importer) rendezvous(j *imported, r *role) {
	o := r.launch.option("rdzv-conf")
	if o == nil || o.text == "" {
		return
	}
	interval, attempts, alive := keepAliveInterval, keepAliveAttempts, false
	for pair := range strings.SplitSeq(o.text, ",") {
		key, text, _ := strings.Cut(strings.TrimSpace(pair), "=")
		key = strings.ReplaceAll(strings.TrimSpace(key), "-", "_")
		seconds, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		span := time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
		if err != nil || !(seconds > 0 && seconds < maxSeconds) {
			im.warnOption("rdzv-conf", o, "%q is not a setting with a number of seconds.", strings.TrimSpace(pair))
			continue
		}
		switch key {
		case "join_timeout", "timeout":
			j.Rendezvous.Timeout = job.Duration(span)
		case "last_call_timeout", "lastcall_timeout":
			j.Rendezvous.Settle = job.Duration(span)
		case "keep_alive_interval":
			interval, alive = span, true
		case "keep_alive_max_attempt":
			attempts, alive = int(seconds), true
		case "read_timeout", "close_timeout", "rank", "is_host": // of the connection to a store that eltrain does not have
		default:
			im.warnOption("rdzv-conf", o, "%s has no equivalent in eltrain.", key)
		}
	}
	if alive {
		j.Detect.Lease = job.Duration(max(interval*time.Duration(attempts), minLease))
	}
	if j.Rendezvous.Settle >= j.Rendezvous.Timeout {
		im.warnOption("rdzv-conf", o, "A last call of %s never ends within %s, so eltrain's defaults are used for both.", j.Rendezvous.Settle, j.Rendezvous.Timeout)
		setDefaults(&j.Rendezvous)
	}
}

// maxSeconds is thirty years, more than any real timeout.
const maxSeconds = 1e9

// program sets the role's command from the words of a container's command, without the launcher, which eltrain's agent
// replaces. args are the sources of the words. known has the variables whose values are known.
func (im *importer) program(r *role, argv []string, args []*value, known map[string]string) {
	if len(argv) == 0 {
		return
	}
	r.Command = argv
	if index, ordinary, ok := shellScript(argv); ok {
		im.script(r, index, ordinary, args[min(index, len(args)-1)], known)
		return
	}
	words := make([]word, len(argv))
	for i, a := range argv {
		words[i] = argumentWord(a)
	}
	f, ok := launcherIn(words)
	if !ok {
		im.unknownLauncher(argv, args[0])
		return
	}
	im.readOptions(words, &f, known, func(i int) *value { return args[min(i, len(args)-1)] })
	r.launch = f.launch
	r.Command = slices.Concat(argv[:f.first], f.run, argv[f.program:])
}

// unknownLauncher warns about programs that may launch others.
func (im *importer) unknownLauncher(argv []string, at *value) {
	name := path.Base(argv[0])
	switch {
	case slices.Contains(otherLaunchers, name):
		im.warn(at, "Another launcher", "%s starts and connects processes by itself, once in every slot. Let eltrain do that: write the training program itself and its number of processes per slot.", name)
	case strings.HasSuffix(name, ".sh"), slices.Contains(shells, name) && len(argv) > 1:
		im.warn(at, "A script that is not in the manifest", "Its content is unknown here. If it starts torchrun, let it start the training program instead: eltrain's agent replaces torchrun.")
	}
}

// script reads a shell script. If it only runs a launcher, perhaps after a change of directory and some exports, the
// program needs no shell; in any other script the launcher's words are replaced by the program's.
func (im *importer) script(r *role, index int, ordinary bool, at *value, known map[string]string) {
	argv := r.Command
	s, err := parseScript(argv[index])
	if err != nil {
		im.warn(at, "Script not understood", "In this shell script %s, so a launcher in it cannot be found.", err)
		return
	}
	known = maps.Clone(known)
	if known == nil {
		known = map[string]string{}
	}
	setup := setup{ok: ordinary && s.plain}
	var launchers []launcherMatch
	var where []int
	for i, st := range s.statements {
		f, ok := launcherIn(st.words)
		if !ok {
			setup.read(st, known, r)
			continue
		}
		im.readOptions(st.words, &f, known, func(int) *value { return at })
		launchers, where = append(launchers, f), append(where, i)
	}
	if len(launchers) == 0 {
		if len(s.statements) > 0 {
			im.unknownLauncher(lastWords(s), at)
		}
		return
	}
	r.launch = launchers[0].launch
	if len(launchers) > 1 {
		im.warn(at, "Several launchers", "The script starts a launcher in %d places. The options of the first one are used for the role.", len(launchers))
	}
	if setup.ok && len(launchers) == 1 && where[0] == len(s.statements)-1 && im.unwrap(&setup, r, at, s.statements[where[0]], launchers[0]) {
		return
	}
	if setup.others || !s.plain {
		im.warn(at, "The script runs in every process", "The commands around the launcher ran once per pod. Now they run in each training process and at each restart: make them idempotent, or move them into the image.")
	}
	r.Command = slices.Clone(argv)
	r.Command[index] = replaceLaunchers(s, where, launchers)
}

func lastWords(s script) []string {
	var out []string
	for _, w := range s.statements[len(s.statements)-1].words {
		text, _ := w.expand(nil)
		out = append(out, text)
	}
	return out
}

// replaceLaunchers returns the script with the launchers replaced by the training programs.
func replaceLaunchers(s script, where []int, launchers []launcherMatch) string {
	var b strings.Builder
	last := 0
	for i, f := range launchers {
		st := s.statements[where[i]]
		b.WriteString(s.text[last:st.words[f.first].start])
		for _, word := range f.run {
			b.WriteString(word + " ")
		}
		last = st.end
		if f.program < len(st.words) {
			last = st.words[f.program].start
		}
	}
	b.WriteString(s.text[last:])
	return b.String()
}

// setup is what a script does before its launcher, as far as that needs no shell.
type setup struct {
	ok     bool // no shell is needed so far
	others bool // there are other commands
	dir    string
	env    []string // NAME=VALUE
}

// read adds a statement that does not run a launcher.
func (s *setup) read(st statement, known map[string]string, r *role) {
	var texts []string
	fixed := true
	for _, w := range st.words {
		text, missing := w.expand(known)
		texts = append(texts, text)
		fixed = fixed && missing == "" && !w.pattern
	}
	assignments, exported := texts, texts[0] == "export"
	if exported {
		assignments = texts[1:]
	}
	switch {
	case texts[0] == "set":
	case fixed && texts[0] == "cd" && len(texts) == 2 && texts[1] != "-" && texts[1] != "":
		base := s.dir
		if base == "" {
			base = r.WorkingDir
		}
		s.dir = texts[1]
		if !path.IsAbs(s.dir) {
			s.dir = path.Join(base, s.dir)
		}
	case fixed && len(assignments) > 0 && !slices.ContainsFunc(assignments, func(a string) bool { return !assignment.MatchString(a) }):
		for _, a := range assignments {
			name, text, _ := strings.Cut(a, "=")
			known[name] = text
		}
		if exported {
			s.env = append(s.env, assignments...)
		}
	default:
		s.ok, s.others = false, true
	}
}

// unwrap makes the program the role's command and returns true, if nothing in it needs a shell.
func (im *importer) unwrap(s *setup, r *role, at *value, st statement, f launcherMatch) bool {
	first := leadingAssignments(st.words)
	var env []string
	var command []string
	for i, w := range st.words {
		if i >= f.first && i < f.program {
			continue // the launcher
		}
		text, ok := w.literal()
		switch {
		case !ok:
			return false
		case i < first:
			env = append(env, text)
		case i < f.first && text != "exec":
			command = append(command, text)
		}
	}
	command = append(command, f.run...)
	for _, w := range st.words[f.program:] {
		text, _ := w.literal()
		command = append(command, text)
	}
	if len(command) == 0 {
		return false
	}
	r.Command = command
	for _, pair := range append(s.env, env...) {
		name, text, _ := strings.Cut(pair, "=")
		if slices.Contains(ownVariables, name) {
			im.warn(at, "Not imported", ownVariableReason, name)
			continue
		}
		r.set(name, text, r.program)
	}
	if s.dir != "" {
		r.WorkingDir = s.dir
	}
	return true
}
