package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"go.yaml.in/yaml/v3"
)

type valueKind int

const (
	scalar valueKind = iota
	mapping
	sequence
)

// value is one value of a document, with aliases and merges expanded. nil is an absent value; the methods accept it.
type value struct {
	path     string // "spec.template.spec.containers[0].image"
	name     string // the key, in a mapping
	key      place  // of its key; in a list, of the value
	at       place
	kind     valueKind
	text     string // of a scalar
	tag      string // of a scalar: !!str, !!int …
	children []*value

	used   bool // read completely
	opened bool // a mapping or list whose known fields or items have been looked for
}

// get returns a field of a mapping. A null counts as absent, as in Kubernetes.
func (v *value) get(name string) *value {
	if v == nil || v.kind != mapping {
		return nil
	}
	for _, c := range v.children {
		if c.name == name && !c.null() {
			return c
		}
	}
	return nil
}

// entries returns a mapping's fields without nulls.
func (v *value) entries() []*value {
	if v == nil || v.kind != mapping {
		return nil
	}
	return v.present()
}

// list returns a list's elements without nulls.
func (v *value) list() []*value {
	if v == nil || v.kind != sequence {
		return nil
	}
	return v.present()
}

func (v *value) present() []*value {
	var out []*value
	for _, c := range v.children {
		if !c.null() {
			out = append(out, c)
		}
	}
	return out
}

func (v *value) null() bool { return v.kind == scalar && v.tag == "!!null" }

// scalar returns the text of a scalar.
func (v *value) scalar() (string, bool) {
	if v == nil || v.kind != scalar || v.null() {
		return "", false
	}
	return v.text, true
}

// mentions reports whether a name occurs in any text of a value.
func (v *value) mentions(name string) bool {
	return strings.Contains(v.text, name) || slices.ContainsFunc(v.children, func(c *value) bool { return c.mentions(name) })
}

// use marks a value as completely read.
func (v *value) use() {
	if v != nil {
		v.used = true
	}
}

// open marks a mapping or list as known, but not its contents, and returns it.
func (v *value) open() *value {
	if v != nil {
		v.opened = true
	}
	return v
}

// touched reports whether any part of a value has been read.
func (v *value) touched() bool {
	if v.used || v.opened {
		return true
	}
	for _, c := range v.children {
		if c.touched() {
			return true
		}
	}
	return false
}

// same reports whether two values are equal, ignoring nulls and the order of fields.
func (v *value) same(o *value) bool {
	if v == nil || o == nil {
		return v == o
	}
	a, b := v.present(), o.present()
	if v.kind != o.kind || v.text != o.text || v.tag != o.tag || len(a) != len(b) {
		return false
	}
	for i := range a {
		other := b[i]
		if v.kind == mapping {
			other = o.get(a[i].name)
		}
		if !a[i].same(other) {
			return false
		}
	}
	return true
}

// leftovers warns about unread values.
func (im *importer) leftovers(v *value) {
	switch {
	case v.used || v.null():
	case !v.touched():
		im.drop(v, "It has no equivalent in eltrain.")
	case v.kind == scalar:
	default:
		for _, c := range v.children {
			im.leftovers(c)
		}
	}
}

// text reads a string. Other values are dropped with a warning.
func (im *importer) text(v *value) (string, bool) {
	if v == nil {
		return "", false
	}
	if s, ok := v.scalar(); ok && !strings.Contains(s, "\x00") {
		v.use()
		return s, true
	}
	im.drop(v, "A string is expected here.")
	return "", false
}

// number reads a whole number from least to most.
func (im *importer) number(v *value, least, most int) (int, bool) {
	if v == nil {
		return 0, false
	}
	s, _ := v.scalar()
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil || n < least || n > most {
		im.drop(v, "A whole number from %d to %d is expected here.", least, most)
		return 0, false
	}
	v.use()
	return n, true
}

// dropUnless drops a field, without a warning if it has the harmless value.
func (im *importer) dropUnless(v *value, harmless string, format string, args ...any) {
	if s, ok := v.scalar(); ok && s == harmless {
		v.use()
		return
	}
	im.drop(v, format, args...)
}

// rest reads everything still unread in v, as plain values: map[string]any, []any, string, bool, int64, float64.
// Mappings and lists whose parts were all read before are left out; taken reports whether anything is left.
func (im *importer) rest(v *value) (out any, taken bool) {
	if v == nil || v.used || v.null() {
		return nil, false
	}
	defer v.use()
	if v.kind == scalar {
		return im.plain(v)
	}
	present := v.present()
	if len(present) == 0 {
		return emptyOf(v.kind), !v.opened
	}
	if v.kind == sequence {
		var items []any
		for _, c := range present {
			if item, ok := im.rest(c); ok {
				items = append(items, item)
			}
		}
		return items, len(items) > 0
	}
	fields := map[string]any{}
	im.recordOrigin(fields, "", v)
	for _, c := range present {
		if field, ok := im.rest(c); ok {
			fields[c.name] = field
			im.recordOrigin(fields, c.name, c)
		}
	}
	return fields, len(fields) > 0
}

func emptyOf(kind valueKind) any {
	if kind == sequence {
		return []any{}
	}
	return map[string]any{}
}

// plain converts a scalar as Kubernetes does: dates and binary data, which JSON does not have, become strings.
func (im *importer) plain(v *value) (any, bool) {
	node := yaml.Node{Kind: yaml.ScalarNode, Tag: v.tag, Value: v.text}
	switch v.tag {
	case "!!bool":
		var b bool
		if node.Decode(&b) == nil {
			return b, true
		}
	case "!!int":
		var n int64
		if node.Decode(&n) == nil {
			return n, true
		}
	case "!!float":
		var f float64
		if node.Decode(&f) == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return f, true
		}
	}
	return v.text, true
}

// eachDocument calls give for each document of the source.
func (im *importer) eachDocument(give func(*value)) error {
	dec := yaml.NewDecoder(bytes.NewReader(im.src))
	for {
		node, err := nextDocument(dec)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		doc, err := im.build(node, "", 0)
		if err != nil {
			return err
		}
		give(doc)
	}
}

// nextDocument reads one document. It recovers from the library's panics on some invalid input.
func nextDocument(dec *yaml.Decoder) (node *yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the file cannot be parsed: %v", p)
		}
	}()
	node = new(yaml.Node)
	err = dec.Decode(node)
	return node, err
}

// build converts a node to a value, expanding aliases and merges. It returns nil for an empty document.
func (im *importer) build(n *yaml.Node, path string, depth int) (*value, error) {
	switch {
	case n.Kind == yaml.DocumentNode && len(n.Content) == 0, n.Kind == 0:
		return nil, nil
	case n.Kind == yaml.DocumentNode:
		v, err := im.build(n.Content[0], "", 0)
		if err == nil && v.null() {
			return nil, nil
		}
		return v, err
	}
	at := nodePlace(n)
	im.values++
	switch {
	case im.values > maxValues:
		im.fail(at, "Manifest too large", "Up to here the file has more than the limit of %d values, with aliases expanded.", maxValues)
		return nil, errTooLarge
	case depth > maxDepth:
		// An alias of a value that contains it ends here, too.
		im.fail(at, "Nested too deeply", "Values are nested more than %d deep here, with aliases expanded.", maxDepth)
		return nil, errTooLarge
	}
	v := &value{path: path, key: at, at: at}
	switch n.Kind {
	case yaml.AliasNode:
		return im.build(n.Alias, path, depth+1)
	case yaml.ScalarNode:
		v.text, v.tag = n.Value, n.ShortTag()
	case yaml.SequenceNode:
		v.kind = sequence
		for i, item := range n.Content {
			c, err := im.build(item, fmt.Sprintf("%s[%d]", path, i), depth+1)
			if err != nil {
				return nil, err
			}
			v.children = append(v.children, c)
		}
	case yaml.MappingNode:
		v.kind = mapping
		if err := im.buildFields(v, n, depth); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// buildFields reads a mapping. Its own fields take precedence over those merged by "<<".
func (im *importer) buildFields(v *value, n *yaml.Node, depth int) error {
	index := map[string]int{}
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, inner := n.Content[i], n.Content[i+1]
		for key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.ShortTag() == "!!merge" {
			merges = append(merges, inner)
			continue
		}
		if key.Kind != yaml.ScalarNode {
			im.diagnose(hcl.DiagWarning, nodePlace(key), "Not imported", "%s: A field's name must be a string; this one is not and is left out.", orRoot(v.path))
			continue
		}
		c, err := im.build(inner, fieldPath(v.path, key.Value), depth+1)
		if err != nil {
			return err
		}
		c.name, c.key = key.Value, nodePlace(n.Content[i])
		if old, twice := index[c.name]; twice {
			im.warn(c, "Field given twice", "It is also set in line %d. The last one is used, as in Kubernetes.", v.children[old].key.line)
			v.children[old] = c
			continue
		}
		index[c.name] = len(v.children)
		v.children = append(v.children, c)
	}
	for _, m := range merges {
		if err := im.merge(v, m, index, depth); err != nil {
			return err
		}
	}
	return nil
}

// merge adds the fields of a mapping, or of a list of mappings, that v does not have yet.
func (im *importer) merge(v *value, n *yaml.Node, index map[string]int, depth int) error {
	from, err := im.build(n, v.path, depth+1)
	if err != nil {
		return err
	}
	sources := []*value{from}
	if from.kind == sequence {
		sources = from.children
	}
	for _, s := range sources {
		if s.kind != mapping {
			im.diagnose(hcl.DiagWarning, s.at, "Not imported", "%s: Only fields can be merged, but this has none.", orRoot(v.path))
			continue
		}
		for _, c := range s.children {
			if _, there := index[c.name]; there {
				continue
			}
			index[c.name] = len(v.children)
			v.children = append(v.children, c)
			c.repath(fieldPath(v.path, c.name))
		}
	}
	return nil
}

// repath sets the path of a merged value.
func (v *value) repath(path string) {
	v.path = path
	for i, c := range v.children {
		if v.kind == sequence {
			c.repath(fmt.Sprintf("%s[%d]", path, i))
			continue
		}
		c.repath(fieldPath(path, c.name))
	}
}

var plainField = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// fieldPath returns the path of a field: a.b, or a["x.y/z"].
func fieldPath(path, name string) string {
	switch {
	case !plainField.MatchString(name):
		return path + "[" + strconv.Quote(name) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}

func orRoot(path string) string {
	if path == "" {
		return "the document"
	}
	return path
}

func nodePlace(n *yaml.Node) place {
	p := place{line: n.Line, column: n.Column, length: 1}
	if n.Kind == yaml.ScalarNode && !strings.Contains(n.Value, "\n") {
		p.length = max(utf8.RuneCountInString(n.Value), 1)
	}
	return p
}

var (
	errorLine     = regexp.MustCompile(`line (\d+): `)
	unknownAnchor = regexp.MustCompile(`unknown anchor '(.*)' referenced`)
)

// yamlError extracts the position from the text of the library's error.
func (im *importer) yamlError(err error) (place, string) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := unknownAnchor.FindStringSubmatch(text); m != nil {
		before, _, _ := bytes.Cut(im.src, []byte("*"+m[1]))
		return place{line: bytes.Count(before, []byte("\n")) + 1, column: 1}, fmt.Sprintf("There is no anchor &%s before this alias *%s", m[1], m[1])
	}
	line := 1
	if m := errorLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
	}
	return place{line: line, column: 1}, sentence(errors.New(errorLine.ReplaceAllString(text, "")))
}
