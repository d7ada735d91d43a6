// Package importer converts training jobs of other tools to eltrain's language: DLRover's ElasticJob,
// Kubeflow's PyTorchJob and TrainJob, Volcano's Job, Kubernetes' Indexed Job, and the command lines of torchrun
// and dlrover-run.
//
// Nothing is dropped silently. A document is a tree of values, and reading a value marks it; values still unread
// when the job is written become warnings with their path and line. The only ones ignored without a warning are those
// that the cluster wrote itself (status, uid …) and those that eltrain's own service replaces (a rendezvous endpoint).
//
// The package treats manifests as text: it uses no client and no provider, contacts no cluster, and reads no file
// but the one it is given. Input is untrusted: see the bounds below.
package importer

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/job"
)

// The bounds are far above what people and generators write (etcd accepts no object above 1.5 MB), and low enough
// that the worst input is rejected within a second or two.
const (
	maxBytes  = 4 << 20 // per file
	maxValues = 200_000 // per file, with aliases expanded
	maxDepth  = 100     // nesting of values; lang rejects HCL that is nested five times as deep
	maxSlots  = 100_000 // in all jobs together: the scale that eltrain is designed for
)

// The providers of jobs imported from Kubernetes.
const (
	kubernetes = "kubernetes"
	volcano    = "volcano" // with queues
)

// localProvider is the provider of imported command lines, and the language's default.
const localProvider = "local"

// Result is the result of an import.
type Result struct {
	// HCL declares the jobs, in canonical format. It is empty if nothing could be imported.
	HCL []byte
	// Jobs is the number of jobs in it, Name the name of the first.
	Jobs int
	Name string
	// Diagnostics name what could not be imported, by path and position, and errors in the input.
	Diagnostics hcl.Diagnostics
	// Files are the sources that diagnostics point into, by the name in their ranges.
	Files map[string]*hcl.File
}

// importer is the state of one import.
type importer struct {
	name  string // name of the source, for diagnostics
	src   []byte
	lines []int         // offset of each line's first byte
	marks map[int][]int // by long line, offset of each markStep-th column: JSON may be one line of megabytes
	diags hcl.Diagnostics

	values int // read so far, in all documents
	slots  int // declared so far, in all jobs
	jobs   []*imported
	names  names // of the jobs
	// namespace is that of the first job; namespaceValue is its value in the source.
	namespace      string
	namespaceValue *value
	// queue is that of the first Volcano job; queueValue is its value in the source.
	queue      string
	queueValue *value

	checks  Checks
	checked int // work spent on Checks.Role so far, see maxChecked
	origins map[overlayField]origin
}

// imported is a job under construction.
type imported struct {
	job.Job
	from  string // the object that it was imported from, for the comment above it
	roles []*role
	names names  // of the roles
	at    *value // its name in the source
}

// role is a role under construction.
type role struct {
	job.Role
	// slotEnv names the variables whose value is the slot's index.
	slotEnv []string
	// container is the original name of the training container.
	container string
	// restarts is the number of restarts allowed, nil if not given.
	restarts *int
	// restartsValue is the value of the role's own number of restarts; nil if it has none.
	restartsValue *value
	// failFast is the value that makes the role's first failure end the job; nil if there is none.
	failFast *value
	// onFailure is whether the role has its own policy for failed pods, which overrides the job's.
	onFailure bool
	// serviceLinks is the pods' enableServiceLinks.
	serviceLinks bool
	// launch has the launcher's options; nil if there is no launcher.
	launch *launch
	// program is the value of the command.
	program *value
	// variables has the values of the variables of env, by name.
	variables map[string]*value
	// unresolved are references that remain in the command.
	unresolved []unresolved
}

func newImporter(name string, src []byte) *importer {
	im := &importer{name: name, src: src, lines: []int{0}, marks: map[int][]int{}}
	column := 1
	for offset := 0; offset < len(src); column++ {
		if line := len(im.lines); column > 1 && column%markStep == 1 {
			im.marks[line] = append(im.marks[line], offset)
		}
		r, size := utf8.DecodeRune(src[offset:])
		if offset += size; r == '\n' {
			im.lines, column = append(im.lines, offset), 0
		}
	}
	return im
}

// markStep is a number of columns that is found fast.
const markStep = 1 << 10

// Manifests imports all documents of a YAML or JSON file. The name is for diagnostics. What the checks reject is left
// out, with a warning.
func Manifests(name string, r io.Reader, checks Checks) Result {
	src, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	im := newImporter(name, src)
	im.checks = checks
	switch {
	case err != nil:
		im.fail(place{line: 1, column: 1}, "Cannot read the manifest", "Reading failed: %s.", err)
	case len(src) > maxBytes:
		im.src = nil // not quoted in diagnostics
		im.fail(place{line: 1, column: 1}, "Manifest too large",
			"The file is larger than %s. Kubernetes accepts no object of half that size: split the file into its documents, or name the one with the job.", job.Bytes(maxBytes))
	default:
		im.documents()
	}
	return im.result()
}

// CommandLine imports a command line, given as words: torchrun … or dlrover-run …
func CommandLine(words []string) Result {
	text := strings.Join(words, " ")
	im := newImporter("<command line>", []byte(text))
	if len(text) > maxBytes || len(words) > maxValues {
		im.src = nil
		im.fail(place{line: 1, column: 1}, "Command line too large", "It is larger than %s.", job.Bytes(maxBytes))
		return im.result()
	}
	im.command(words)
	return im.result()
}

// Plain is a program to run on this machine as it is, without a launcher.
type Plain struct {
	Name      string // of the job; "" for one made of the command
	Min, Max  int    // slots; if they differ the role is elastic
	Processes int    // per slot; 0 for the language's default
	Restarts  *int   // nil for the language's default
	Command   []string
}

// Job declares the job that runs a program.
func (p Plain) Job() Result {
	im := newImporter("<command line>", []byte(strings.Join(p.Command, " ")))
	j := &imported{from: "a command line", at: &value{path: "command", kind: sequence, key: place{line: 1, column: 1}}}
	setDefaults(&j.Job)
	r := im.newRole(j, "worker", nil)
	r.Command, r.restarts = p.Command, p.Restarts
	r.Processes = cmp.Or(p.Processes, r.Processes)
	if r.Replicas = p.Min; p.Min != p.Max {
		r.Scaling = new(job.Scaling)
		setDefaults(r.Scaling)
		r.Scaling.Min, r.Scaling.Max = p.Min, p.Max
	}
	j.Name = cmp.Or(p.Name, p.jobName())
	im.add(j)
	return im.result()
}

// jobName makes a name of the program or, if an interpreter runs it, of its script.
func (p Plain) jobName() string {
	program := path.Base(p.Command[0])
	if python.MatchString(program) || slices.Contains(shells, program) {
		return jobName(p.Command)
	}
	return legalStem(strings.TrimSuffix(program, path.Ext(program)))
}

// IsLauncher reports whether a command line starts a launcher that CommandLine imports.
func IsLauncher(words []string) bool {
	all := make([]word, len(words))
	for i, w := range words {
		all[i] = argumentWord(w)
	}
	_, is := launcherIn(all)
	return is
}

func (im *importer) result() Result {
	slices.SortStableFunc(im.diags, func(a, b *hcl.Diagnostic) int { return a.Subject.Start.Byte - b.Subject.Start.Byte })
	r := Result{Diagnostics: im.diags, Jobs: len(im.jobs), Files: map[string]*hcl.File{im.name: {Bytes: im.src}}}
	if len(im.jobs) == 0 {
		if !im.diags.HasErrors() {
			im.fail(place{line: 1, column: 1}, "No job to import",
				"There is no job of a kind that eltrain can import: %s.", knownKinds())
			r.Diagnostics = im.diags
		}
		return r
	}
	r.HCL, r.Name = im.write(), im.jobs[0].Name
	return r
}

// place is a position in the source: line and column from 1.
type place struct{ line, column, length int }

func (im *importer) diagnose(severity hcl.DiagnosticSeverity, at place, summary, format string, args ...any) {
	subject := im.rangeOf(at)
	detail := shownIndex.Replace(fmt.Sprintf(format, args...))
	im.diags = append(im.diags, &hcl.Diagnostic{Severity: severity, Summary: summary, Detail: detail, Subject: &subject})
}

func (im *importer) fail(at place, summary, format string, args ...any) {
	im.diagnose(hcl.DiagError, at, summary, format, args...)
}

// warn adds a warning about a value.
func (im *importer) warn(v *value, summary, format string, args ...any) {
	im.diagnose(hcl.DiagWarning, v.key, summary, "%s: %s", v.path, fmt.Sprintf(format, args...))
}

// drop marks a value as read and warns why it is not imported. It ignores nil and values that were read before.
func (im *importer) drop(v *value, format string, args ...any) {
	if v == nil || v.used {
		return
	}
	v.use()
	im.warn(v, "Not imported", format, args...)
}

// rangeOf converts a place to a range, limited to the source.
func (im *importer) rangeOf(at place) hcl.Range {
	line := min(max(at.line, 1), len(im.lines))
	offset := im.lines[line-1]
	end := len(im.src)
	if line < len(im.lines) {
		end = im.lines[line] - 1
	}
	end = min(end, len(im.src))
	column := 1
	if marks := im.marks[line]; at.column > markStep && len(marks) > 0 {
		n := min((at.column-1)/markStep, len(marks))
		offset, column = marks[n-1], 1+n*markStep
	}
	for column < at.column && offset < end {
		_, size := utf8.DecodeRune(im.src[offset:])
		offset, column = offset+size, column+1
	}
	offset = min(offset, len(im.src))
	start := hcl.Pos{Line: line, Column: column, Byte: offset}
	stop := start
	for range at.length {
		if stop.Byte >= end {
			break
		}
		_, size := utf8.DecodeRune(im.src[stop.Byte:])
		stop.Byte, stop.Column = stop.Byte+size, stop.Column+1
	}
	return hcl.Range{Filename: im.name, Start: start, End: stop}
}

// kind is one kind of object that can be imported.
type kind struct {
	name string
	// group is its API group; versions are the known versions.
	group    string
	versions []string
	read     func(im *importer, doc *value, j *imported) bool
}

// kinds lists all kinds that can be imported.
var kinds = []kind{
	{"ElasticJob", "elastic.iml.github.io", []string{"v1alpha1"}, (*importer).elasticJob},
	{"PyTorchJob", "kubeflow.org", []string{"v1"}, (*importer).pyTorchJob},
	{"TrainJob", "trainer.kubeflow.org", []string{"v1alpha1"}, (*importer).trainJob},
	{"Job", "batch.volcano.sh", []string{"v1alpha1"}, (*importer).volcanoJob},
	{"Job", "batch", []string{"v1"}, (*importer).indexedJob},
}

func knownKinds() string {
	var names []string
	for _, k := range kinds {
		names = append(names, fmt.Sprintf("%s (%s/%s)", k.name, k.group, k.versions[0]))
	}
	return strings.Join(names, ", ")
}

var errTooLarge = errors.New("too large")

// documents imports all documents. After a YAML error the rest of the file is not reliable.
func (im *importer) documents() {
	if !utf8.Valid(im.src) && !bytes.HasPrefix(im.src, []byte("\xff\xfe")) && !bytes.HasPrefix(im.src, []byte("\xfe\xff")) {
		im.fail(place{line: 1, column: 1}, "Not text", "The file is not UTF-8 text, so it is not a manifest.")
		return
	}
	err := im.eachDocument(func(doc *value) { im.document(doc) })
	if err != nil && !errors.Is(err, errTooLarge) {
		at, text := im.yamlError(err)
		im.fail(at, "Invalid YAML", "%s.", text)
	}
	if err != nil {
		im.jobs = nil // a part of a file could be misleading
	}
}

// document imports one object, or all objects of a List.
func (im *importer) document(doc *value) {
	if doc == nil {
		return // an empty document: "---" at the end of a file
	}
	if doc.kind != mapping {
		im.diagnose(hcl.DiagWarning, doc.at, "Not an object", "This document is not a Kubernetes object, so nothing of it is imported.")
		return
	}
	apiVersion, _ := doc.get("apiVersion").scalar()
	name, _ := doc.get("kind").scalar()
	group, version, ok := strings.Cut(apiVersion, "/")
	if !ok {
		group, version = "", apiVersion
	}
	if group == "" && version == "v1" && name == "List" {
		im.list(doc)
		return
	}
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name && k.group == group })
	if i < 0 {
		im.otherKind(doc, apiVersion, name)
		return
	}
	k := kinds[i]
	doc.get("apiVersion").use()
	doc.get("kind").use()
	if !slices.Contains(k.versions, version) {
		im.warn(doc.get("apiVersion"), "Unknown version", "%s is read as %s/%s.", apiVersion, k.group, k.versions[0])
	}
	if spec := doc.get("spec"); spec == nil || spec.kind != mapping {
		im.fail(doc.at, "Nothing to run", "This %s has no spec.", k.name)
		return
	}
	j := &imported{}
	setDefaults(&j.Job)
	j.Provider = kubernetes
	im.metadata(doc, j, k.name)
	doc.get("status").use()
	if !k.read(im, doc, j) {
		return
	}
	im.leftovers(doc)
	im.add(j)
}

// list imports all objects of a List, which kubectl get prints for several objects.
func (im *importer) list(doc *value) {
	items := doc.get("items")
	for _, item := range items.list() {
		im.document(item)
	}
	items.use() // each document has reported its own leftovers
	doc.get("apiVersion").use()
	doc.get("kind").use()
	meta := doc.get("metadata").open()
	for _, name := range append([]string{"continue", "remainingItemCount"}, clusterFields...) {
		meta.get(name).use()
	}
	im.leftovers(doc)
}

func (im *importer) otherKind(doc *value, apiVersion, kind string) {
	at := doc.at
	if v := doc.get("kind"); v != nil {
		at = v.key
	}
	what := strings.TrimSpace(kind + " " + apiVersion)
	if what == "" {
		what = "an object without apiVersion and kind"
	}
	name, _ := doc.get("metadata").get("name").scalar()
	if name != "" {
		what += fmt.Sprintf(" %q", name)
	}
	im.diagnose(hcl.DiagWarning, at, "Not a job", "This document is %s, which is not a job that eltrain can import. If the job needs it, apply it as before.", what)
}

// clusterFields are the metadata fields that the API server sets.
var clusterFields = []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"}

// metadata reads an object's name and namespace.
func (im *importer) metadata(doc *value, j *imported, kind string) {
	meta := doc.get("metadata").open()
	for _, name := range clusterFields {
		meta.get(name).use()
	}
	meta.get("annotations").open().get("kubectl.kubernetes.io/last-applied-configuration").use()

	name := meta.get("name")
	if name == nil {
		name = meta.get("generateName")
		if name != nil {
			im.warn(name, "Generated name", "eltrain identifies jobs by fixed names. The part before the random suffix is used.")
		}
	}
	text, _ := im.text(name)
	j.Name, j.at = strings.TrimSuffix(text, "-"), name
	if j.at == nil {
		j.at = doc
	}
	j.from = kind
	if text != "" {
		j.from += " " + text
	}

	if ns, ok := im.text(meta.get("namespace")); ok {
		j.from += " of the namespace " + ns
		im.inNamespace(ns, meta.get("namespace"))
	}
	for _, field := range []string{"labels", "annotations"} {
		for _, f := range meta.get(field).entries() {
			im.drop(f, "eltrain's jobs have no %s. Those of a role's pods are in pod.metadata.%s.", field, field)
		}
		meta.get(field).open()
	}
	im.drop(meta.get("ownerReferences"), "eltrain jobs have no owner object: the files declare them.")
	im.drop(meta.get("finalizers"), "eltrain does not run finalizers.")
}

// inNamespace records the namespace of a job. A job directory has only one.
func (im *importer) inNamespace(namespace string, at *value) {
	if check := im.checks.Namespace; check != nil {
		if err := check(namespace); err != nil {
			im.warnRejected(at, err)
			return
		}
	}
	switch {
	case im.namespaceValue == nil:
		im.namespace, im.namespaceValue = namespace, at
	case im.namespace != namespace:
		im.warn(at, "Another namespace", "The jobs of one directory run in one namespace, here %q of line %d. Import this one into a directory of its own.", im.namespace, im.namespaceValue.key.line)
	}
}

// inQueue records the queue of a Volcano job. A job directory has only one.
func (im *importer) inQueue(queue string, at *value) {
	if check := im.checks.Queue; check != nil {
		if err := check(queue); err != nil {
			im.warnRejected(at, err)
			return
		}
	}
	switch {
	case im.queueValue == nil:
		im.queue, im.queueValue = queue, at
	case im.queue != queue:
		im.warn(at, "Another queue", "The jobs of one directory are in one queue, here %q of line %d. Import this one into a directory of its own.", im.queue, im.queueValue.key.line)
	}
}

// add adds a job that was read, under a valid and unique name.
func (im *importer) add(j *imported) {
	for _, r := range j.roles {
		if !im.removeRejected(j, r) {
			return
		}
		_, most := r.Bounds()
		im.slots += most
		j.Roles = append(j.Roles, r.Role)
	}
	if im.slots > maxSlots {
		im.fail(j.at.key, "Too many slots", "With this job there are %d slots; the limit of one import is %d.", im.slots, maxSlots)
		return
	}
	im.budget(j)
	im.limits(j)
	j.Name = im.validName(j.Name, j.at, "job", &im.names)
	im.jobs = append(im.jobs, j)
}

// budget sets the job's restart budget to the largest of its roles: a job has only one.
func (im *importer) budget(j *imported) {
	most := -1
	for _, r := range j.roles {
		if r.restarts != nil {
			most = max(most, *r.restarts)
		}
	}
	if most < 0 {
		return
	}
	j.Heal.Budget.Restarts = most
	for _, r := range j.roles {
		switch {
		case r.failFast != nil && most > 0:
			im.warn(r.failFast, sharedBudget, "A failure of the role %s would end the job. In eltrain all roles share the job's restart budget, here %d.", r.Name, most)
		case r.restartsValue != nil && *r.restarts < most:
			im.warn(r.restartsValue, sharedBudget, "The role %s may be restarted %d times. In eltrain all roles share the job's restart budget, here the largest: %d.", r.Name, *r.restarts, most)
		}
	}
}

// sharedBudget is the summary of warnings about roles with different restart limits.
const sharedBudget = "One budget for all roles"

// limits removes limits that the smallest world exceeds, since lang rejects them.
func (im *importer) limits(j *imported) {
	if j.Limits == nil {
		return
	}
	var gang job.Resources
	for i := range j.Roles {
		r := &j.Roles[i]
		least, _ := r.Bounds()
		for range max(r.Ceil(least), least) {
			gang = gang.Add(r.Resources)
		}
	}
	if gang.Within(j.Limits) {
		return
	}
	im.warn(j.at, "Limits left out", "The smallest world needs %s, more than the job's resource limits, so they cannot have been in effect.", gang)
	j.Limits = nil
}

var illegal = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// maxName is the maximum length of a job's or role's name.
const maxName = 63

// names are the names that are taken, and by stem the largest number that was added to one.
type names struct {
	taken   map[string]bool
	numbers map[string]int
}

// take returns a name that is free, and takes it. One that is not free gets a number.
func (n *names) take(name string) string {
	if n.taken == nil {
		n.taken, n.numbers = map[string]bool{}, map[string]int{}
	}
	free := name
	for stem := name[:min(len(name), maxName-len("-100000"))]; n.taken[free]; {
		n.numbers[stem] = max(n.numbers[stem], 1) + 1
		suffix := "-" + strconv.Itoa(n.numbers[stem])
		free = strings.TrimRight(name[:min(len(name), maxName-len(suffix))], "-_") + suffix
	}
	n.taken[free] = true
	return free
}

// validName returns a valid name that was not taken, and warns if it differs from the given one.
func (im *importer) validName(name string, at *value, what string, taken *names) string {
	legal := strings.Trim(illegal.ReplaceAllString(name, "-"), "-_")
	if what == "role" && legal != "" && legal[0] <= '9' {
		legal = "role-" + legal // role.NAME must be a name in an expression
	}
	if len(legal) > maxName {
		legal = strings.TrimRight(legal[:maxName], "-_")
	}
	if legal == "" {
		legal = what
	}
	free := taken.take(legal)
	switch {
	case at == nil || free == name:
	case legal != name:
		im.warn(at, "Another name", "%q cannot be the name of a %s: renamed to %q. Names have letters, digits, \"-\" and \"_\", at most %d.", name, what, free, maxName)
	default:
		im.warn(at, "Another name", "There is another %s named %q: this one is renamed to %q.", what, legal, free)
	}
	return free
}

// newRole adds a role with the language's defaults.
func (im *importer) newRole(j *imported, name string, at *value) *role {
	r := &role{}
	setDefaults(&r.Role)
	r.Name = im.validName(name, at, "role", &j.names)
	j.roles = append(j.roles, r)
	return r
}

// command imports a command line as a job on this machine.
func (im *importer) command(words []string) {
	line := &value{path: "command", kind: sequence, key: place{line: 1, column: 1}, at: place{line: 1, column: 1}}
	column := 1
	at := place{line: 1, column: 1}
	var argv []string
	for i, w := range words {
		argv = append(argv, strings.ReplaceAll(w, "\x00", ""))
		at.length = utf8.RuneCountInString(w)
		line.children = append(line.children, &value{path: fmt.Sprintf("command[%d]", i), kind: scalar, tag: "!!str", text: w, key: at, at: at, used: true})
		for _, r := range w {
			column++
			if r == '\n' {
				at.line, column = at.line+1, 1
			}
		}
		column++ // the space
		at.column = column
	}
	j := &imported{from: "a command line", at: line}
	setDefaults(&j.Job)
	r := im.newRole(j, "worker", nil)
	r.program = line
	argv = im.assignments(r, argv, line)
	im.program(r, argv, line.children, nil)
	if r.launch == nil {
		im.fail(place{line: 1, column: 1}, "Not a launcher", "Only a command line that starts %s can be imported.", launcherNames)
		return
	}
	if r.launch.bare {
		im.fail(place{line: 1, column: 1}, "No training program",
			"The launcher has no script to run. Write it after the options, as you would run it: torchrun --nnodes=2:8 train.py")
		return
	}
	if o := r.launch.option("role"); o != nil {
		r.Name = im.validName(o.text, o.at, "role", new(names))
	}
	im.applyLaunch(j, r, size{})
	im.leftovers(line)
	j.Name = jobName(r.Command)
	im.add(j)
}

// assignments moves leading NAME=VALUE words of a command line to the role's env, and returns the other words.
func (im *importer) assignments(r *role, argv []string, line *value) []string {
	for len(argv) > 0 && assignment.MatchString(argv[0]) {
		name, text, _ := strings.Cut(argv[0], "=")
		if slices.Contains(ownVariables, name) {
			im.warn(line.children[0], "Not imported", ownVariableReason, name)
		} else {
			r.set(name, text, line)
		}
		argv, line.children = argv[1:], line.children[1:]
	}
	return argv
}

// jobName derives a job's name from its script.
func jobName(command []string) string {
	for i, word := range command {
		switch {
		case i == 0 && len(command) > 1, strings.HasPrefix(word, "-") && word != "-m" && word != "-c":
		case word == "-c": // of a shell or an interpreter: the next word is its program's text
			return legalStem(path.Base(command[0]))
		case word == "-m" && i+1 < len(command):
			return legalStem(command[i+1][strings.LastIndexByte(command[i+1], '.')+1:])
		default:
			return legalStem(strings.TrimSuffix(path.Base(word), path.Ext(word)))
		}
	}
	return "train"
}

func legalStem(s string) string {
	s = strings.Trim(illegal.ReplaceAllString(s, "-"), "-_")
	if s == "" {
		return "train"
	}
	return s[:min(len(s), maxName)]
}
