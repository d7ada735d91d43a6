package lang

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/job"
)

// everything is the value of ignore_changes for all arguments.
const everything = "all"

// paths decodes ignore_changes, a list of arguments of the job, to paths in the form of job.FieldChange.Path.
func (e *jobEval) paths(t *tree, attr *hcl.Attribute) []string {
	if hcl.ExprAsKeyword(attr.Expr) == everything {
		return ignorable(reflect.TypeFor[job.Job]())
	}
	bad := func(at hcl.Range, detail string) {
		t.failed[attr.Name] = true
		e.l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "Invalid path of an argument", Detail: detail,
			Subject: &at, Context: attr.Range.Ptr(),
		})
	}
	exprs, diags := hcl.ExprList(attr.Expr)
	if diags.HasErrors() {
		bad(attr.Expr.Range(), fmt.Sprintf("%s needs a list of arguments of this job, [priority, role.NAME.replicas, …], or the word all.", attr.Name))
		return nil
	}
	if len(exprs) > maxPaths {
		bad(attr.Expr.Range(), fmt.Sprintf("The list has %d paths; the limit is %d. Name whole blocks, or write the word all.", len(exprs), maxPaths))
		return nil
	}
	var paths []string
	for _, expr := range exprs {
		ref, diags := hcl.AbsTraversalForExpr(expr)
		if diags.HasErrors() {
			bad(expr.Range(), "Write the path of an argument of this job without quotes: priority, role.NAME.replicas, role.NAME.env[\"NAME\"].")
			continue
		}
		path, why := e.argumentPath(ref)
		switch {
		case why != "":
			bad(expr.Range(), why)
		case !slices.Contains(paths, path):
			paths = append(paths, path)
		}
	}
	return paths
}

// stepName returns the name in step i of a reference, where step 0 is its root.
func stepName(ref hcl.Traversal, i int) (string, bool) {
	if i == 0 {
		return ref.RootName(), true
	}
	return attrName(ref, i)
}

// argumentPath returns a reference's path in the schema; why says what is wrong with the reference, or is "".
func (e *jobEval) argumentPath(ref hcl.Traversal) (path, why string) {
	t := reflect.TypeFor[job.Job]()
	what := "A job"
	for i := 0; i < len(ref); i++ {
		name, ok := stepName(ref, i)
		f, known := fieldNamed(t, name)
		switch {
		case !ok:
			return "", fmt.Sprintf("%s is a block: name one of its arguments.", path)
		case !known || i == 0 && name == "lifecycle":
			return "", fmt.Sprintf("%s has no argument %q that could be ignored.%s", what, name, e.roleHint(i, name, suggest(name, ignorable(t))))
		}
		path = dotted(path, name)
		what = path
		if f.Kind != job.Block {
			return entry(path, f, ref[i+1:])
		}
		t = f.ElemType()
		if !f.Repeated() || i+1 == len(ref) {
			continue
		}
		i++
		label, ok := stepName(ref, i)
		if !ok {
			return "", fmt.Sprintf("%s needs a name: %s.NAME.", path, path)
		}
		if labels := e.labels(path); path == "role" && !slices.Contains(labels, label) && e.tree.sound("role") {
			return "", fmt.Sprintf("This job has no role %q.%s", label, suggest(label, labels))
		}
		path = dotted(path, label)
		what = path
	}
	return path, ""
}

// roleHint returns a hint that a name is an argument of a role, not of the job; otherwise it returns the suggestion.
func (e *jobEval) roleHint(depth int, name, suggestion string) string {
	if _, known := fieldNamed(reflect.TypeFor[job.Role](), name); depth > 0 || !known {
		return suggestion
	}
	role := "NAME"
	if labels := e.labels("role"); len(labels) == 1 {
		role = labels[0]
	}
	return fmt.Sprintf(" It belongs to a role: role.%s.%s.", role, name)
}

// entry returns the path of an argument, or of one of its keys: env["NAME"].
func entry(path string, f job.Field, rest hcl.Traversal) (string, string) {
	if len(rest) == 0 {
		return path, ""
	}
	key, ok := attrName(rest, 0)
	if f.Type.Kind() != reflect.Map || f.Kind == job.Any || !ok || len(rest) > 1 {
		return "", fmt.Sprintf("%s can only be ignored as a whole.", path)
	}
	return path + "[" + strconv.Quote(key) + "]", ""
}

// labels returns the labels of the job's blocks of a type.
func (e *jobEval) labels(kind string) []string {
	var labels []string
	for _, b := range e.tree.blocks[kind] {
		labels = append(labels, b.label())
	}
	return labels
}

func dotted(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// ignorable returns the arguments and blocks whose changes can be ignored: all but lifecycle itself.
func ignorable(t reflect.Type) []string {
	var names []string
	for _, f := range job.Fields(t) {
		if f.Kind != job.Label && f.Name != "lifecycle" {
			names = append(names, f.Name)
		}
	}
	return names
}
