package lang

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/eltrain/eltrain/job"
)

// moduleBlock is a module block. Its other arguments set the variables of the module's directory.
type moduleBlock struct {
	Name    string         `hcl:"name,label" doc:"The module's name, the prefix of its jobs' names. Its outputs are module.NAME.OUTPUT."`
	Source  hcl.Expression `hcl:"source,required" doc:"The directory, relative to this one: \"./base\" or \"../base\"."`
	ForEach hcl.Expression `hcl:"for_each,optional" doc:"A map or a set of strings: one module per element, as module.NAME[\"KEY\"]. Arguments may refer to each.key and each.value."`
}

// source holds a directory's files, which are read once, however often it is used as a module.
type source struct {
	dir        string
	info       fs.FileInfo                   // identifies the directory, whatever path leads to it; nil if unknown
	blocks     map[string][]*hclsyntax.Block // by type, in file order
	incomplete bool                          // some files could not be read; they may declare what seems undeclared
	functions  map[string]function.Function
	size       int // in bytes
}

// silenceIfIncomplete silences a diagnostic about an undeclared name if a file that could not be read may declare it: that file must
// be fixed first.
func (src *source) silenceIfIncomplete(d *hcl.Diagnostic) *hcl.Diagnostic {
	if d != nil && src.incomplete {
		d.Extra = alreadyReported{}
	}
	return d
}

// anyIncomplete reports whether any file of the job directory or of a module could not be read.
func (s *shared) anyIncomplete() bool {
	for _, src := range s.sources {
		if src.incomplete {
			return true
		}
	}
	return s.cfg.loader.incomplete
}

// call is one module block.
type call struct {
	named
	name      string
	block     *hclsyntax.Block
	source    *source   // nil if invalid
	instances []*loader // an undecided one represents all possible ones
}

// maxModuleDepth is far above any useful nesting.
const maxModuleDepth = 32

// notModuleArguments are arguments of Terraform's modules that ours do not have, with what to do instead.
var notModuleArguments = map[string]string{
	"version":    "A module is a local directory without a version of its own. Remove the argument.",
	"count":      "Use for_each = toset([…]): named instances keep their identity when others are added or removed.",
	"providers":  "All modules share the job directory's providers. Remove the argument; a job selects one with provider.",
	"depends_on": "Jobs do not depend on each other. Remove the argument.",
}

// rootOnly lists the blocks that a module cannot have.
var rootOnly = map[string]string{
	"eltrain":  "settings belong in the directory where eltrain is run",
	"provider": "providers belong in the directory where eltrain is run",
	"notify":   "notifications belong in the directory where eltrain is run, and may name the module's jobs: jobs = [module.NAME]",
	"import":   "imports belong in the directory where eltrain is run, with the full address: to = module.NAME.job.NAME",
}

// declareCalls reads the module blocks.
func (l *loader) declareCalls() []*named {
	seen := map[string]hcl.Range{}
	var order []*named
	for _, b := range l.blocks["module"] {
		l.checkLabel("module", b.AsHCLBlock(), seen)
		if l.calls[b.Labels[0]] != nil {
			continue
		}
		c := &call{name: b.Labels[0], block: b}
		c.named = named{address: "module." + c.name, at: b.LabelRanges[0]}
		c.make = func(ctx *hcl.EvalContext) cty.Value { return l.evaluateCall(c, ctx) }
		c.source = l.moduleSource(c)
		for _, attr := range arguments(b) {
			c.exprs = append(c.exprs, &attr.Expr)
		}
		l.calls[c.name] = c
		order = append(order, &c.named)
	}
	return order
}

// arguments returns the arguments of a module block in file order, without its source.
func arguments(b *hclsyntax.Block) []*hclsyntax.Attribute {
	attrs := slices.Collect(maps.Values(b.Body.Attributes))
	slices.SortFunc(attrs, func(a, b *hclsyntax.Attribute) int { return a.NameRange.Start.Byte - b.NameRange.Start.Byte })
	return slices.DeleteFunc(attrs, func(a *hclsyntax.Attribute) bool { return a.Name == "source" || notModuleArguments[a.Name] != "" })
}

// checkCallExpressions reports unknown names in a module block.
func (l *loader) checkCallExpressions(c *call) {
	s := scope{vars: true, locals: true, modules: true, where: "a module block"}
	for _, attr := range arguments(c.block) {
		inner := s
		inner.each = c.block.Body.Attributes["for_each"] != nil && attr.Name != "for_each"
		l.checkExpr(&attr.Expr, inner)
	}
}

// moduleSource opens the directory that a module block names. It reports errors in the block and returns nil without a
// usable source.
func (l *loader) moduleSource(c *call) *source {
	for _, inner := range c.block.Body.Blocks {
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "Unsupported block type",
			Detail:  "A module block has only arguments: source, for_each, and the module's variables.",
			Subject: inner.TypeRange.Ptr(),
		})
	}
	for name, why := range notModuleArguments {
		if attr := c.block.Body.Attributes[name]; attr != nil {
			l.report(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Unsupported argument", Detail: why, Subject: attr.NameRange.Ptr()})
		}
	}
	attr := c.block.Body.Attributes["source"]
	if attr == nil {
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "Missing required argument",
			Detail:  `The argument "source" is required in a module block: the directory of the module, like source = "./base".`,
			Subject: c.block.DefRange().Ptr(),
		})
		return nil
	}
	path, ok := l.localPath(attr)
	if !ok {
		return nil
	}
	return l.openModule(c, path, attr)
}

// localPath returns the path in a source argument.
func (l *loader) localPath(attr *hclsyntax.Attribute) (path string, ok bool) {
	bad := func(summary, format string, args ...any) (string, bool) {
		l.report(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: attr.Expr.Range().Ptr()})
		return "", false
	}
	if len(attr.Expr.Variables()) > 0 {
		return bad("Invalid module source", "The files cannot depend on values: write the path as a literal string.")
	}
	val, diags := attr.Expr.Value(nil)
	if diags.HasErrors() || val.IsNull() || !val.IsKnown() || val.Type() != cty.String {
		return bad("Invalid module source", "The source must be a string: the directory of the module, like \"./base\".")
	}
	path = val.AsString()
	switch {
	case path == "." || path == ".." || strings.HasPrefix(path, "./") || strings.HasPrefix(path, "../"):
		return path, true
	case filepath.IsAbs(path):
		return bad("Unsupported module source", "Modules are local directories, by a relative path that begins with \"./\" or \"../\": the absolute path %q exists only on this machine.", path)
	case strings.ContainsAny(path, ":?@") || strings.Count(path, "/") > 1:
		return bad("Unsupported module source",
			"Modules are local directories, by a relative path that begins with \"./\" or \"../\". Registries, git and URLs are not supported: fetch the files first, for example with a git submodule or git-sync.")
	}
	return bad("Unsupported module source", "Modules are local directories, by a relative path. Did you mean %q?", "./"+path)
}

// openModule reads a module's directory, once.
func (l *loader) openModule(c *call, path string, attr *hclsyntax.Attribute) *source {
	at := attr.Expr.Range()
	dir := filepath.Join(l.dir, path)
	err := l.opts.Inside(dir)
	var info fs.FileInfo
	if err == nil {
		info, err = os.Stat(dir)
	}
	switch {
	case errors.Is(err, syscall.ELOOP):
		err = loopError(linkLoop(dir), err)
	case err == nil && !info.IsDir():
		err = errors.New("it is not a directory")
	}
	if err != nil {
		l.report(unreadableModule(path, err, at))
		return nil
	}
	if !l.checkInclusion(info, dir, at) {
		return nil
	}
	if known := l.sources[dir]; known != nil {
		return known
	}
	src := &source{dir: dir, info: info, blocks: map[string][]*hclsyntax.Block{}}
	l.sources[dir] = src
	l.cfg.Directories = append(l.cfg.Directories, dir)
	files, diags := l.opts.readDirectory(dir, isConfig)
	if files == nil {
		src.incomplete = true
		l.report(unreadableModule(path, errors.New(diags[0].Detail), at))
		return src
	}
	before := len(l.diags)
	l.report(diags...)
	src.incomplete = diags.HasErrors()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if src.size += len(files[name]); !l.meter.spend(len(files[name]) / bytesPerStep) {
			l.meter.blame(at)
			src.incomplete = true
			return src
		}
		l.sortBlocks(src, l.parseFile(name, files[name]))
	}
	if len(src.blocks) == 0 && !l.diags[before:].HasErrors() {
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "Empty module",
			Detail:  fmt.Sprintf("All .hcl files in %q are empty, or there are none. A module is all *.hcl files of one directory.", dir),
			Subject: &at,
		})
	}
	l.checkModuleBlocks(src)
	return src
}

func unreadableModule(path string, err error, at hcl.Range) *hcl.Diagnostic {
	detail := fmt.Sprintf("The module's directory %q cannot be read: %s.", path, err)
	if errors.Is(err, fs.ErrNotExist) {
		detail = fmt.Sprintf("The directory %q does not exist. The path is relative to the directory of this file.", path)
	}
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Cannot read module", Detail: detail, Subject: &at}
}

// checkInclusion reports a module that includes itself, even through links, and nesting that is too deep.
func (l *loader) checkInclusion(info fs.FileInfo, dir string, at hcl.Range) bool {
	chain := []string{shown(dir)}
	for m := l; m != nil; m = m.parent {
		chain = append(chain, shown(m.dir))
		if m.info == nil {
			m.info, _ = os.Stat(shown(m.dir)) // the job directory
		}
		if m.info == nil || !os.SameFile(m.info, info) {
			continue
		}
		slices.Reverse(chain)
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "Module includes itself",
			Detail:  inclusionText(chain),
			Subject: &at,
		})
		return false
	}
	if len(chain) > maxModuleDepth {
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "Modules nested too deeply",
			Detail:  fmt.Sprintf("Modules are nested more than %d levels deep.", maxModuleDepth),
			Subject: &at,
		})
		return false
	}
	return true
}

// inclusionText describes how a module includes itself. The last directory is the first one, perhaps through a link.
func inclusionText(chain []string) string {
	first, last := chain[0], chain[len(chain)-1]
	if len(chain) == 2 && first == last {
		return fmt.Sprintf("The source is this block's own directory, %q: it would include itself. Name another directory, or remove the block.", first)
	}
	again := ""
	if first != last {
		again = fmt.Sprintf(", which is %q again", first)
	}
	return fmt.Sprintf("These directories include each other in a cycle: %s%s. Remove one of the module blocks; shared parts can go into a separate directory.",
		quoted(chain, " -> "), again)
}

func shown(dir string) string { return filepath.Clean(dir) }

// checkModuleBlocks reports blocks that only the job directory can have.
func (l *loader) checkModuleBlocks(src *source) {
	for _, kind := range slices.Sorted(maps.Keys(rootOnly)) {
		for _, b := range src.blocks[kind] {
			l.report(&hcl.Diagnostic{
				Severity: hcl.DiagError,
				Summary:  fmt.Sprintf("Unexpected %s block in a module", kind),
				Detail:   fmt.Sprintf("This directory is used as a module, and %s. Move the block there.", rootOnly[kind]),
				Subject:  b.DefRange().Ptr(),
			})
		}
	}
}

// evaluateCall evaluates a module, once for each instance, and returns its outputs.
func (l *loader) evaluateCall(c *call, ctx *hcl.EvalContext) cty.Value {
	if c.source == nil {
		return cty.DynamicVal
	}
	ctx.Functions = l.ctx.Functions
	byKey := map[string]cty.Value{}
	for _, inst := range l.instances(c.block, ctx) {
		if !l.meter.spendBlocks(1) || !l.meter.spend(c.source.size/bytesPerStep) {
			l.meter.blame(c.block.DefRange())
			return cty.DynamicVal
		}
		child := l.instantiate(c, inst, ctx)
		if inst.presence == absent {
			continue
		}
		c.instances = append(c.instances, child)
		switch {
		case inst.each == nil:
			return cty.ObjectVal(child.results)
		case inst.presence == undecided:
			l.undecided[l.address+c.address] = true
			return cty.DynamicVal
		}
		byKey[inst.key] = cty.ObjectVal(child.results)
	}
	return cty.ObjectVal(byKey)
}

// instantiate evaluates one instance of a module.
func (l *loader) instantiate(c *call, inst instance, ctx *hcl.EvalContext) *loader {
	child := l.loader(c.source)
	child.parent, child.call, child.presence = l, c, max(l.presence, inst.presence)
	child.path = append(slices.Clone(l.path), inst.parts(c.name)...)
	child.address = l.address + inst.address("module", c.name) + "."
	child.given = l.givenArguments(c, inst.in(ctx))
	child.variables()
	child.values()
	child.contents()
	return child
}

// givenArguments evaluates what a module block sets the module's variables to.
func (l *loader) givenArguments(c *call, ctx *hcl.EvalContext) map[string]givenValue {
	var declared []string
	for _, b := range c.source.blocks["variable"] {
		declared = append(declared, b.Labels[0])
	}
	given := map[string]givenValue{}
	for _, attr := range arguments(c.block) {
		if attr.Name == "for_each" {
			continue
		}
		if !slices.Contains(declared, attr.Name) {
			hint := suggest(attr.Name, append(declared, "source", "for_each"))
			l.report(c.source.silenceIfIncomplete(&hcl.Diagnostic{
				Severity: hcl.DiagError, Summary: "Unsupported argument",
				Detail:  fmt.Sprintf("The module %q has no variable %q.%s", c.name, attr.Name, hint),
				Subject: attr.NameRange.Ptr(),
			}))
			if meant, ok := inQuotes(hint); ok && given[meant].at.Filename == "" {
				given[meant] = givenValue{value: cty.DynamicVal, at: attr.Expr.Range()} // not reported as missing, too
			}
			continue
		}
		val, diags := attr.Expr.Value(ctx)
		l.report(diags...)
		if diags.HasErrors() {
			val = cty.DynamicVal
		}
		given[attr.Name] = givenValue{value: val, at: attr.Expr.Range()}
	}
	return given
}

// all returns the module's own jobs, then those of the modules in it.
func (l *loader) all(own func(*loader) []job.Job) []job.Job {
	jobs := own(l)
	for _, b := range l.blocks["module"] {
		c := l.calls[b.Labels[0]]
		if c.block != b {
			continue // a duplicate, which was reported
		}
		for _, child := range c.instances {
			jobs = append(jobs, child.all(own)...)
		}
	}
	return jobs
}

// root returns the loader of the job directory.
func (l *loader) root() *loader {
	for l.parent != nil {
		l = l.parent
	}
	return l
}

// checkModuleReference checks module.NAME.OUTPUT and module.NAME["KEY"].OUTPUT.
func (l *loader) checkModuleReference(ref hcl.Traversal) *hcl.Diagnostic {
	if d := checkMember(ref, "module", "module", l.calls); d != nil {
		return l.silenceIfIncomplete(d)
	}
	name, _ := attrName(ref, 1)
	c := l.calls[name]
	step := 2
	if c.block.Body.Attributes["for_each"] != nil {
		step = 3
	}
	output, ok := attrName(ref, step)
	if c.source == nil || !ok {
		return nil
	}
	var outputs []string
	for _, b := range c.source.blocks["output"] {
		outputs = append(outputs, b.Labels[0])
	}
	if slices.Contains(outputs, output) {
		return nil
	}
	hint := suggest(output, outputs)
	if hint == "" {
		hint = fmt.Sprintf(" Declare it there, with a block: output %q { value = … }.", output)
	}
	return c.source.silenceIfIncomplete(&hcl.Diagnostic{
		Severity: hcl.DiagError, Summary: "Unknown output",
		Detail:  fmt.Sprintf("The module %q has no output %q.%s", name, output, hint),
		Subject: ref.SourceRange().Ptr(),
	})
}
