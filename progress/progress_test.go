package progress

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/eltrain/eltrain/job"
)

func mustNew(t testing.TB, own ...job.Recognizer) *Table {
	t.Helper()
	table, err := New(own)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// text is a reader's name and reading.
func text(r *Reader) string {
	reading, err := json.Marshal(r.Reading())
	if err != nil {
		panic(err)
	}
	return strings.TrimSpace(r.Name() + " " + string(reading))
}

// Every recognizer reads the lines that its framework prints, and no other recognizer takes them.
func TestRecognizersReadTheirSamples(t *testing.T) {
	table := mustNew(t)
	for _, r := range Builtin() {
		if len(r.Samples) == 0 {
			t.Errorf("%s has no samples", r.Name)
		}
		for _, s := range r.Samples {
			if s.Source == "" {
				t.Errorf("%s: %q has no source", r.Name, s.Lines)
			}
			if err := table.try(r.Name, s); err != nil {
				t.Error(err)
			}
		}
	}
}

// Whole outputs of real trainings: the steps that are read only grow, from the first to the last. Recorded with transformers 5.24.0 (40
// steps, evaluated every 10) and Lightning 2.6.6 (two epochs of 10 batches, with tqdm's bar and with rich's).
func TestRecordedOutputs(t *testing.T) {
	for name, want := range map[string]string{
		"huggingface":     `huggingface {"step":40,"total":40,"loss":1.391,"epoch":2,"learning_rate":0.00000125}`,
		"huggingface_nan": `huggingface {"step":40,"total":40,"loss":"NaN","epoch":2,"learning_rate":0.00000125}`,
		"lightning":       `lightning {"step":20,"loss":0.0744,"epoch":1}`,
		"lightning_rich":  `lightning {"step":20,"total":20,"epoch":1}`,
	} {
		output, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		r := mustNew(t).NewReader()
		var last int64
		for _, line := range strings.FieldsFunc(string(output), func(c rune) bool { return c == '\r' || c == '\n' }) {
			if seen := r.Read([]byte(line)); seen.Step {
				if step := *r.Reading().Step; step < last || step > last+5 && last > 0 {
					t.Errorf("%s: step %d follows on %d", name, step, last)
				}
				last = *r.Reading().Step
			}
		}
		if got := text(r); got != want {
			t.Errorf("%s: read %s, not %s", name, got, want)
		}
	}
}

// A line that contains no pattern's literal costs no regular expression, so every pattern needs one.
func TestEveryPatternHasALiteral(t *testing.T) {
	for _, r := range mustNew(t).recognizers {
		for i, p := range r.patterns {
			if len(p.literal) < 2 {
				t.Errorf("%s: pattern %d has only the literal %q", r.name, i, p.literal)
			}
		}
	}
}

// However many patterns there are, each is tried on the lines that it matches.
func TestManyPatterns(t *testing.T) {
	var own []job.Recognizer
	for i := range MaxRecognizers {
		r := job.Recognizer{Name: fmt.Sprint("own", i)}
		for k := range maxPatterns {
			r.Patterns = append(r.Patterns, fmt.Sprintf(`^%c%c(?P<step>\d+)`, 'A'+i, 'A'+k))
		}
		own = append(own, r)
	}
	table := mustNew(t, own...)
	for i := range MaxRecognizers {
		for k := range maxPatterns {
			r := table.NewReader()
			r.Read(fmt.Appendf(nil, "%c%c7", 'A'+i, 'A'+k))
			if got, want := text(r), fmt.Sprintf(`own%d {"step":7}`, i); got != want {
				t.Errorf("read %s, not %s", got, want)
			}
		}
	}
}

// What a reader makes of output that misleads.
func TestReadersAreNotFooled(t *testing.T) {
	bar := func(n, of int) string {
		return fmt.Sprintf(" 12%%|█▎        | %d/%d [00:10<00:30, 10.0it/s]", n, of)
	}
	trained := "{'loss': 2.5, 'grad_norm': 1.2, 'learning_rate': 4e-05, 'epoch': 0.25}"
	plain := func(steps ...int) (lines []string) {
		for _, s := range steps {
			lines = append(lines, fmt.Sprintf("step %d loss %d.5", s, s))
		}
		return lines
	}
	epoch := func(n, of int) string {
		return fmt.Sprintf("train:  12%%|█▎        | %d/%d [00:10<00:30, 10.0it/s]", n, of)
	}
	for name, test := range map[string]struct {
		lines []string
		want  string
	}{
		"a line of 1 MB":                         {[]string{"step 7 loss 1.5" + strings.Repeat(" ", 1<<20)}, `{}`},
		"a step that is no number":               {[]string{"step 99999999999999999999 loss 1.5"}, `{}`},
		"a step back is one misread line":        {append(plain(10, 11, 12), append(plain(3), plain(13)...)...), `plain {"step":13,"loss":13.5}`},
		"a step back that goes on from there":    {plain(10, 11, 12, 3, 4, 5), `plain {"step":5,"loss":5.5}`},
		"a jump is one misread line":             {plain(10, 11, 20231125, 12), `plain {"step":12,"loss":12.5}`},
		"a jump that goes on from there":         {plain(10, 11, 500000, 500001), `plain {"step":500001,"loss":500001.5}`},
		"a jump at the end":                      {plain(10, 11, 20231125), `plain {"step":11,"loss":11.5}`},
		"long strides":                           {plain(5000, 10000, 15000), `plain {"step":15000,"loss":15000.5}`},
		"a resumed training":                     {plain(2000000, 2000100), `plain {"step":2000100,"loss":2000100.5}`},
		"validation steps":                       {[]string{"step 7 loss 1.5", "validation step 8 loss 9.5", "eval: iter 9/10 loss 9.5"}, `plain {"step":7,"loss":1.5}`},
		"a loss that is infinite":                {[]string{"step 7 loss -inf"}, `plain {"step":7,"loss":"-Infinity"}`},
		"a loss beyond all numbers":              {[]string{"step 7 loss 1e999"}, `plain {"step":7,"loss":"Infinity"}`},
		"a bare bar before the training":         {[]string{bar(3, 300), bar(300, 300), bar(0, 40), trained, bar(5, 40)}, `huggingface {"step":5,"total":40,"loss":2.5,"epoch":0.25,"learning_rate":0.00004}`},
		"an evaluation after the training":       {[]string{bar(0, 40), trained, bar(40, 40), bar(0, 5), bar(5, 5)}, `huggingface {"step":40,"total":40,"loss":2.5,"epoch":0.25,"learning_rate":0.00004}`},
		"a second training":                      {[]string{bar(0, 40), trained, bar(40, 40), bar(0, 30), trained, bar(6, 30)}, `huggingface {"step":6,"total":30,"loss":2.5,"epoch":0.25,"learning_rate":0.00004}`},
		"losses without any step":                {[]string{trained}, `huggingface {"loss":2.5,"epoch":0.25,"learning_rate":0.00004}`},
		"losses without a step beside steps":     {append([]string{trained}, plain(7)...), `plain {"step":7,"loss":7.5}`},
		"steps beside losses without a step":     {append(plain(7), trained), `plain {"step":7,"loss":7.5}`},
		"the same training in two forms":         {[]string{"step 7 loss 1.5", "iter 8: loss 1.4, time 9.5ms", "step 9 loss 1.3"}, `nanogpt {"step":8,"loss":1.4}`},
		"epochs without their number":            {[]string{epoch(99, 100), epoch(100, 100), epoch(0, 100), epoch(7, 100)}, `tqdm {"step":107,"counted":true}`},
		"an evaluation with the bar of training": {[]string{epoch(99, 100), epoch(3, 10), epoch(100, 100)}, `tqdm {"step":100,"counted":true}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := mustNew(t).NewReader()
			for _, line := range test.lines {
				r.Read([]byte(line))
			}
			if got := text(r); got != test.want {
				t.Errorf("read %s, not %s", got, test.want)
			}
		})
	}
}

// What a line has changed is said, so that nobody compares readings.
func TestSeen(t *testing.T) {
	r := mustNew(t).NewReader()
	for _, test := range []struct {
		line string
		want Seen
	}{
		{"begins", Seen{}},
		{"step 7 loss 1.5", Seen{Read: true, Step: true, Name: "plain"}},
		{"step 7 loss 1.4", Seen{Read: true}},
		{"step 8 loss 1.3", Seen{Read: true, Step: true}},
		{"step 5 loss 1.3", Seen{}},
		{"iter 8: loss 1.4, time 9.5ms", Seen{Read: true, Name: "nanogpt"}},
		{"iter 9: loss 1.4, time 9.5ms", Seen{Read: true, Step: true}},
	} {
		if got := r.Read([]byte(test.line)); got != test.want {
			t.Errorf("%s: %+v, not %+v", test.line, got, test.want)
		}
	}
	step := int64(9)
	if got, want := r.Say(job.Reading{Step: &step}), (Seen{Read: true, Name: Said}); got != want {
		t.Errorf("said: %+v, not %+v", got, want)
	}
}

// A user's own pattern is the only one.
func TestOnlyTheUsersPattern(t *testing.T) {
	table, err := Only("progress", `at (?P<step>\d+) of (?P<total>\d+)(?: loss (?P<loss>\S+))?(?P<other>)`)
	if err != nil {
		t.Fatal(err)
	}
	r := table.NewReader()
	for _, line := range []string{"step 3 loss 1.5", "iter 8: loss 1.4, time 9.5ms", "at 5 of 10 loss nan", "at 6 of 10 loss none", "at 6 of 10"} {
		r.Read([]byte(line))
	}
	if got, want := text(r), `progress {"step":6,"total":10,"loss":"NaN"}`; got != want {
		t.Errorf("read %s, not %s", got, want)
	}
	for _, bad := range []string{"(", `loss (?P<loss>\S+)`} {
		if _, err := Only("progress", bad); err == nil {
			t.Errorf("pattern %q was accepted", bad)
		}
	}
}

// A user's recognizers come before the built-in ones, and mistakes in them are found before anything runs.
func TestUsersRecognizers(t *testing.T) {
	step := int64(7)
	sample := []job.Sample{{Lines: []string{"step 7 loss 1.5 mine"}, Reading: &job.Reading{Step: &step}}}
	good := job.Recognizer{Name: "mine", Patterns: []string{`step (?P<step>\d+) .* mine`}, Samples: sample}
	if err := Check([]job.Recognizer{good}); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(r *job.Recognizer){
		"has no name":                        func(r *job.Recognizer) { r.Name = "" },
		`another recognizer named "tqdm"`:    func(r *job.Recognizer) { r.Name = "tqdm" },
		"has no patterns":                    func(r *job.Recognizer) { r.Patterns, r.Then = nil, r.Patterns },
		"missing closing )":                  func(r *job.Recognizer) { r.Then = []string{"("} },
		"unless must be":                     func(r *job.Recognizer) { r.Unless = []string{"Eval"} },
		"more than 16 patterns":              func(r *job.Recognizer) { r.Then = make([]string, 16) },
		"longer than 1024 bytes":             func(r *job.Recognizer) { r.Then = []string{strings.Repeat("x", 1025)} },
		"no pattern with a group named step": func(r *job.Recognizer) { r.Patterns = []string{"mine"} },
		"no sample with a step":              func(r *job.Recognizer) { r.Samples = nil },
		`is recognized by "plain"`:           func(r *job.Recognizer) { r.Patterns = []string{`(?P<step>\d+) is mine`} },
		`not {"step":7}`:                     func(r *job.Recognizer) { r.Patterns = []string{`step (?P<n>\d+) loss (?P<step>\d+)`} },
	} {
		r := good
		change(&r)
		if err := Check([]job.Recognizer{r}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
	if err := Check(make([]job.Recognizer, MaxRecognizers+1)); err == nil {
		t.Error("too many recognizers were accepted")
	}
}

// The example of recognizers in the docs is one.
func TestTheDocumentedExample(t *testing.T) {
	page, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), `file("recognizers.json")`)
	_, rest, _ = strings.Cut(rest, "```json\n")
	example, _, _ := strings.Cut(rest, "```")
	own, err := ParseRecognizers(strings.TrimSpace(example))
	if err == nil {
		err = Check(own)
	}
	if err != nil || len(own) != 1 {
		t.Errorf("%d recognizers, %v", len(own), err)
	}
}

// What a program says itself counts in place of its output.
func TestSaid(t *testing.T) {
	r := mustNew(t).NewReader()
	r.Read([]byte("step 7 loss 1.5"))
	for _, line := range []string{`{"step": 8, "total": 100, "gpu": "hot"}`, `{"step": 9, "loss": NaN}`} {
		reading, err := Parse([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		r.Say(reading)
	}
	r.Read([]byte("step 70 loss 1.5"))
	if got, want := text(r), `said {"step":9,"total":100,"loss":"NaN"}`; got != want {
		t.Errorf("read %s, not %s", got, want)
	}
	for _, bad := range []string{``, `{}`, `{"stop": 1}`, `{"step": -1}`, `{"total": -1}`, `{"step": "1"}`, `{"step": 1.5}`, `[1]`, `{"step": 1`, `{"step": 1}` + strings.Repeat(" ", maxLine)} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%.40q was accepted", bad)
		}
	}
}

// Whatever a process prints, what is read of it can be reported.
func TestAnyOutputCanBeReported(t *testing.T) {
	table := mustNew(t)
	rapid.Check(t, func(t *rapid.T) {
		r := table.NewReader()
		for range rapid.IntRange(1, 8).Draw(t, "lines") {
			sampled := rapid.SampledFrom(Builtin()).Draw(t, "recognizer")
			lines := rapid.SampledFrom(sampled.Samples).Draw(t, "sample").Lines
			line := []byte(rapid.SampledFrom(lines).Draw(t, "line"))
			for range rapid.IntRange(0, 4).Draw(t, "edits") {
				if len(line) == 0 {
					break
				}
				at := rapid.IntRange(0, len(line)-1).Draw(t, "at")
				line[at] = rapid.SampledFrom([]byte("0123456789999eE-+.|/[]\x1b[mA, ninf")).Draw(t, "byte")
			}
			r.Read(line)
		}
		reading := r.Reading()
		if _, err := json.Marshal(reading); err != nil {
			t.Fatal(err)
		}
		for _, n := range []*int64{reading.Step, reading.Total} {
			if n != nil && *n < 0 {
				t.Fatalf("read %s", text(r))
			}
		}
	})
}

// BenchmarkRead is the cost of output in which nothing is to be read, of a training with a recognizer, and of one that prints
// nothing but bars.
func BenchmarkRead(b *testing.B) {
	noise := []byte("2026-11-26 19:00:00,123 INFO worker 3: batch of 512 samples from shard-00017.tar took 12.3 ms, queue 7")
	for name, lines := range map[string][][]byte{
		"nothing": {noise},
		"plain":   {noise, noise, noise, noise, noise, noise, noise, noise, noise, []byte("step 12 loss 1.5")},
		"bars":    {[]byte("train:  52%|█████▏    | 1044/2000 [00:01<00:01, 864.83it/s, loss=0.000958]")},
	} {
		b.Run(name, func(b *testing.B) {
			r := mustNew(b).NewReader()
			size := 0
			for _, line := range lines {
				size += len(line)
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				for _, line := range lines {
					r.Read(line)
				}
			}
		})
	}
}

func TestNumbers(t *testing.T) {
	for in, want := range map[string]float64{"1,234.5": 1234.5, "nan": math.NaN(), "-inf": math.Inf(-1), "1e-999": 0} {
		if got, ok := number(in); !ok || got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("%s is %v, %v", in, got, ok)
		}
	}
	if finite("inf") != nil || finite("x") != nil {
		t.Error("read a number that is not finite")
	}
}
