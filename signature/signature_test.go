package signature

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/internal/literals"
	"github.com/eltrain/eltrain/job"
)

func mustNew(t testing.TB, own ...Signature) *Table {
	t.Helper()
	table, err := New(own)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// Every signature is that of its samples, whatever comes before it in the table, and of none of the others.
func TestSignaturesMatchTheirSamples(t *testing.T) {
	table := mustNew(t)
	names := map[string]bool{}
	for i := range table.signatures {
		s := &table.signatures[i]
		if len(s.Samples) == 0 || s.Source == "" || names[s.Name] {
			t.Errorf("%s has no samples, or no source, or its name twice", s.Name)
		}
		names[s.Name] = true
		if !strings.HasPrefix(s.Source, "https://") {
			t.Errorf("%s: the source %q is no URL", s.Name, s.Source)
		}
		if !slices.Contains(Causes, s.Cause) || s.Hint != "" && !slices.Contains(Hints, s.Hint) {
			t.Errorf("%s: cause %q, hint %q", s.Name, s.Cause, s.Hint)
		}
		for _, sample := range slices.Concat(s.Samples, s.Others) {
			if sample.Source == "" {
				t.Errorf("%s: %q has no source", s.Name, sample.Lines)
			}
		}
		if err := table.try(s); err != nil {
			t.Error(err)
		}
	}
}

// Every pattern of the known signatures is that of some sample: one that matches nothing is a typing error.
func TestEveryPatternHasASample(t *testing.T) {
	for _, s := range mustNew(t).signatures {
		var lines []string
		for _, sample := range s.Samples {
			lines = append(lines, clean(sample.Lines)...)
		}
		for i, p := range s.patterns {
			if !slices.ContainsFunc(lines, p.compile().MatchString) {
				t.Errorf("%s: no sample matches %s", s.Name, s.Patterns[i])
			}
		}
	}
}

// A line that contains no pattern's literal costs no regular expression, so every pattern for any line needs one.
func TestEveryPatternHasALiteral(t *testing.T) {
	for _, s := range mustNew(t).signatures {
		if text, ok := s.withoutLiteral(); ok {
			t.Errorf("%s: pattern %s has hardly any fixed text", s.Name, text)
		}
		for i, p := range s.patterns {
			if p.id == literals.None && !s.Vague {
				t.Errorf("%s: pattern %s is tried on each exception", s.Name, s.Patterns[i])
			}
		}
	}
}

// What an exit means that has several texts, or misleading ones.
func TestClassify(t *testing.T) {
	syntax := []string{`  File "/job/train.py", line 2`, "    def f(:", "          ^", "SyntaxError: invalid syntax"}
	raised := func(exception string) []string {
		return []string{"Traceback (most recent call last):", `  File "/job/train.py", line 88, in <module>`, "    main()", exception}
	}
	reset := "ConnectionResetError: [Errno 104] Connection reset by peer"
	oom := "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
	gloo := "[E pair.cc] [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:10895"
	during, cause := []string{"", joinedByContext, ""}, []string{"", joinedByCause, ""}
	lines := func(parts ...[]string) *job.Exit { return &job.Exit{Code: 1, Tail: slices.Concat(parts...)} }
	for name, test := range map[string]struct {
		exit *job.Exit
		want string // name: line
	}{
		"nothing is known":                              {nil, ""},
		"nothing is printed":                            {&job.Exit{Code: 1}, ""},
		"output that says nothing":                      {lines([]string{"step 12 loss 1.5", "saved step 12"}), ""},
		"what starts before what follows":               {lines([]string{gloo}, syntax), "python_syntax: SyntaxError: invalid syntax"},
		"what starts before what follows, in any order": {lines(syntax, []string{gloo}), "python_syntax: SyntaxError: invalid syntax"},
		"a teardown that aborts":                        {&job.Exit{Code: 134, Signal: "aborted", Tail: append(raised("KeyError: 'x'"), gloo)}, "python_exception: KeyError: 'x'"},
		"killed by somebody":                            {&job.Exit{Code: 137, Signal: "killed", Tail: raised(reset)}, ""},
		"killed for its memory":                         {&job.Exit{Code: 137, Signal: "killed", OOM: true, Tail: raised(oom)}, ""},
		"asked to stop":                                 {&job.Exit{Code: 143, Signal: "terminated", Tail: []string{gloo}}, ""},
		"not started":                                   {&job.Exit{Code: 127, NotStarted: "no such file", Tail: syntax}, ""},
		"a handler that fails itself":                   {lines(raised(reset), during, raised("AttributeError: 'NoneType' object has no attribute 'close'")), "connection: " + reset},
		"a fallback that fails":                         {lines(raised("ModuleNotFoundError: No module named 'apex'"), during, raised(reset)), "connection: " + reset},
		"a download that fails":                         {lines(raised(reset), during, raised("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='data', port=443): Max retries exceeded with url: /")), "remote_service: requests.exceptions.ConnectionError: HTTPSConnectionPool(host='data', port=443): Max retries exceeded with url: /"},
		"an import that says what to install":           {lines(raised("ModuleNotFoundError: No module named 'apex'"), cause, raised("RuntimeError: please install apex")), "python_import: ModuleNotFoundError: No module named 'apex'"},
		"an error that was handled before":              {lines(raised(reset), []string{"retrying", "step 12 loss 1.5"}, raised("KeyError: 'x'")), "python_exception: KeyError: 'x'"},
		"a thread that failed before":                   {lines([]string{"Exception in thread Thread-1 (f):"}, raised(reset), []string{"step 13"}, raised("KeyError: 'x'")), "python_exception: KeyError: 'x'"},
		"a thread that failed after":                    {lines(raised("KeyError: 'x'"), []string{"Exception in thread Thread-1 (f):"}, raised(reset)), "python_exception: KeyError: 'x'"},
		"a thread that failed alone":                    {lines([]string{"Exception in thread Thread-1 (f):"}, raised(reset)), "connection: " + reset},
		"a destructor that failed":                      {lines(raised("KeyError: 'x'"), []string{"Exception ignored in: <function f at 0x7f>"}, raised("TypeError: 'NoneType' object is not callable")), "python_exception: KeyError: 'x'"},
		"a logger that failed":                          {lines([]string{"--- Logging error ---"}, raised("TypeError: not all arguments converted during string formatting")), ""},
		"a worker's exception in the main process":      {lines([]string{"Traceback (most recent call last):", `  File "/job/train.py", line 3, in <module>`, "KeyError: Caught KeyError in DataLoader worker process 0.", "Original Traceback (most recent call last):", `  File "/job/data.py", line 7, in __getitem__`, "    return self.x[i]", "KeyError: 'label'"}), "python_exception: KeyError: 'label'"},
		"the head is cut off":                           {lines([]string{"    run(step)", `  File "/job/train.py", line 88, in run`, "    y = model(x)", oom}), "device_memory: " + oom},
		"a recursion":                                   {lines([]string{"Traceback (most recent call last):", `  File "r.py", line 1, in f`, "    def f(n): return f(n+1)", "                     ^^^^^^", "  [Previous line repeated 996 more times]", "RecursionError: maximum recursion depth exceeded"}), "python_exception: RecursionError: maximum recursion depth exceeded"},
		"a box of rich":                                 {lines([]string{"╭──────── Traceback (most recent call last) ────────╮", "│ /job/train.py:88 in <module>                      │", "╰───────────────────────────────────────────────────╯", oom}), "device_memory: " + oom},
		"a dump of faulthandler":                        {&job.Exit{Code: 139, Signal: "segmentation fault", Tail: []string{"Fatal Python error: Segmentation fault", "", "Current thread 0x00007f (most recent call first):", `  File "/job/train.py", line 5 in f`, "", "Extension modules: numpy"}}, ""},
		"a frame that quotes a text":                    {lines([]string{"Traceback (most recent call last):", `  File "/job/train.py", line 88, in <module>`, `    if "CUDA out of memory. Tried to allocate" in str(e): raise`, "KeyError: 'x'"}), "python_exception: KeyError: 'x'"},
		"a device that fails below the exception":       {lines([]string{"NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus"}, raised("RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR")), "xid: NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus"},
		"an error file":                                 {&job.Exit{Code: 1, Message: "TypeError: f() takes 0 positional arguments but 1 was given"}, "python_type: TypeError: f() takes 0 positional arguments but 1 was given"},
		"an error file of another language":             {&job.Exit{Code: 1, Message: "CUDA error: out of memory"}, "device_memory: CUDA error: out of memory"},
		"an error file beside output":                   {&job.Exit{Code: 1, Message: "KeyError: 'x'", Tail: []string{gloo}}, "python_exception: KeyError: 'x'"},
		"colors":                                        {lines(raised("\x1b[1;35mKeyError\x1b[0m: \x1b[35m'x'\x1b[0m")), "python_exception: KeyError: 'x'"},
		"colors, as agents send them":                   {lines(raised("\uFFFD[1;35mKeyError\uFFFD[0m: 'x\uFFFD'")), "python_exception: KeyError: 'x\uFFFD'"},
		"a rank's prefix":                               {lines([]string{"[rank12]: Traceback (most recent call last):", `[rank12]:   File "/job/train.py", line 88, in <module>`, "[rank12]:     main()", "[rank12]: " + oom}), "device_memory: " + oom},
		"torchrun's prefix":                             {lines([]string{"[default3]:Traceback (most recent call last):", `[default3]:  File "/job/train.py", line 88, in <module>`, "[default3]:    main()", "[default3]:" + oom}), "device_memory: " + oom},
		"a wrong argument with another exit code":       {&job.Exit{Code: 1, Tail: []string{"train.py: error: unrecognized arguments: --x"}}, ""},
		"binary bytes":                                  {lines([]string{"\xff\xfe\x00CUDA out of memory. Tried to allocate\x00\xff"}), "device_memory: \uFFFD\x00CUDA out of memory. Tried to allocate\x00\uFFFD"},
		"a line of 1 MB":                                {lines([]string{strings.Repeat("x", 1<<20) + oom}), ""},
		"a million lines":                               {lines(slices.Repeat([]string{oom}, 1_000_000), slices.Repeat([]string{"x"}, maxLines)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, ok := mustNew(t).Classify(test.exit)
			got := ""
			if ok {
				got = m.Name + ": " + m.Line
			}
			if got != test.want {
				t.Errorf("%q, not %q", got, test.want)
			}
		})
	}
}

// The traceback is kept from the first exception of the chain to the last, and nothing after it.
func TestTrace(t *testing.T) {
	tail := []string{
		"step 12 loss 1.5",
		"Traceback (most recent call last):",
		`  File "/job/train.py", line 4, in f`,
		"    raise KeyError('x')",
		"KeyError: 'x'",
		"",
		joinedByCause,
		"",
		"Traceback (most recent call last):",
		`  File "/job/train.py", line 8, in <module>`,
		"    f()",
		"RuntimeError: no x",
		"closing",
	}
	m, _ := mustNew(t).Classify(&job.Exit{Code: 1, Tail: tail})
	if !slices.Equal(m.Trace, tail[1:12]) {
		t.Errorf("the traceback is %q", m.Trace)
	}
}

// What Python 3.11 and 3.13 print of exception groups: those that a group is made of count, wherever the last lines begin.
func TestExceptionGroups(t *testing.T) {
	reset, imports := "connection: ConnectionResetError: [Errno 104] Connection reset by peer", "python_import: ModuleNotFoundError: No module named 'no_such_module'"
	for name, want := range map[string]string{
		"task_group": reset,   // of a task that passes, and of two that do not
		"permanent":  imports, // of which none passes
		"caused":     reset,   // with a cause of its own, beside more than are printed
		"nested":     "disk_full: OSError: [Errno 28] No space left on device",
		"caught":     "python_import: ImportError: no apex", // by except*, which raised another
	} {
		for _, python := range []string{"3.11", "3.13"} {
			file := "testdata/" + name + "-" + python + ".txt"
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			printed := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
			tail := slices.Concat([]string{"step 12 loss 1.5"}, printed, []string{"closing"})
			m, _ := mustNew(t).Classify(&job.Exit{Code: 1, Tail: tail})
			if got := m.Name + ": " + m.Line; got != want {
				t.Errorf("%s is %s, not %s", file, got, want)
			}
			if all := printed[max(0, len(tail)-maxLines-1):]; !slices.Equal(m.Trace, all) {
				t.Errorf("%s: the traceback is\n%s", file, strings.Join(m.Trace, "\n"))
			}
			prefixed := make([]string, len(printed))
			for i, line := range printed {
				prefixed[i] = "[rank3]: " + line
			}
			if m, _ := mustNew(t).Classify(&job.Exit{Code: 1, Tail: prefixed}); m.Name+": "+m.Line != want {
				t.Errorf("%s with a rank's prefix is %s: %s", file, m.Name, m.Line)
			}
		}
	}
	text, err := os.ReadFile("testdata/permanent-3.13.txt")
	if err != nil {
		t.Fatal(err)
	}
	printed := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	frame := slices.IndexFunc(printed, func(line string) bool { return strings.Contains(line, ", in shard") })
	for from := range frame + 1 {
		if m, _ := mustNew(t).Classify(&job.Exit{Code: 1, Tail: printed[from:]}); m.Name+": "+m.Line != imports {
			t.Errorf("from line %d on it is %s: %s", from+1, m.Name, m.Line)
		}
	}
}

// A user's signatures come before the known ones, and mistakes in them are found before anything runs.
func TestUsersSignatures(t *testing.T) {
	good := Signature{
		Name: "scratch", Cause: job.Accelerator, Hint: HintStorage, Patterns: []string{"scratch is gone: "}, Unless: []string{"retrying$"},
		Samples: []Sample{{Lines: []string{"CUDA out of memory. Tried to allocate", "scratch is gone: /scratch"}}},
		Others:  []Sample{{Lines: []string{"scratch is gone: retrying"}}},
	}
	if err := Check([]Signature{good}); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(s *Signature){
		"has no name":                        func(s *Signature) { s.Name = "" },
		`another signature named "gloo"`:     func(s *Signature) { s.Name = "gloo" },
		`the cause "netwrok" is none of`:     func(s *Signature) { s.Cause = "netwrok" },
		"only a script_error can be":         func(s *Signature) { s.Permanent = true },
		`the hint "more" is none of`:         func(s *Signature) { s.Hint = "more" },
		"the exit code 256":                  func(s *Signature) { s.ExitCode = 256 },
		"has no patterns":                    func(s *Signature) { s.Patterns = nil },
		"missing closing )":                  func(s *Signature) { s.Unless = []string{"("} },
		"invalid or unsupported Perl syntax": func(s *Signature) { s.Patterns = []string{"(?!x)scratch"} },
		"more than 16 patterns":              func(s *Signature) { s.Unless = make([]string, 16) },
		"longer than 1024 bytes":             func(s *Signature) { s.Patterns = []string{strings.Repeat("x", 1025)} },
		"has no sample":                      func(s *Signature) { s.Samples = nil },
		`pattern "gone|lost" has no fixed`:   func(s *Signature) { s.Patterns = []string{"gone|lost"} },
		`is "device_memory"`:                 func(s *Signature) { s.Patterns = []string{"scratch is lost"} },
		"it is the signature of":             func(s *Signature) { s.Unless = nil },
		`no pattern matches the sample`: func(s *Signature) {
			s.ExitCode, s.Exception = 3, true
			s.Samples[0].Lines = []string{"scratch is gone"}
		},
	} {
		s := good
		s.Samples = []Sample{{Lines: slices.Clone(good.Samples[0].Lines)}}
		change(&s)
		if err := Check([]Signature{s}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
	if err := Check(make([]Signature, MaxSignatures+1)); err == nil {
		t.Error("too many signatures were accepted")
	}
	if err := Check([]Signature{good, good}); err == nil {
		t.Error("two signatures of the same name were accepted")
	}
	text, err := json.Marshal([]Signature{good})
	if err != nil {
		t.Fatal(err)
	}
	exit := &job.Exit{Code: 1, Tail: []string{"CUDA out of memory. Tried to allocate", "scratch is gone: /scratch"}}
	for text, want := range map[string]string{"": "device_memory", string(text): "scratch", "[": "device_memory", `[{"name": "x", "patterns": ["("]}]`: "device_memory"} {
		if m, _ := For(text).Classify(exit); m.Name != want {
			t.Errorf("with %.20q it is %s, not %s", text, m.Name, want)
		}
	}
}

// The example of signatures in the docs is one.
func TestTheDocumentedExample(t *testing.T) {
	page, err := os.ReadFile("../docs/signatures.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```json\n")
	example, _, _ := strings.Cut(rest, "```")
	own, err := ParseSignatures(strings.TrimSpace(example))
	if err == nil {
		err = Check(own)
	}
	if err != nil || len(own) != 1 {
		t.Errorf("%d signatures, %v", len(own), err)
	}
}

// Whatever a process prints, and whatever a user's file says, there is an answer, and it is bounded.
func FuzzClassify(f *testing.F) {
	text, err := json.Marshal([]Signature{{Name: "mine", Cause: job.Network, Patterns: []string{"mine: .*"}, Samples: []Sample{{Lines: []string{"mine: x"}}}}})
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range Builtin() {
		for _, sample := range s.Samples {
			f.Add(string(text), strings.Join(sample.Lines, "\n"), "", s.ExitCode, "")
		}
	}
	f.Add(`[{"patterns": ["(x+x+)+y"]}]`, "", "KeyError: 'x'", 1, "aborted")
	f.Fuzz(func(t *testing.T, own, tail, message string, code int, signal string) {
		parsed, err := ParseSignatures(own)
		if err == nil && Check(parsed) == nil && own != "" {
			if _, err := New(parsed); err != nil {
				t.Fatalf("checked, but %v", err)
			}
		}
		m, ok := For(own).Classify(&job.Exit{Code: code, Signal: signal, Tail: strings.Split(tail, "\n"), Message: message})
		if ok && own == "" && (m.Name == "" || m.Cause == "") {
			t.Fatalf("a match without a name and a cause: %+v", m)
		}
		if len(m.Line) > 3*maxLine || len(m.Trace) > maxLines {
			t.Fatalf("a line of %d bytes, a traceback of %d lines", len(m.Line), len(m.Trace))
		}
	})
}

// BenchmarkClassify is the cost of one exit with 50 lines of output: what a switch that fails takes down comes in hundreds.
func BenchmarkClassify(b *testing.B) {
	noise := make([]string, 46)
	for i := range noise {
		noise[i] = fmt.Sprintf("2026-11-26 19:00:00,%03d INFO worker 3: batch of 512 samples from shard-%05d.tar took 12.3 ms, loss 1.5, lr 3e-05, queue 7", i, i)
	}
	raised := []string{"Traceback (most recent call last):", `  File "/job/train.py", line 88, in <module>`, "    main()", ""}
	for name, last := range map[string]string{
		"nothing":   "step 12 loss 1.5",
		"exception": "KeyError: 'x'",
		"network":   "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:10895",
	} {
		b.Run(name, func(b *testing.B) {
			tail := append(slices.Clone(noise), raised...)
			tail[len(tail)-1] = last
			e := &job.Exit{Code: 1, Tail: tail}
			table := For("")
			b.ReportAllocs()
			for b.Loop() {
				table.Classify(e)
			}
		})
	}
}
