package lang

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// functionCalls has, by function, a call and the JSON of its result.
var functionCalls = map[string][2]string{
	"abs": {`abs(-2)`, `2`}, "ceil": {`ceil(1.1)`, `2`}, "floor": {`floor(1.9)`, `1`}, "log": {`log(16, 2)`, `4`},
	"max": {`max(1, 3, 2)`, `3`}, "min": {`min(3, 1)`, `1`}, "pow": {`pow(2, 10)`, `1024`}, "signum": {`signum(-4)`, `-1`},
	"parseint": {`parseint("ff", 16)`, `255`}, "sum": {`sum([1, "2"])`, `3`},
	"format": {`format("%03d-%s", 7, "x")`, `"007-x"`}, "formatlist": {`formatlist("n%d", [1, 2])`, `["n1","n2"]`},
	"join": {`join(",", ["a", "b"])`, `"a,b"`}, "split": {`split(",", "a,b")`, `["a","b"]`},
	"replace": {`[replace("a.b", ".", "-"), replace("a12", "/[0-9]+/", "#")]`, `["a-b","a#"]`},
	"regex":   {`regex("([a-z]+)(\\d+)", "n12")`, `["n","12"]`}, "regexall": {`regexall("\\d", "a1b2")`, `["1","2"]`},
	"upper": {`upper("a")`, `"A"`}, "lower": {`lower("A")`, `"a"`}, "title": {`title("ab cd")`, `"Ab Cd"`},
	"trim": {`trim("xax", "x")`, `"a"`}, "trimspace": {`trimspace(" a ")`, `"a"`},
	"trimprefix": {`trimprefix("ab", "a")`, `"b"`}, "trimsuffix": {`trimsuffix("ab", "b")`, `"a"`},
	"substr": {`substr("hello", 1, 3)`, `"ell"`}, "strrev": {`strrev("abc")`, `"cba"`},
	"indent": {`indent(2, "a\nb")`, `"a\n  b"`}, "chomp": {`chomp("a\n")`, `"a"`},
	"startswith": {`startswith("abc", "ab")`, `true`}, "endswith": {`endswith("abc", "ab")`, `false`},
	"strcontains": {`strcontains("abc", "b")`, `true`},
	"length":      {`[length("äb"), length([1]), length({ a = 1 })]`, `[2,1,1]`},
	"concat":      {`concat([1], [2])`, `[1,2]`}, "contains": {`contains(["a"], "a")`, `true`},
	"distinct": {`distinct([1, 1, 2])`, `[1,2]`}, "element": {`element(["a", "b"], 3)`, `"b"`},
	"flatten": {`flatten([[1], [2, [3]]])`, `[1,2,3]`}, "index": {`index(["a", "b"], "b")`, `1`},
	"keys": {`keys({ b = 1, a = 2 })`, `["a","b"]`}, "values": {`values({ b = 1, a = 2 })`, `[2,1]`},
	"lookup": {`lookup({ a = 1 }, "b", 9)`, `9`}, "merge": {`merge({ a = 1 }, { a = 2, b = 3 })`, `{"a":2,"b":3}`},
	"range": {`range(3)`, `[0,1,2]`}, "reverse": {`reverse([1, 2])`, `[2,1]`}, "slice": {`slice(["a", "b", "c"], 1, 2)`, `["b"]`},
	"sort": {`sort(["b", "a"])`, `["a","b"]`}, "zipmap": {`zipmap(["a"], [1])`, `{"a":1}`},
	"setunion": {`setunion(["a"], ["b"])`, `["a","b"]`}, "setintersection": {`setintersection(["a", "b"], ["b"])`, `["b"]`},
	"setsubtract": {`setsubtract(["a", "b"], ["b"])`, `["a"]`}, "setproduct": {`setproduct(["a"], [1, 2])`, `[["a",1],["a",2]]`},
	"tostring": {`tostring(1)`, `"1"`}, "tonumber": {`tonumber("1")`, `1`}, "tobool": {`tobool("true")`, `true`},
	"tolist": {`tolist(toset(["a"]))`, `["a"]`}, "toset": {`toset(["a", "a"])`, `["a"]`}, "tomap": {`tomap({ a = 1 })`, `{"a":1}`},
	"coalesce": {`coalesce(null, "a")`, `"a"`}, "coalescelist": {`coalescelist([], ["a"])`, `["a"]`},
	"compact": {`compact(["a", ""])`, `["a"]`}, "chunklist": {`chunklist([1, 2, 3], 2)`, `[[1,2],[3]]`},
	"one": {`[one([]), one(["a"])]`, `[null,"a"]`}, "alltrue": {`alltrue([true, false])`, `false`}, "anytrue": {`anytrue([true, false])`, `true`},
	"try": {`try({}.a, "b")`, `"b"`}, "can": {`can({}.a)`, `false`},
	"jsonencode": {`jsonencode({ a = 1 })`, `"{\"a\":1}"`}, "jsondecode": {`jsondecode("[1, null]")`, `[1,null]`},
	"yamlencode": {`yamlencode({ a = 1 })`, `"\"a\": 1\n"`}, "yamldecode": {`yamldecode("a: &x [1]\nb: *x")`, `{"a":[1],"b":[1]}`},
	"csvdecode":    {`csvdecode("a,b\n1,2\n")`, `[{"a":"1","b":"2"}]`},
	"base64encode": {`base64encode("a")`, `"YQ=="`}, "base64decode": {`base64decode("YQ==")`, `"a"`},
	"urlencode": {`[urlencode("p@ss w/ö:rd"), urlencode("a-b_c.d~e")]`, `["p%40ss+w%2F%C3%B6%3Ard","a-b_c.d~e"]`},
	"sha256":    {`sha256("")`, `"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"`},
	"md5":       {`md5("")`, `"d41d8cd98f00b204e9800998ecf8427e"`},
	"basename":  {`basename("a/b")`, `"b"`}, "dirname": {`dirname("a/b")`, `"a"`},
	"file": {`file("f.txt")`, `"text ${x}"`}, "fileexists": {`[fileexists("f.txt"), fileexists("g.txt")]`, `[true,false]`},
	"templatefile": {`templatefile("f.txt", { x = upper("y") })`, `"text Y"`},
	"sensitive":    {`nonsensitive(sensitive("a"))`, `"a"`}, "nonsensitive": {`nonsensitive("a")`, `"a"`},
}

// TestFunctions checks one known result of each function.
func TestFunctions(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f.txt"), []byte("text ${x}"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range functionNames() {
		if _, ok := functionCalls[name]; !ok {
			t.Errorf("%s has no test", name)
		}
	}
	o := options()
	o.BaseDir = dir
	for name, tt := range functionCalls {
		t.Run(name, func(t *testing.T) {
			src := "job \"j\" {\n  role \"w\" {\n    command = [jsonencode(" + tt[0] + ")]\n  }\n}\n"
			cfg, diags := Parse(map[string][]byte{"job.hcl": []byte(src)}, o)
			if diags.HasErrors() {
				t.Fatal(render(cfg, diags))
			}
			if got := cfg.Jobs[0].Roles[0].Command[0]; got != tt[1] {
				t.Errorf("%s = %s, want %s", tt[0], got, tt[1])
			}
		})
	}
}

func TestFunctionErrors(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"self.tmpl": `${templatefile("self.tmpl", {})}`, "bad.tmpl": "${", "unknown.tmpl": "${nope}", "binary": "\xff\xfe"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	big := filepath.Join(dir, "big")
	if err := os.WriteFile(big, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(big, maxReadBytes+1); err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		`timestamp()`:                      "Pass such a value in as a variable",
		`uuid()`:                           "Pass such a value in as a variable",
		`uper("a")`:                        `Did you mean "upper"?`,
		`ns::f()`:                          "no namespaces",
		`file("none")`:                     `the file "none" does not exist`,
		`file(".")`:                        "not a regular file",
		`file("big")`:                      "larger than 10MiB",
		`file("binary")`:                   "not UTF-8",
		`templatefile("self.tmpl", {})`:    "templatefile",
		`templatefile("bad.tmpl", {})`:     "bad.tmpl:1",
		`templatefile("unknown.tmpl", 1)`:  "an object is required",
		`templatefile("unknown.tmpl", {})`: `unknown.tmpl:1`,
		`one([1, 2])`:                      "at most one element",
		`base64decode("!")`:                "not base64",
		`index(["a"], "b")`:                "no element is equal",
		`length(null)`:                     "null",
		`sum([])`:                          "at least one number",
		`replace("a", "/(/", "")`:          "missing closing",
	}
	o := options()
	o.BaseDir = dir
	for call, want := range tests {
		t.Run(call, func(t *testing.T) {
			src := "job \"j\" {\n  role \"w\" {\n    command = [jsonencode(" + call + ")]\n  }\n}\n"
			cfg, diags := Parse(map[string][]byte{"job.hcl": []byte(src)}, o)
			text := strings.Join(strings.Fields(render(cfg, diags)), " ")
			if !diags.HasErrors() || !strings.Contains(text, want) {
				t.Errorf("want %q in:\n%s", want, text)
			}
		})
	}
}
