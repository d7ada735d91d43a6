package importer

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/job"
)

// setDefaults sets the language's defaults in v, a pointer to a struct, and in its blocks that are plain structs.
func setDefaults(v any) { setDefaultsOf(reflect.ValueOf(v).Elem()) }

func setDefaultsOf(v reflect.Value) {
	for _, f := range job.Fields(v.Type()) {
		to := v.FieldByIndex(f.Index)
		switch {
		case f.Kind == job.Block && to.Kind() == reflect.Struct:
			setDefaultsOf(to)
		case f.Kind != job.Block && f.Default != "":
			setText(to, f.Default)
		}
	}
}

func setText(v reflect.Value, text string) {
	var err error
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		err = u.UnmarshalText([]byte(text))
	} else {
		switch v.Kind() {
		case reflect.String:
			v.SetString(text)
		case reflect.Bool:
			var b bool
			b, err = strconv.ParseBool(text)
			v.SetBool(b)
		case reflect.Int:
			var n int
			n, err = strconv.Atoi(text)
			v.SetInt(int64(n))
		default:
			err = fmt.Errorf("a default of the type %s", v.Type())
		}
	}
	if err != nil {
		panic(fmt.Sprintf("importer: the default %q of the language: %v", text, err))
	}
}

// write returns the jobs in canonical format.
func (im *importer) write() []byte {
	file := hclwrite.NewEmptyFile()
	body := file.Body()
	empty := true
	separate := func() {
		if !empty { // body.Blocks would take time for each block
			body.AppendNewline()
		}
		empty = false
	}
	for _, name := range []string{kubernetes, volcano} {
		if !slices.ContainsFunc(im.jobs, func(j *imported) bool { return j.Provider == name }) {
			continue
		}
		separate()
		block := body.AppendNewBlock("provider", []string{name}).Body()
		if im.namespace != "" {
			block.SetAttributeValue("namespace", cty.StringVal(im.namespace))
		}
		if name == volcano && im.queue != "" && im.queue != defaultQueue {
			block.SetAttributeValue("queue", cty.StringVal(im.queue))
		}
	}
	for _, j := range im.jobs {
		separate()
		comment(body, fmt.Sprintf("Imported: %s.", j.from))
		block := body.AppendNewBlock("job", []string{j.Name})
		writeBlock(block.Body(), reflect.ValueOf(j.Job), j)
	}
	// Formatting the whole file gives the same spacing as eltrain fmt.
	return hclwrite.Format(file.Bytes())
}

// comment appends a comment of one line.
func comment(body *hclwrite.Body, text string) {
	clean := strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || !job.Displayable(r) {
			return ' '
		}
		return r
	}, text)
	body.AppendUnstructuredTokens(hclwrite.Tokens{{Type: hclsyntax.TokenComment, Bytes: []byte("# " + clean + "\n")}})
}

// writeBlock writes what differs from the defaults in a declared struct: arguments first, then blocks, both in the
// order of the schema.
func writeBlock(body *hclwrite.Body, v reflect.Value, j *imported) {
	fields := job.Fields(v.Type())
	for _, f := range fields {
		if f.Kind == job.Block || f.Kind == job.Label {
			continue
		}
		if tokens := argument(f, v.FieldByIndex(f.Index), v, j); tokens != nil {
			body.SetAttributeRaw(f.Name, tokens)
		}
	}
	for _, f := range fields {
		if f.Kind == job.Block {
			writeBlocks(body, f, v.FieldByIndex(f.Index), j)
		}
	}
}

func writeBlocks(body *hclwrite.Body, f job.Field, v reflect.Value, j *imported) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			elem := v.Index(i)
			separate(body, f)
			if r, ok := elem.Interface().(job.Role); ok {
				if c := j.role(r.Name).container; c != "" && c != mainContainer {
					comment(body, fmt.Sprintf("The container %s is named %s here.", c, mainContainer))
				}
			}
			writeBlock(body.AppendNewBlock(f.Name, labels(elem)).Body(), elem, j)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			separate(body, f)
			writeBlock(body.AppendNewBlock(f.Name, nil).Body(), v.Elem(), j)
		}
	default:
		block := hclwrite.NewBlock(f.Name, nil)
		writeBlock(block.Body(), v, j)
		if len(block.Body().Attributes())+len(block.Body().Blocks()) > 0 {
			separate(body, f)
			body.AppendBlock(block)
		}
	}
}

// separate adds an empty line before a role, and before blocks that follow roles.
func separate(body *hclwrite.Body, f job.Field) {
	roles := slices.ContainsFunc(body.Blocks(), func(b *hclwrite.Block) bool { return b.Type() == "role" })
	if roles || f.Name == "role" && len(body.Attributes())+len(body.Blocks()) > 0 {
		body.AppendNewline()
	}
}

func labels(v reflect.Value) []string {
	var out []string
	for _, f := range job.Fields(v.Type()) {
		if f.Kind == job.Label {
			out = append(out, v.FieldByIndex(f.Index).String())
		}
	}
	return out
}

// argument returns the expression of an argument, nil if it can be omitted.
func argument(f job.Field, v, block reflect.Value, j *imported) hclwrite.Tokens {
	if r, ok := block.Interface().(job.Role); ok && f.Name == "env" {
		return environment(r.Env, j.role(r.Name).slotEnv)
	}
	if f.Kind == job.References {
		return references(v.Interface().([]string))
	}
	unset := reflect.New(v.Type()).Elem()
	if f.Default != "" {
		setText(unset, f.Default)
	}
	if f.Kind != job.Required && reflect.DeepEqual(v.Interface(), unset.Interface()) {
		return nil
	}
	if (v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && v.Len() == 0 && f.Kind != job.Required {
		return nil
	}
	return expression(v.Interface())
}

func (j *imported) role(name string) *role {
	return j.roles[slices.IndexFunc(j.roles, func(r *role) bool { return r.Name == name })]
}

// environment returns the expression of a role's env, including the variables whose value is the slot's index.
func environment(env map[string]string, slotEnv []string) hclwrite.Tokens {
	tokens := map[string]hclwrite.Tokens{}
	for name, text := range env {
		tokens[name] = expression(text)
	}
	for _, name := range slotEnv {
		if _, own := env[name]; own {
			continue
		}
		tokens[name] = expression(slotIndex)
	}
	if len(tokens) == 0 {
		return nil
	}
	return object(tokens)
}

// references returns a list of role.NAME.
func references(names []string) hclwrite.Tokens {
	if len(names) == 0 {
		return nil
	}
	var elems []hclwrite.Tokens
	for _, name := range names {
		elems = append(elems, hclwrite.TokensForIdentifier("role."+name))
	}
	return hclwrite.TokensForTuple(elems)
}

// expression returns the expression of a value of a declared field, or of the pod overlay.
func expression(v any) hclwrite.Tokens {
	switch v := v.(type) {
	case job.CPU:
		return hclwrite.TokensForValue(cty.NumberFloatVal(v.Cores()))
	case encoding.TextMarshaler:
		text, err := v.MarshalText()
		if err != nil {
			panic(fmt.Sprintf("importer: a value of the language cannot be written: %v", err))
		}
		return expression(string(text))
	case string:
		if strings.Contains(v, slotIndex) {
			return indexed(v)
		}
		return hclwrite.TokensForValue(cty.StringVal(v))
	case bool:
		return hclwrite.TokensForValue(cty.BoolVal(v))
	case int:
		return hclwrite.TokensForValue(cty.NumberIntVal(int64(v)))
	case int64:
		return hclwrite.TokensForValue(cty.NumberIntVal(v))
	case float64:
		return hclwrite.TokensForValue(cty.NumberFloatVal(v))
	}
	value := reflect.ValueOf(v)
	switch value.Kind() {
	case reflect.Pointer:
		return expression(value.Elem().Interface())
	case reflect.Slice:
		var elems []hclwrite.Tokens
		for i := range value.Len() {
			elems = append(elems, expression(value.Index(i).Interface()))
		}
		return hclwrite.TokensForTuple(elems)
	case reflect.Map:
		fields := map[string]hclwrite.Tokens{}
		for _, k := range value.MapKeys() {
			fields[k.String()] = expression(value.MapIndex(k).Interface())
		}
		return object(fields)
	}
	panic(fmt.Sprintf("importer: a declared field has the type %T, which cannot be written", v))
}

// indexed returns the template of a text that contains slotIndex: "shard-${slot.index}".
func indexed(text string) hclwrite.Tokens {
	index := hclwrite.Tokens{
		{Type: hclsyntax.TokenIdent, Bytes: []byte("slot")}, {Type: hclsyntax.TokenDot, Bytes: []byte(".")},
		{Type: hclsyntax.TokenIdent, Bytes: []byte("index")},
	}
	if text == slotIndex {
		return index
	}
	out := hclwrite.Tokens{{Type: hclsyntax.TokenOQuote, Bytes: []byte{'"'}}}
	interpolate := func(inner hclwrite.Tokens) {
		out = append(out, &hclwrite.Token{Type: hclsyntax.TokenTemplateInterp, Bytes: []byte("${")})
		out = append(out, inner...)
		out = append(out, &hclwrite.Token{Type: hclsyntax.TokenTemplateSeqEnd, Bytes: []byte{'}'}})
	}
	for i, part := range strings.Split(text, slotIndex) {
		if i > 0 {
			interpolate(index)
		}
		quoted := hclwrite.TokensForValue(cty.StringVal(part))
		if strings.HasSuffix(part, "$") { // "$${" would be an escape
			interpolate(quoted)
			continue
		}
		out = append(out, quoted[1:len(quoted)-1]...)
	}
	return append(out, &hclwrite.Token{Type: hclsyntax.TokenCQuote, Bytes: []byte{'"'}})
}

// object returns an object expression with its fields sorted by name.
func object(fields map[string]hclwrite.Tokens) hclwrite.Tokens {
	if len(fields) == 0 {
		return hclwrite.TokensForObject(nil)
	}
	var attrs []hclwrite.ObjectAttrTokens
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		attrs = append(attrs, hclwrite.ObjectAttrTokens{Name: fieldName(name), Value: fields[name]})
	}
	return hclwrite.TokensForObject(attrs)
}

// notNames are identifiers that must be quoted as field names because they have another meaning there.
var notNames = []string{"for", "null", "true", "false"}

func fieldName(name string) hclwrite.Tokens {
	if hclsyntax.ValidIdentifier(name) && !slices.Contains(notNames, name) {
		return hclwrite.TokensForIdentifier(name)
	}
	return hclwrite.TokensForValue(cty.StringVal(name))
}
