package lang

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/job"
)

var schemaCache sync.Map // reflect.Type -> *hcl.BodySchema

// bodySchema returns HCL's schema of a declared struct type.
func bodySchema(t reflect.Type) *hcl.BodySchema {
	if cached, ok := schemaCache.Load(t); ok {
		return cached.(*hcl.BodySchema)
	}
	schema := &hcl.BodySchema{}
	for _, f := range job.Fields(t) {
		switch f.Kind {
		case job.Label:
		case job.Block:
			var labels []string
			for _, inner := range job.Fields(f.ElemType()) {
				if inner.Kind == job.Label {
					labels = append(labels, inner.Name)
				}
			}
			schema.Blocks = append(schema.Blocks, hcl.BlockHeaderSchema{Type: f.Name, LabelNames: labels})
		default:
			schema.Attributes = append(schema.Attributes, hcl.AttributeSchema{Name: f.Name, Required: f.Kind == job.Required})
		}
	}
	schemaCache.Store(t, schema)
	return schema
}

// fieldNamed finds an argument or block of a declared struct type by name.
func fieldNamed(t reflect.Type, name string) (job.Field, bool) {
	for _, f := range job.Fields(t) {
		if f.Name == name && f.Kind != job.Label {
			return f, true
		}
	}
	return job.Field{}, false
}

// tree is one block as written, with dynamic blocks expanded, before its arguments are evaluated.
type tree struct {
	typ         reflect.Type // the struct type that it is decoded into
	labels      []string
	labelRanges []hcl.Range
	def         hcl.Range // the block's header
	attrs       map[string]*hcl.Attribute
	blocks      map[string][]*tree
	failed      map[string]bool // arguments without a valid or known value, which are not reported again; block types with unknown blocks
	// certain lists, by argument of type map, the keys that it has in any case, although not all of its values are known.
	certain map[string][]string
}

// label returns the block's first label, or "".
func (t *tree) label() string {
	if len(t.labels) == 0 {
		return ""
	}
	return t.labels[0]
}

// block returns the nested block of a type that occurs at most once; nil if it is omitted.
func (t *tree) block(name string) *tree {
	if t == nil || len(t.blocks[name]) == 0 {
		return nil
	}
	return t.blocks[name][0]
}

// at returns the range of an argument's value, or of the block's header if it is omitted.
func (t *tree) at(name string) *hcl.Range {
	if a := t.attrs[name]; a != nil {
		return a.Expr.Range().Ptr()
	}
	return t.def.Ptr()
}

// sound reports whether all the given arguments have valid values, which may be defaults.
func (t *tree) sound(names ...string) bool {
	for _, n := range names {
		if t.failed[n] {
			return false
		}
	}
	return true
}

// tree reads the structure of a block, and checks it against the schema.
func (l *loader) tree(b *hcl.Block, t reflect.Type) *tree {
	out := &tree{
		typ: t, labels: b.Labels, labelRanges: b.LabelRanges, def: b.DefRange,
		blocks: map[string][]*tree{}, failed: map[string]bool{}, certain: map[string][]string{},
	}
	content, diags := b.Body.Content(bodySchema(t))
	diags = l.takeUndecided(diags, out.failed)
	for _, d := range diags {
		// For a missing argument HCL points at the opening brace only.
		if d.Summary == "Missing required argument" {
			d.Subject = b.DefRange.Ptr()
			d.Detail = strings.TrimSuffix(d.Detail, ", but no definition was found.") + " in a " + b.Type + " block."
		}
	}
	l.report(explain(b.Type, bodySchema(t).Blocks, diags)...)
	out.attrs = content.Attributes
	for _, f := range job.Fields(t) {
		if f.Kind == job.Required && out.attrs[f.Name] == nil {
			out.failed[f.Name] = true
		}
	}
	seen := map[string]hcl.Range{} // labels by block type
	for _, inner := range content.Blocks {
		f, _ := fieldNamed(t, inner.Type)
		if !f.Repeated() && out.blocks[inner.Type] != nil {
			l.report(&hcl.Diagnostic{
				Severity: hcl.DiagError,
				Summary:  fmt.Sprintf("Duplicate %s block", inner.Type),
				Detail:   fmt.Sprintf("Only one %s block is allowed here; the first is at line %d. Merge them.", inner.Type, out.blocks[inner.Type][0].def.Start.Line),
				Subject:  inner.DefRange.Ptr(),
			})
			continue
		}
		if f.Repeated() && len(inner.Labels) > 0 {
			l.checkLabel(inner.Type, inner, seen)
		}
		out.blocks[inner.Type] = append(out.blocks[inner.Type], l.tree(inner, f.ElemType()))
	}
	return out
}

// checkLabel checks a block's name against the rules for names, and for duplicates among its siblings in seen.
func (l *loader) checkLabel(kind string, b *hcl.Block, seen map[string]hcl.Range) {
	name, at := b.Labels[0], b.DefRange
	if len(b.LabelRanges) > 0 {
		at = b.LabelRanges[0]
	}
	if !job.ValidName(name) {
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError,
			Summary:  fmt.Sprintf("Invalid name of %s", indefinite(kind)),
			Detail:   fmt.Sprintf("%q cannot be a name: use letters, digits, \"-\" and \"_\", at most 63, beginning with a letter or digit.", name),
			Subject:  &at,
			Context:  b.DefRange.Ptr(),
		})
	}
	key := kind + " " + name
	if first, dup := seen[key]; dup {
		remedy := "Rename one of them."
		if kind == "on" { // a cause has the name that it has
			remedy = "Merge them."
		}
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError,
			Summary:  fmt.Sprintf("Duplicate %s %q", kind, name),
			Detail:   fmt.Sprintf("There is already %s of this name, at %s:%d. "+remedy, indefinite(kind), first.Filename, first.Start.Line),
			Subject:  &at,
			Context:  b.DefRange.Ptr(),
		})
		return
	}
	seen[key] = at
}

// indefinite returns a noun with its indefinite article.
func indefinite(noun string) string {
	if strings.ContainsAny(noun[:1], "aeiou") {
		return "an " + noun
	}
	return "a " + noun
}
