package lang

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	ctyyaml "github.com/zclconf/go-cty-yaml"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/job"
)

// unstable lists functions of Terraform that return a different result each time.
var unstable = map[string]string{
	"timestamp":     "returns the time of the call",
	"plantimestamp": "returns the time of the call",
	"uuid":          "returns another identifier at each call",
	"bcrypt":        "uses a new salt at each call",
}

// makeFunctions returns the functions that expressions may call, under Terraform's names. Their results depend only
// on their arguments and the directory's files.
func (l *loader) makeFunctions() map[string]function.Function {
	free := map[string]function.Function{
		"abs": stdlib.AbsoluteFunc, "ceil": stdlib.CeilFunc, "floor": stdlib.FloorFunc, "log": stdlib.LogFunc,
		"max": stdlib.MaxFunc, "min": stdlib.MinFunc, "pow": stdlib.PowFunc, "signum": stdlib.SignumFunc,
		"parseint": stdlib.ParseIntFunc,

		"chomp": stdlib.ChompFunc, "lower": stdlib.LowerFunc, "upper": stdlib.UpperFunc, "title": stdlib.TitleFunc,
		"split": stdlib.SplitFunc, "strrev": stdlib.ReverseFunc, "substr": stdlib.SubstrFunc, "trim": stdlib.TrimFunc,
		"trimspace": stdlib.TrimSpaceFunc, "trimprefix": stdlib.TrimPrefixFunc, "trimsuffix": stdlib.TrimSuffixFunc,
		"startswith": stringTest("prefix", strings.HasPrefix), "endswith": stringTest("suffix", strings.HasSuffix),
		"strcontains": stringTest("substr", strings.Contains),

		"chunklist": stdlib.ChunklistFunc, "coalesce": stdlib.CoalesceFunc, "coalescelist": stdlib.CoalesceListFunc,
		"compact": stdlib.CompactFunc, "concat": stdlib.ConcatFunc, "contains": stdlib.ContainsFunc,
		"element": stdlib.ElementFunc, "flatten": stdlib.FlattenFunc, "index": indexFunc,
		"keys": stdlib.KeysFunc, "length": lengthFunc, "lookup": stdlib.LookupFunc, "merge": stdlib.MergeFunc,
		"range": stdlib.RangeFunc, "reverse": stdlib.ReverseListFunc, "slice": stdlib.SliceFunc, "sort": stdlib.SortFunc,
		"values": stdlib.ValuesFunc, "zipmap": stdlib.ZipmapFunc, "one": oneFunc, "sum": sumFunc,
		"alltrue": boolFold("alltrue", true), "anytrue": boolFold("anytrue", false),
		"setunion": stdlib.SetUnionFunc, "setintersection": stdlib.SetIntersectionFunc,
		"setsubtract": stdlib.SetSubtractFunc,

		"tostring": stdlib.MakeToFunc(cty.String), "tonumber": stdlib.MakeToFunc(cty.Number), "tobool": stdlib.MakeToFunc(cty.Bool),
		"tolist": stdlib.MakeToFunc(cty.List(cty.DynamicPseudoType)),
		"toset":  stdlib.MakeToFunc(cty.Set(cty.DynamicPseudoType)),
		"tomap":  stdlib.MakeToFunc(cty.Map(cty.DynamicPseudoType)),

		"base64encode": textFunc(func(s string) (string, error) { return base64.StdEncoding.EncodeToString([]byte(s)), nil }),
		"base64decode": textFunc(decodeBase64),
		"sha256": textFunc(func(s string) (string, error) {
			sum := sha256.Sum256([]byte(s))
			return hex.EncodeToString(sum[:]), nil
		}),
		"md5":       textFunc(func(s string) (string, error) { sum := md5.Sum([]byte(s)); return hex.EncodeToString(sum[:]), nil }),
		"urlencode": textFunc(func(s string) (string, error) { return url.QueryEscape(s), nil }),
		"basename":  textFunc(func(s string) (string, error) { return filepath.Base(s), nil }),
		"dirname":   textFunc(func(s string) (string, error) { return filepath.Dir(s), nil }),

		"csvdecode": stdlib.CSVDecodeFunc, "jsonencode": stdlib.JSONEncodeFunc, "yamlencode": ctyyaml.YAMLEncodeFunc,

		"sensitive": sensitiveFunc, "nonsensitive": nonsensitiveFunc,
	}
	out := map[string]function.Function{
		// These take unevaluated arguments, whose evaluation is counted itself.
		"try": tryfunc.TryFunc, "can": tryfunc.CanFunc,
	}
	for name, f := range free {
		out[name] = l.metered(f, nil)
	}
	// These can produce a large result from small arguments, or take long.
	costly := map[string]struct {
		f    function.Function
		cost func([]cty.Value) (int, error)
	}{
		"format":     {stdlib.FormatFunc, formatCost},
		"formatlist": {stdlib.FormatListFunc, formatCost},
		"indent":     {stdlib.IndentFunc, indentCost},
		"join":       {stdlib.JoinFunc, joinCost},
		"replace":    {replaceFunc, replaceCost},
		"regex":      {stdlib.RegexFunc, regexCost},
		"regexall":   {stdlib.RegexAllFunc, regexCost},
		"distinct":   {stdlib.DistinctFunc, squareCost},
		"setproduct": {stdlib.SetProductFunc, productCost},
		"jsondecode": {stdlib.JSONDecodeFunc, documentCost},
		"yamldecode": {ctyyaml.YAMLDecodeFunc, yamlCost},
	}
	for name, c := range costly {
		out[name] = l.metered(c.f, c.cost)
	}
	for name, f := range l.fileFunctions() {
		out[name] = l.metered(f, nil)
	}
	// Templates have the same functions except templatefile: a file that includes itself would not end.
	inTemplates := make(map[string]function.Function, len(out))
	for name, f := range out {
		inTemplates[name] = f
	}
	out["templatefile"] = l.metered(l.templateFile(inTemplates), nil)
	return out
}

var errExhausted = errors.New("too much to evaluate")

// metered counts the work of f: its arguments, its result, and the additional steps that cost returns.
func (l *loader) metered(f function.Function, cost func([]cty.Value) (int, error)) function.Function {
	admit := func(args []cty.Value) error {
		for _, a := range args {
			if !l.meter.spendOn(a) {
				return errExhausted
			}
		}
		if cost == nil {
			return nil
		}
		plain := make([]cty.Value, len(args))
		for i, a := range args {
			plain[i], _ = a.UnmarkDeep()
			if !plain[i].IsKnown() || plain[i].IsNull() {
				return nil // f will not compute anything
			}
		}
		n, err := cost(plain)
		if err != nil {
			return err
		}
		if !l.meter.spend(n) {
			return errExhausted
		}
		return nil
	}
	return function.New(&function.Spec{
		Description: f.Description(),
		Params:      acceptAny(f.Params()),
		VarParam:    acceptAnyVar(f.VarParam()),
		// Some functions do their work when asked for the type of their result.
		Type: func(args []cty.Value) (cty.Type, error) {
			if err := admit(args); err != nil {
				return cty.DynamicPseudoType, err
			}
			ty, err := f.ReturnTypeForValues(args)
			return ty, redactError(err, args)
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			v, err := f.Call(args)
			if err == nil && !l.meter.spendOn(v) {
				return cty.DynamicVal, errExhausted
			}
			return v, redactError(err, args)
		},
	})
}

// acceptAny makes a wrapper accept sensitive and unknown arguments; otherwise the mark on an unknown one would be lost.
// The wrapped function still handles them as its own parameters say.
func acceptAny(params []function.Parameter) []function.Parameter {
	out := make([]function.Parameter, len(params))
	for i, p := range params {
		p.AllowMarked, p.AllowUnknown, p.AllowDynamicType = true, true, true
		out[i] = p
	}
	return out
}

func acceptAnyVar(p *function.Parameter) *function.Parameter {
	if p == nil {
		return nil
	}
	return &acceptAny([]function.Parameter{*p})[0]
}

// redactError replaces an error that may quote sensitive arguments.
func redactError(err error, args []cty.Value) error {
	if err != nil && slices.ContainsFunc(args, cty.Value.ContainsMarked) {
		return errors.New("the call failed; its arguments are sensitive, so the reason is not shown")
	}
	return err
}

// formatWidth matches widths and precisions of four or more digits in a format.
var formatWidth = regexp.MustCompile(`%[^a-zA-Z%]*[0-9]{4}`)

func formatCost(args []cty.Value) (int, error) {
	if args[0].Type() == cty.String && formatWidth.MatchString(args[0].AsString()) {
		return 0, fmt.Errorf("a width of 1000 or more is not supported")
	}
	return 0, nil
}

func indentCost(args []cty.Value) (int, error) {
	spaces, _ := args[0].AsBigFloat().Float64()
	if !(spaces >= 0 && spaces <= 1000) {
		return 0, fmt.Errorf("the number of spaces must be between 0 and 1000")
	}
	return int(spaces) * strings.Count(args[1].AsString(), "\n") / bytesPerStep, nil
}

func joinCost(args []cty.Value) (int, error) {
	elements := 0
	for _, list := range args[1:] {
		elements += list.LengthInt()
	}
	return saturate(len(args[0].AsString()), elements) / bytesPerStep, nil
}

func replaceCost(args []cty.Value) (int, error) {
	n := len(args[0].AsString()) + 1
	if _, ok := regexPattern(args[1].AsString()); ok {
		return saturate(n, len(args[1].AsString())+len(args[2].AsString())) / bytesPerStep, nil
	}
	return saturate(strings.Count(args[0].AsString(), args[1].AsString()), len(args[2].AsString())) / bytesPerStep, nil
}

const maxPattern = 4096

// regexCost follows RE2's guarantee: time is proportional to pattern length times text length.
func regexCost(args []cty.Value) (int, error) {
	if len(args[0].AsString()) > maxPattern {
		return 0, fmt.Errorf("the pattern is longer than %d bytes", maxPattern)
	}
	return saturate(len(args[0].AsString()), len(args[1].AsString())) / bytesPerStep, nil
}

func squareCost(args []cty.Value) (int, error) {
	return saturate(args[0].LengthInt(), args[0].LengthInt()) / bytesPerStep, nil
}

func productCost(args []cty.Value) (int, error) {
	n := 1
	for _, a := range args {
		n = saturate(n, a.LengthInt())
	}
	return n, nil
}

// saturate multiplies without overflow; anything above the budget is as good as infinite.
func saturate(a, b int) int {
	const most = 1 << 40
	if a != 0 && b > most/a {
		return most
	}
	return a * b
}

const (
	maxDocument      = 1 << 20 // bytes of JSON or YAML that are decoded
	maxDocumentDepth = 200
	maxAliases       = 30 // each can double the document
)

var yamlAlias = regexp.MustCompile(`(?m)(^|[\s\[{,:-])\*[^\s*,\]}]`)

// yamlRun is compiled on first use because it takes 100 KB.
var yamlRun = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`([-?:][ \t]+){100}`) })

// documentCost rejects documents that would make a recursive decoder overflow the stack.
func documentCost(args []cty.Value) (int, error) {
	text := args[0].AsString()
	if len(text) > maxDocument {
		return 0, fmt.Errorf("the document is larger than %s", job.Bytes(maxDocument))
	}
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		}
		if depth > maxDocumentDepth {
			return 0, fmt.Errorf("the document is nested more than %d levels deep", maxDocumentDepth)
		}
	}
	return 0, nil
}

func yamlCost(args []cty.Value) (int, error) {
	text := args[0].AsString()
	if yamlRun().MatchString(text) {
		return 0, fmt.Errorf("the document is nested more than 100 levels deep in one line")
	}
	if len(yamlAlias.FindAllStringIndex(text, maxAliases+1)) > maxAliases {
		return 0, fmt.Errorf("the document has more than %d aliases", maxAliases)
	}
	return documentCost(args)
}

// lengthFunc is Terraform's length: the elements of a collection, the characters of a string.
var lengthFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "value", Type: cty.DynamicPseudoType, AllowDynamicType: true, AllowUnknown: true, AllowMarked: true}},
	Type:   function.StaticReturnType(cty.Number),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		v, marks := args[0].Unmark()
		switch ty := v.Type(); {
		case ty == cty.DynamicPseudoType || !v.IsKnown():
			return cty.UnknownVal(cty.Number).WithMarks(marks), nil
		case v.IsNull():
			return cty.DynamicVal, function.NewArgErrorf(0, "the value is null and has no length")
		case ty == cty.String:
			n, err := stdlib.Strlen(v)
			return n.WithMarks(marks), err
		case ty.IsCollectionType() || ty.IsTupleType() || ty.IsObjectType():
			return v.Length().WithMarks(marks), nil
		}
		return cty.DynamicVal, function.NewArgErrorf(0, "a string or collection is required")
	},
})

// indexFunc returns the index of the first element that is equal to a value.
var indexFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "list", Type: cty.DynamicPseudoType}, {Name: "value", Type: cty.DynamicPseudoType}},
	Type:   function.StaticReturnType(cty.Number),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		if ty := args[0].Type(); !ty.IsListType() && !ty.IsTupleType() {
			return cty.DynamicVal, function.NewArgErrorf(0, "a list is required")
		}
		for it := args[0].ElementIterator(); it.Next(); {
			i, v := it.Element()
			same := v.Equals(args[1])
			if !same.IsKnown() {
				return cty.UnknownVal(cty.Number), nil
			}
			if same.True() {
				return i, nil
			}
		}
		return cty.DynamicVal, function.NewArgErrorf(1, "no element is equal to it")
	},
})

// oneFunc returns the only element of a list, set or tuple, or null if it is empty.
var oneFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "list", Type: cty.DynamicPseudoType}},
	Type: func(args []cty.Value) (cty.Type, error) {
		switch ty := args[0].Type(); {
		case ty.IsListType() || ty.IsSetType():
			return ty.ElementType(), nil
		case ty.IsTupleType() && ty.Length() == 1:
			return ty.TupleElementType(0), nil
		case ty.IsTupleType() && ty.Length() == 0:
			return cty.DynamicPseudoType, nil
		}
		return cty.NilType, function.NewArgErrorf(0, "a list, set or tuple of at most one element is required")
	},
	Impl: func(args []cty.Value, ty cty.Type) (cty.Value, error) {
		if !args[0].Length().IsKnown() {
			return cty.UnknownVal(ty), nil // unknown elements of a set may be equal
		}
		switch args[0].LengthInt() {
		case 0:
			return cty.NullVal(ty), nil
		case 1:
			it := args[0].ElementIterator()
			it.Next()
			_, v := it.Element()
			return v, nil
		}
		return cty.DynamicVal, function.NewArgErrorf(0, "there is more than one element")
	},
})

var sumFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "list", Type: cty.DynamicPseudoType}},
	Type:   function.StaticReturnType(cty.Number),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		if !args[0].CanIterateElements() || args[0].LengthInt() == 0 {
			return cty.DynamicVal, function.NewArgErrorf(0, "a list of at least one number is required")
		}
		total := cty.Zero
		for it := args[0].ElementIterator(); it.Next(); {
			_, v := it.Element()
			n, err := convert.Convert(v, cty.Number)
			if err != nil || n.IsNull() {
				return cty.DynamicVal, function.NewArgErrorf(0, "every element must be a number")
			}
			total = total.Add(n)
		}
		return total, nil
	},
})

// boolFold returns a function that reports whether all (or any) elements are true; null counts as false.
func boolFold(name string, all bool) function.Function {
	return function.New(&function.Spec{
		Description: name,
		Params:      []function.Parameter{{Name: "list", Type: cty.List(cty.Bool)}},
		Type:        function.StaticReturnType(cty.Bool),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			folded := cty.BoolVal(all)
			for it := args[0].ElementIterator(); it.Next(); {
				_, v := it.Element()
				if !v.IsKnown() {
					folded = cty.UnknownVal(cty.Bool)
					continue
				}
				if held := !v.IsNull() && v.True(); held != all {
					return cty.BoolVal(!all), nil
				}
			}
			return folded, nil
		},
	})
}

func stringTest(what string, test func(s, part string) bool) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "str", Type: cty.String}, {Name: what, Type: cty.String}},
		Type:   function.StaticReturnType(cty.Bool),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			return cty.BoolVal(test(args[0].AsString(), args[1].AsString())), nil
		},
	})
}

func textFunc(f func(string) (string, error)) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "str", Type: cty.String}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			s, err := f(args[0].AsString())
			return cty.StringVal(s), err
		},
	})
}

func decodeBase64(s string) (string, error) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return "", fmt.Errorf("this is not base64")
	}
	if !utf8.Valid(b) {
		return "", fmt.Errorf("the decoded data is not UTF-8 text")
	}
	return string(b), nil
}

// regexPattern returns the pattern in a replace argument of the form "/…/".
func regexPattern(s string) (string, bool) {
	if len(s) > 1 && s[0] == '/' && s[len(s)-1] == '/' {
		return s[1 : len(s)-1], true
	}
	return "", false
}

// replaceFunc is Terraform's replace: a substring between slashes is a regular expression.
var replaceFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "str", Type: cty.String}, {Name: "substr", Type: cty.String}, {Name: "replace", Type: cty.String}},
	Type:   function.StaticReturnType(cty.String),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		s, substr, by := args[0].AsString(), args[1].AsString(), args[2].AsString()
		pattern, ok := regexPattern(substr)
		if !ok {
			return cty.StringVal(strings.ReplaceAll(s, substr, by)), nil
		}
		if len(pattern) > maxPattern {
			return cty.DynamicVal, function.NewArgErrorf(1, "the pattern is longer than %d bytes", maxPattern)
		}
		re, err := regexp.Compile(pattern)
		if err != nil {
			return cty.DynamicVal, function.NewArgError(1, err)
		}
		return cty.StringVal(re.ReplaceAllString(s, by)), nil
	},
})

var sensitiveFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "value", Type: cty.DynamicPseudoType, AllowUnknown: true, AllowNull: true, AllowMarked: true, AllowDynamicType: true}},
	Type:   func(args []cty.Value) (cty.Type, error) { return args[0].Type(), nil },
	Impl:   func(args []cty.Value, _ cty.Type) (cty.Value, error) { return args[0].Mark(Sensitive), nil },
})

var nonsensitiveFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "value", Type: cty.DynamicPseudoType, AllowUnknown: true, AllowNull: true, AllowMarked: true, AllowDynamicType: true}},
	Type:   func(args []cty.Value) (cty.Type, error) { return args[0].Type(), nil },
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		v, _ := args[0].Unmark()
		return v, nil
	},
})

// inDir resolves a path in an expression, which is relative to the directory of its file.
func (l *loader) inDir(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(l.dir, p)
}

// readText reads a file that an expression names.
func (l *loader) readText(path string) (string, error) {
	at := l.inDir(path)
	l.named[at] = true
	if err := l.inside(at); err != nil {
		return "", err
	}
	src, err := regular.ReadNamed(at, maxReadBytes)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("the file %q does not exist; paths are relative to the directory of the .hcl file", path)
		}
		return "", err
	}
	if !utf8.Valid(src) {
		return "", fmt.Errorf("the file %q is not UTF-8 text", path)
	}
	return string(src), nil
}

func (l *loader) fileFunctions() map[string]function.Function {
	return map[string]function.Function{
		"file": textFunc(l.readText),
		"fileexists": function.New(&function.Spec{
			Params: []function.Parameter{{Name: "path", Type: cty.String}},
			Type:   function.StaticReturnType(cty.Bool),
			Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
				path := l.inDir(args[0].AsString())
				if err := l.inside(path); err != nil {
					return cty.DynamicVal, err
				}
				info, err := os.Stat(path)
				if errors.Is(err, fs.ErrNotExist) {
					l.named[path] = true // an existing one is not added, since it was not read: it may be a log that keeps changing
					return cty.False, nil
				}
				if err != nil {
					return cty.DynamicVal, err
				}
				return cty.BoolVal(info.Mode().IsRegular()), nil
			},
		}),
	}
}

// templateFile renders a file as a template whose only variables are the attributes of an object.
func (l *loader) templateFile(functions map[string]function.Function) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "path", Type: cty.String}, {Name: "vars", Type: cty.DynamicPseudoType}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			vars := args[1]
			if !vars.Type().IsObjectType() && !vars.Type().IsMapType() {
				return cty.DynamicVal, function.NewArgErrorf(1, "an object is required, as { name = value }")
			}
			name := args[0].AsString()
			src, err := l.readText(name)
			if err != nil {
				return cty.DynamicVal, function.NewArgError(0, err)
			}
			v, diags := l.render(name, src, vars, functions)
			if diags.HasErrors() {
				return cty.DynamicVal, function.NewArgErrorf(0, "%s", firstError(diags))
			}
			return v, nil
		},
	})
}

func (l *loader) render(name, src string, vars cty.Value, functions map[string]function.Function) (cty.Value, hcl.Diagnostics) {
	if d := checkSource([]byte(src), name, hclsyntax.LexTemplate); d != nil {
		return cty.DynamicVal, hcl.Diagnostics{d}
	}
	expr, diags := hclsyntax.ParseTemplate([]byte(src), name, hcl.InitialPos)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	l.meter.attach(expr)
	ctx := &hcl.EvalContext{Functions: functions, Variables: map[string]cty.Value{}}
	for it := vars.ElementIterator(); it.Next(); {
		key, v := it.Element()
		ctx.Variables[key.AsString()] = v
	}
	v, diags := expr.Value(ctx)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	text, err := convert.Convert(v, cty.String)
	if err != nil || text.IsNull() {
		return cty.DynamicVal, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Invalid template", Detail: "The template does not produce a string.", Subject: expr.Range().Ptr()}}
	}
	return text, nil
}

// firstError formats the first error in a template as one line, as a function's error must be.
func firstError(diags hcl.Diagnostics) string {
	for _, d := range diags {
		if d.Severity == hcl.DiagError {
			at := subject(d)
			return at.Filename + ":" + strconv.Itoa(at.Start.Line) + ": " + d.Summary + ": " + d.Detail
		}
	}
	return ""
}
