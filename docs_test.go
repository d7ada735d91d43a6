package eltrain_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/checkpoint"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/incident"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/lang/importer"
	"github.com/eltrain/eltrain/providers/kubernetes"
	"github.com/eltrain/eltrain/providers/local"
	"github.com/eltrain/eltrain/providers/volcano"
	"github.com/eltrain/eltrain/signature"
)

var update = flag.Bool("update", false, "write what is generated into the pages of docs/")

// pages returns the Markdown files of the user documentation.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append(found, "README.md", "examples/README.md", "bench/README.md")
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// region matches a generated part of a page: from <!-- generated NAME --> to <!-- end -->.
var region = regexp.MustCompile(`(?s)<!-- generated ([a-z -]+?) -->\n(.*?)<!-- end -->`)

// generated compares each region of a page with the result of text for its name; with -update it writes the page.
func generated(t *testing.T, path string, text func(name string) (string, bool)) (names []string) {
	t.Helper()
	page := read(t, path)
	fresh := region.ReplaceAllStringFunc(page, func(whole string) string {
		name := region.FindStringSubmatch(whole)[1]
		names = append(names, name)
		body, known := text(name)
		if !known {
			t.Errorf("%s: there is no generated part %q", path, name)
			return whole
		}
		return "<!-- generated " + name + " -->\n" + strings.TrimSpace(body) + "\n<!-- end -->"
	})
	if fresh == page {
		return names
	}
	if !*update {
		t.Errorf("%s is out of date; run: go test . -run %s -update", path, t.Name())
		return names
	}
	if err := os.WriteFile(path, []byte(fresh), 0o644); err != nil {
		t.Fatal(err)
	}
	return names
}

// fence matches a fenced code block with a language.
var fence = regexp.MustCompile("(?s)```([a-z]+)\n(.*?)```")

func TestHCLInPagesIsValid(t *testing.T) {
	usable := map[string]reflect.Type{
		local.Name:      reflect.TypeFor[local.Config](),
		kubernetes.Name: reflect.TypeFor[kubernetes.Config](),
		volcano.Name:    reflect.TypeFor[volcano.Config](),
	}
	checked := 0
	for _, path := range pages(t) {
		for i, block := range fence.FindAllStringSubmatch(read(t, path), -1) {
			if block[1] != "hcl" {
				continue
			}
			checked++
			name := fmt.Sprintf("%s-%d.hcl", path, i+1)
			_, diags := lang.Parse(map[string][]byte{name: []byte(block[2])}, lang.Options{Providers: usable, BaseDir: "examples/mnist-local"})
			if len(diags) > 0 {
				t.Errorf("%s\n%s", diags, block[2])
			}
			clean, diags := lang.Format([]byte(block[2]), name)
			if !diags.HasErrors() && string(clean) != block[2] {
				t.Errorf("%s is not in canonical format, which is\n%s", name, clean)
			}
		}
	}
	if checked < 8 {
		t.Errorf("only %d HCL blocks were found", checked)
	}
}

// The examples are valid, and show each source and strategy of scaling policies.
func TestExamplesShowEachPolicy(t *testing.T) {
	files := map[string][]byte{}
	paths, err := filepath.Glob("examples/scaling/*.hcl")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		files[path] = []byte(read(t, path))
		if clean, diags := lang.Format(files[path], path); !diags.HasErrors() && string(clean) != string(files[path]) {
			t.Errorf("%s is not in canonical format", path)
		}
	}
	parsed, diags := lang.Parse(files, lang.Options{Providers: map[string]reflect.Type{local.Name: reflect.TypeFor[local.Config]()}, BaseDir: "examples/scaling"})
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	missing := map[string]bool{"schedule": true, "deadline": true, "stop_when": true, "replicas that follow": true}
	for _, kind := range job.SourceKinds {
		missing["source "+string(kind)] = true
	}
	for _, kind := range job.StrategyKinds {
		missing["strategy "+string(kind)] = true
	}
	for i := range parsed.Jobs {
		j := &parsed.Jobs[i]
		if j.Deadline != "" {
			delete(missing, "deadline")
		}
		if j.StopWhen != nil {
			delete(missing, "stop_when")
		}
		var policies []job.Policy
		for k := range j.Roles {
			if r := &j.Roles[k]; r.Follows != nil {
				delete(missing, "replicas that follow")
			} else if r.Scaling != nil {
				policies = append(policies, r.Scaling.Policies...)
			}
		}
		for _, p := range policies {
			if p.Source != nil {
				delete(missing, "source "+string(p.Source.Kind))
			}
			if p.Schedule != nil {
				delete(missing, "schedule")
			}
			delete(missing, "strategy "+string(p.Strategy.Kind))
		}
	}
	if len(missing) > 0 {
		t.Errorf("examples/scaling shows no %s", slices.Sorted(maps.Keys(missing)))
	}
}

// The page of signatures lists the known ones, in the order in which they count, each with a line that it fits.
func TestSignaturesPageIsTheTable(t *testing.T) {
	const most = 120 // characters of a line
	names := generated(t, "docs/signatures.md", func(name string) (string, bool) {
		var b strings.Builder
		b.WriteString("| signature | cause | a line | hint |\n|---|---|---|---|\n")
		for _, s := range signature.Builtin() {
			m, ok := signature.For("").Classify(&job.Exit{Code: max(1, s.ExitCode), Tail: s.Samples[0].Lines})
			if !ok {
				t.Errorf("%s does not fit its sample", s.Name)
			}
			line := strings.TrimSpace(m.Line)
			if len(line) > most {
				line = strings.TrimSpace(line[:most]) + " …"
			}
			cause := string(s.Cause)
			if s.Permanent {
				cause += ", permanent"
			}
			hint := ""
			if s.Hint != "" {
				hint = "`" + string(s.Hint) + "`"
			}
			fmt.Fprintf(&b, "| [`%s`](%s) | %s | `` %s `` | %s |\n", s.Name, s.Source, cause, strings.ReplaceAll(line, "|", `\|`), hint)
		}
		if name == "hints" {
			b.Reset()
			b.WriteString("| hint | what may help |\n|---|---|\n")
			for _, h := range signature.Hints {
				if view.Hint(h) == "" {
					t.Errorf("nothing is said of the hint %s", h)
				}
				fmt.Fprintf(&b, "| `%s` | %s |\n", h, view.Hint(h))
			}
		}
		return b.String(), name == "signatures" || name == "hints"
	})
	if !slices.Equal(names, []string{"signatures", "hints"}) {
		t.Errorf("generated are %v", names)
	}
}

func TestImportPageIsTheImporter(t *testing.T) {
	const page = "docs/import.md"
	var manifest string
	for _, block := range fence.FindAllStringSubmatch(read(t, page), -1) {
		if block[1] == "yaml" {
			manifest = block[2]
		}
	}
	names := generated(t, page, func(name string) (string, bool) {
		r := importer.Manifests("job.yaml", strings.NewReader(manifest), importer.Checks{})
		if len(r.Diagnostics) != 1 || !strings.Contains(r.Diagnostics[0].Detail, "optimizeMode") {
			t.Errorf("%s promises one warning, about optimizeMode, and there is %v", page, r.Diagnostics)
		}
		return "```hcl\n" + string(r.HCL) + "```", name == "example"
	})
	if !slices.Equal(names, []string{"example"}) {
		t.Errorf("generated are %v", names)
	}
}

func TestHealingPageIsTheTableOfCauses(t *testing.T) {
	names := generated(t, "docs/healing.md", func(name string) (string, bool) {
		var b strings.Builder
		b.WriteString("| cause | it means | seen in | default | possible | charged |\n|---|---|---|---|---|---|\n")
		for _, row := range incident.Causes {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", row.Code, row.What, row.Seen, defaultOf(row), remedies(row.Actions), map[bool]string{true: "yes"}[row.Budgeted])
		}
		return b.String(), name == "causes"
	})
	if !slices.Equal(names, []string{"causes"}) {
		t.Errorf("generated are %v", names)
	}
}

func defaultOf(row incident.Cause) string {
	switch text := string(row.Default); {
	case row.Default == "":
		return "wait"
	case row.Memory > 0:
		return fmt.Sprintf("%s with memory %s, %d times", text, row.Memory, row.Limit)
	case row.Window > 0:
		return fmt.Sprintf("%s, %d within %s; then %s", text, row.Limit, job.Duration(row.Window), row.Then)
	case row.Limit > 0:
		return fmt.Sprintf("%s after %d restarts", text, row.Limit)
	default:
		return text
	}
}

func remedies(possible []job.Remedy) string {
	var texts []string
	for _, r := range possible {
		texts = append(texts, "`"+string(r)+"`")
	}
	return strings.Join(texts, ", ")
}

// entry is a flag, a command or an exit code in a help text, with its description in one line.
type entry struct{ name, text string }

// entries returns the entries under a heading of a help text.
func entries(help, heading string) (list []entry) {
	_, section, _ := strings.Cut(help, "\n"+heading+":\n")
	for line := range strings.Lines(section) {
		text := strings.TrimSpace(line)
		switch indent := len(line) - len(strings.TrimLeft(line, " ")); {
		case text == "":
		case indent == 0:
			return list
		case indent <= 4:
			name, rest, _ := strings.Cut(text, "  ")
			list = append(list, entry{name, strings.TrimSpace(rest)})
		default:
			last := &list[len(list)-1]
			last.text = strings.TrimSpace(last.text + " " + text)
		}
	}
	return list
}

// table formats entries as a Markdown table.
func table(head string, list []entry) string {
	if len(list) == 0 {
		return ""
	}
	rows := head + "\n" + strings.Repeat("|---", strings.Count(head, "|")-1) + "|\n"
	for _, e := range list {
		rows += "| `" + e.name + "` | " + e.text + " |\n"
	}
	return rows + "\n"
}

func TestCommandsPageIsTheHelp(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "eltrain")
	if out, err := exec.Command("go", "build", "-o", binary, "./cmd/eltrain").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	help := func(command ...string) string {
		out, err := exec.Command(binary, append(command, "-help")...).Output()
		if err != nil {
			t.Fatalf("eltrain %v -help: %v", command, err)
		}
		return string(out)
	}
	overview := help()
	listed := append(entries(overview, "Main commands"), entries(overview, "All other commands")...)
	helps := map[string]string{}
	var commands []string
	usages := "| command | |\n|---|---|\n"
	add := func(section, name, text string) {
		commands = append(commands, name)
		helps[name] = help(strings.Fields(name)...)
		usage, _, _ := strings.Cut(strings.TrimPrefix(helps[name], "Usage: eltrain [global options] "), "\n")
		usages += "| [`" + strings.Replace(usage, " [options]", "", 1) + "`](#" + section + ") | " + text + " |\n"
	}
	for _, command := range listed {
		subcommands := entries(help(command.name), "Subcommands")
		for _, sub := range subcommands {
			add(command.name, command.name+" "+sub.name, sub.text)
		}
		if len(subcommands) == 0 {
			add(command.name, command.name, command.text)
		}
	}
	add("agent", "agent", "Run in a slot; providers start it") // not listed in the help, since users do not need it

	users := map[entry][]string{} // commands, by option
	exits := "| command | 0 | 1 | 2 | 3 |\n|---|---|---|---|---|\n"
	for _, name := range commands {
		for _, option := range entries(helps[name], "Options") {
			users[option] = append(users[option], name)
		}
		codes := [4]string{}
		for _, exit := range entries(helps[name], "Exit codes") {
			codes[strings.Index("0123", exit.name)] = exit.text
		}
		if codes[1] != "An error, which is shown." && codes[1] != "" {
			exits += "| `" + name + "` | " + strings.Join(codes[:], " | ") + " |\n"
		}
	}
	own := func(name string) []entry {
		return slices.DeleteFunc(entries(helps[name], "Options"), func(option entry) bool { return len(users[option]) > 1 })
	}
	var common []entry
	for option, names := range users {
		if len(names) == 1 {
			continue
		}
		who := strings.Join(names, ", ")
		if len(names) > len(commands)/2 {
			who = "all but " + strings.Join(slices.DeleteFunc(slices.Clone(commands), func(name string) bool {
				return slices.Contains(names, name)
			}), ", ")
		}
		common = append(common, entry{option.name, who + " | " + option.text})
	}
	slices.SortFunc(common, func(a, b entry) int { return strings.Compare(a.name+a.text, b.name+b.text) })

	write := func(name string) (string, bool) {
		switch name {
		case "commands":
			return usages, true
		case "global options":
			return table("| option | |", entries(overview, "Global options (before the command)")), true
		case "environment":
			return table("| variable | |", entries(overview, "Environment")), true
		case "common options":
			return table("| option | commands | |", common), true
		case "exit codes":
			return exits, true
		}
		return table("| option | |", own(name)), helps[name] != ""
	}
	names := append(generated(t, "docs/commands.md", write), generated(t, "docs/api.md", write)...) // the agent's are in api.md
	page := read(t, "docs/commands.md")
	for _, command := range append(listed, entry{name: "agent"}) {
		if !strings.Contains(page, "\n## "+command.name+"\n") {
			t.Errorf("docs/commands.md has no section on %s", command.name)
		}
	}
	needed := slices.DeleteFunc(commands, func(name string) bool { return len(own(name)) == 0 })
	for _, name := range append(needed, "commands", "global options", "environment", "common options", "exit codes") {
		if !slices.Contains(names, name) {
			t.Errorf("no page has a table of %s", name)
		}
	}
	if len(listed) < 9 {
		t.Errorf("the help lists only %d commands", len(listed))
	}
}

func TestCommandsPageHasEveryFieldOfTheStatus(t *testing.T) {
	page := read(t, "docs/commands.md")
	var check func(outer string, typ reflect.Type)
	check = func(outer string, typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || !strings.HasPrefix(typ.PkgPath(), "github.com/eltrain/") {
			return
		}
		if typ == reflect.TypeFor[job.Reason]() {
			return // see docs/reasons.md
		}
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if name == "" || name == "-" {
				continue
			}
			if !strings.Contains(page, "`"+name+"`") {
				t.Errorf("docs/commands.md does not mention the field %s%s of status -json", outer, name)
			}
			check(outer+name+".", typ.Field(i).Type)
		}
	}
	check("", reflect.TypeFor[view.StatusModel]())
	if !strings.Contains(page, "`eltrain status -json`. `format_version` is "+view.StatusFormat+";") {
		t.Errorf("docs/commands.md does not say that the status has the format %s", view.StatusFormat)
	}
}

// The rows of causes are complete: those that count against the budget, and those that do not.
func TestCommandsPageHasEveryCause(t *testing.T) {
	page := read(t, "docs/commands.md")
	file, err := parser.ParseFile(token.NewFileSet(), "job/record.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	causes := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "Cause" {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		row := "do not"
		if incident.Of(job.Cause(text)).Budgeted {
			row = "count against the restart budget"
		}
		if !regexp.MustCompile("(?m)^\\| " + row + " \\|.*`" + text + "`").MatchString(page) {
			t.Errorf("docs/commands.md does not list the cause %s in the row %q", text, row)
		}
		causes++
		return true
	})
	if causes == 0 {
		t.Error("job/record.go has no causes")
	}
}

func TestCheckpointsPageHasEveryLayout(t *testing.T) {
	quoted := func(names []string) string { return "`" + strings.Join(names, "` or `") + "`" }
	whole := func(l checkpoint.Layout) (text string) {
		settled := "nothing in it has changed for 10 s, or it was renamed into place"
		switch {
		case len(l.Marks) > 0:
			text = quoted(l.Marks) + " is in it, and not empty"
		case l.Optional:
			text = "`" + l.Pointer + "` beside it names it or a later one; without that file, " + settled
		case l.Pointer != "":
			text = "`" + l.Pointer + "` beside it names it or a later one"
		case l.Dir:
			text = settled
		default:
			text = "it was renamed into place, or has not changed for 100 ms; what `torch.save` writes: its end is there"
		}
		if l.Unless != "" {
			text += ", and `" + l.Unless + "` is gone"
		}
		return text
	}
	names := generated(t, "docs/checkpoints.md", func(name string) (string, bool) {
		text := "| layout | such as | whole once | written by |\n|---|---|---|---|\n"
		for _, l := range checkpoint.Layouts {
			like := "`" + l.Like + "`"
			if l.Dir {
				like = "`" + l.Like + "/`"
			}
			if len(l.Has) > 0 {
				like += ", with " + quoted(l.Has)
			}
			text += fmt.Sprintf("| `%s` | %s | %s | %s |\n", l.Name, like, whole(l), l.Source)
		}
		return text, name == "layouts"
	})
	if !slices.Equal(names, []string{"layouts"}) {
		t.Errorf("generated are %v", names)
	}
}

func TestAPIPageHasEveryVariable(t *testing.T) {
	page := read(t, "docs/api.md")
	names := regexp.MustCompile(`"([A-Z][A-Z_]+)"`)
	found := 0
	for _, source := range []string{"agent/environ.go", "providers/local/stop.go"} {
		for _, m := range names.FindAllStringSubmatch(read(t, source), -1) {
			found++
			if !strings.Contains(page, "`"+m[1]+"`") {
				t.Errorf("docs/api.md does not mention %s, which %s sets", m[1], source)
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d names were found in the sources", found)
	}
}

func TestAPIPagePathsAreInTheOpenAPIFile(t *testing.T) {
	openapi := read(t, "docs/openapi.yaml")
	page := read(t, "docs/api.md")
	paths := regexp.MustCompile(`(?m)^  (/\S+):$`).FindAllStringSubmatch(openapi, -1)
	if len(paths) < 5 {
		t.Fatalf("only %d paths were found in docs/openapi.yaml", len(paths))
	}
	for _, p := range paths {
		if !strings.Contains(page, "`"+p[1]+"`") && !strings.Contains(page, " "+p[1]+"`") {
			t.Errorf("docs/api.md does not mention %s", p[1])
		}
	}
}

// The page on security names a test for each attack, and counts the attacks.
func TestSecurityPageNamesTests(t *testing.T) {
	tests := map[string]bool{}
	out, err := exec.Command("git", "grep", "-hoE", "^func Test[A-Za-z]+", "--", "*_test.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		tests[strings.TrimPrefix(strings.TrimSpace(line), "func ")] = true
	}
	page := read(t, "docs/security.md")
	named := regexp.MustCompile("`(Test[A-Za-z]+)`")
	attacks := 0
	for _, row := range regexp.MustCompile(`(?m)^\|.*\|$`).FindAllString(page, -1)[2:] { // after the head
		attacks++
		found := named.FindAllStringSubmatch(row, -1)
		if len(found) == 0 {
			t.Errorf("no test repeats: %s", row)
		}
		for _, name := range found {
			if !tests[name[1]] {
				t.Errorf("there is no %s", name[1])
			}
		}
	}
	if !strings.Contains(page, fmt.Sprintf("attacks of %d rows", attacks)) {
		t.Errorf("there are %d rows", attacks)
	}
}

func TestLinksInPagesLead(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	for _, path := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, path), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
			}
		}
	}
}

func TestMakeTargetsInReadmeExist(t *testing.T) {
	makefile := read(t, "Makefile")
	for _, m := range regexp.MustCompile("`make ([a-z]+)`").FindAllStringSubmatch(read(t, "README.md"), -1) {
		if !strings.Contains(makefile, "\n"+m[1]+":") {
			t.Errorf("README.md names make %s, which the Makefile does not have", m[1])
		}
	}
}
