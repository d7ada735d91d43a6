package planfile

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
)

const (
	longSecret  = "hunter2hunter2"
	shortSecret = "7x"
)

// sample returns a plan for a new job with two slots, next to a running one.
func sample() *File {
	at := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	role := job.Role{Name: "worker", Replicas: 2, Processes: 1, Ranked: true, Program: job.Program{
		Command: []string{"train", "--token=" + longSecret, "--pin", shortSecret}, WorkingDir: ".", Env: map[string]string{"T": longSecret, "N": "17x7"},
	}, Resources: job.Resources{CPU: 1000}, Pod: map[string]any{"spec": map[string]any{"hostname": "h-" + longSecret, "n": []any{longSecret, 3.5}}}}
	heal := job.Heal{Budget: job.Budget{Restarts: 3, Window: job.Duration(time.Hour)}}
	rendezvous, detect := job.Rendezvous{Timeout: job.Duration(time.Minute)}, job.Detect{Lease: job.Duration(time.Minute)}
	j := job.Job{Name: "new", Provider: "local", Roles: []job.Role{role}, Heal: heal, Rendezvous: rendezvous, Detect: detect, Secrets: []string{longSecret, shortSecret}}
	other := job.Job{Name: "other", Provider: "local", Roles: []job.Role{{Name: "worker", Replicas: 1, Processes: 1, Ranked: true, Program: job.Program{Command: []string{"true"}},
		Resources: job.Resources{CPU: 1000}}}, Heal: heal, Rendezvous: rendezvous, Detect: detect}
	a := job.Address{Job: "other", Role: "worker"}
	print := job.Fingerprints(&other, &other.Roles[0])(0)
	in := plan.Input{Now: at, Since: at, Jobs: append(sealer("a key").Jobs([]job.Job{j}), other), Capabilities: map[string]job.Capabilities{"local": {Places: true, Pods: true}},
		Records: job.Records{"other": {UID: "u-other", Created: at, Spec: other, Phase: job.JobRunning, Counts: map[string]int{"worker": 1},
			Slots: []job.Slot{{Address: a, Phase: job.Running, Incarnation: 1, Node: "n1", Reserved: other.Roles[0].Resources, Fingerprint: print}},
			World: job.World{Generation: 1, Members: []job.WorldMember{{Slot: a, Incarnation: 1}}}}},
		NewUID: func(name string) string { return "u-" + name },
	}
	in.Snapshot.Nodes = []job.Node{{Name: "n1", Provider: "local", Capacity: job.Resources{CPU: 4000}}}
	in.Snapshot.Incarnations = job.Incarnations{{{Slot: a, UID: "u-other", Number: 1, Node: "n1", Provider: "local", State: job.Up, Fingerprint: print, Reserved: other.Roles[0].Resources}}}
	facts := view.PlanFacts{Input: in, Plan: plan.Make(in), Version: "0.1.0"}
	return &File{Eltrain: "0.1.0", Made: at, Home: "file /a/eltrain.state", Settings: lang.Settings{State: lang.State{Type: "file"}},
		Providers: []Provider{{"local", []byte(`{"Nodes":null}`)}}, Facts: facts, UIDs: plan.NewUIDs(&facts.Input, &facts.Plan)}
}

// sealer returns a sealer with a key derived from the word.
func sealer(word string) *job.Sealer {
	s := new(job.Sealer)
	s.SetKey([]byte(word))
	return s
}

// saved writes the plan and returns its path.
func saved(t *testing.T, f *File) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plan")
	if err := f.Write(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestASavedPlanIsWhatWasSaved(t *testing.T) {
	f := sample()
	path := saved(t, f)
	got, err := Read(path, "0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	unsourced := f.Facts.Input.Jobs
	unsourced[0].Secrets = nil // never in JSON
	if diff := cmp.Diff(unsourced, got.Facts.Input.Jobs); diff != "" {
		t.Errorf("the jobs differ (-saved +read):\n%s", diff)
	}
	again := got.Facts.Input
	again.NewUID = f.Facts.Input.NewUID
	if p := plan.Make(again); fmt.Sprint(p.Summary(), len(p.Changes)) != fmt.Sprint(f.Facts.Plan.Summary(), len(f.Facts.Plan.Changes)) {
		t.Errorf("planning from the file gives %+v, want %+v", p.Summary(), f.Facts.Plan.Summary())
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v, %v", info.Mode(), err)
	}
}

// The file contains no sensitive values, and the plan read from it renders like the original one.
func TestASavedPlanHoldsNoSecret(t *testing.T) {
	f := sample()
	got, err := Read(saved(t, f), "0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprintf("%+v", got.Facts.Input.Jobs) + fmt.Sprintf("%+v", got.Facts.Plan); strings.Contains(text, longSecret) {
		t.Errorf("the file has the secret in it: %s", text)
	}
	if env := got.Facts.Input.Jobs[0].Roles[0].Env["N"]; env != "17x7" {
		t.Errorf("a text that only looks like a short secret became %q", env)
	}
	if cmd := got.Facts.Input.Jobs[0].Roles[0].Command[3]; cmd == shortSecret {
		t.Error("the short secret is in the file")
	}
	live, read := view.NewRedactor(f.Facts.Input.Jobs), view.NewRedactor(nil)
	for _, write := range []func(*bytes.Buffer, *view.PlanModel){
		func(b *bytes.Buffer, m *view.PlanModel) { view.WritePlan(view.Screen{Writer: b}, m) },
		func(b *bytes.Buffer, m *view.PlanModel) { view.WriteJSON(b, m) },
		func(b *bytes.Buffer, m *view.PlanModel) { view.WritePlanMarkdown(b, m) },
	} {
		var a, b bytes.Buffer
		write(&a, view.NewPlan(f.Facts, live))
		write(&b, view.NewPlan(got.Facts, read))
		if diff := cmp.Diff(a.String(), b.String()); diff != "" {
			t.Errorf("the saved plan renders differently (-made +read):\n%s", diff)
		}
	}
}

// forged writes a plan whose JSON was edited and whose checksum was made anew, and reads it.
func forged(t *testing.T, f *File, edit func(file map[string]any)) (*File, error) {
	t.Helper()
	path := saved(t, f)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := bytes.Cut(whole, []byte("\n"))
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := json.NewDecoder(z).Decode(&file); err != nil {
		t.Fatal(err)
	}
	edit(file)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if err := errors.Join(json.NewEncoder(w).Encode(file), w.Close()); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(packed.Bytes())
	header := fmt.Sprintf("%s %d %s %d\n", magic, Version, hex.EncodeToString(sum[:]), packed.Len())
	if err := os.WriteFile(path, append([]byte(header), packed.Bytes()...), 0o600); err != nil {
		t.Fatal(err)
	}
	return Read(path, "0.1.0")
}

// A file that declares other commands shows them, whatever plan is written into it.
func TestAForgedPlanShowsWhatItApplies(t *testing.T) {
	honest := sample()
	shown, err := json.Marshal(honest.Facts.Plan)
	if err != nil {
		t.Fatal(err)
	}
	got, err := forged(t, honest, func(file map[string]any) {
		facts := file["facts"].(map[string]any)
		facts["plan"] = json.RawMessage(shown)
		declared := facts["input"].(map[string]any)["jobs"].([]any)[0].(map[string]any)
		declared["Roles"].([]any)[0].(map[string]any)["Command"] = []string{"steal"}
	})
	if err != nil {
		t.Fatal(err)
	}
	model := view.NewPlan(got.Facts, view.NewRedactor(nil))
	var text, comment, code bytes.Buffer
	view.WritePlan(view.Screen{Writer: &text}, model)
	if err := errors.Join(view.WritePlanMarkdown(&comment, model), view.WriteJSON(&code, model)); err != nil {
		t.Fatal(err)
	}
	for _, out := range []*bytes.Buffer{&text, &comment, &code} {
		if !strings.Contains(out.String(), "steal") || strings.Contains(out.String(), `"train"`) {
			t.Errorf("the plan hides the command that it applies:\n%.1500s", out)
		}
	}
}

// renamed returns a copy of the record of job other as that of job new.
func renamed(t *testing.T, record any) (out any) {
	t.Helper()
	text, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(bytes.ReplaceAll(text, []byte("other"), []byte("new")), &out); err != nil {
		t.Fatal(err)
	}
	out.(map[string]any)["uid"] = "u"
	return out
}

// The records that a plan was made from decide what it shows as changed, so those of the state must be the same.
func TestForgedRecordsAreRefused(t *testing.T) {
	records := func(file map[string]any) map[string]any {
		return file["facts"].(map[string]any)["input"].(map[string]any)["records"].(map[string]any)
	}
	for name, c := range map[string]struct {
		edit func(records map[string]any)
		want string // "" if it is not refused
	}{
		"nothing":     {func(map[string]any) {}, ""},
		"edited":      {func(r map[string]any) { r["other"].(map[string]any)["spec"].(map[string]any)["Priority"] = 7 }, "job.other is recorded differently"},
		"left out":    {func(r map[string]any) { delete(r, "other") }, "job.other is in the state, and not in the plan"},
		"made up":     {func(r map[string]any) { r["new"] = renamed(t, r["other"]) }, "job.new is recorded differently"},
		"null":        {func(r map[string]any) { r["other"] = nil }, "job.other is null"},
		"another UID": {func(r map[string]any) { r["other"].(map[string]any)["uid"] = "u" }, "job.other is recorded differently"},
	} {
		f := sample()
		got, err := forged(t, f, func(file map[string]any) { c.edit(records(file)) })
		if err == nil {
			err = got.CheckRecords(f.Facts.Input.Records)
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// What a plan is made from is checked before: no job that the files could not declare, no name or UID that is a path, no count
// that takes all memory.
func TestForgedJobsAreRefused(t *testing.T) {
	type object = map[string]any
	for name, c := range map[string]struct {
		edit func(file, input, declared, role object)
		want string // "" if it is not refused
	}{
		"nothing":     {func(_, _, _, _ object) {}, ""},
		"a billion":   {func(_, _, _, role object) { role["Replicas"] = 1_000_000_000 }, "Too many slots"},
		"millions":    {func(_, _, _, role object) { role["Replicas"] = 3_000_000 }, "Too many slots"},
		"elastic":     {func(_, _, _, role object) { role["Scaling"] = object{"Min": 1, "Max": 1 << 62, "Step": 1} }, "Too many slots"},
		"negative":    {func(_, _, _, role object) { role["Replicas"] = -5 }, "at least 1 slot, not -5"},
		"twice":       {func(_, input, declared, _ object) { input["jobs"] = append(input["jobs"].([]any), declared) }, `Duplicate job "new"`},
		"role twice":  {func(_, _, declared, role object) { declared["Roles"] = []any{role, role} }, `Duplicate role "worker"`},
		"name":        {func(_, _, declared, _ object) { declared["Name"] = "../../../x" }, "cannot be a name"},
		"role's name": {func(_, _, _, role object) { role["Name"] = "../x" }, "cannot be a name"},
		"address":     {func(_, _, declared, _ object) { declared["Address"] = "job.other" }, "not that of a job of this name"},
		"programs":    {func(_, _, _, role object) { role["PerSlot"] = []any{object{"Command": []string{"steal"}}} }, "not those of its slots"},
		"UID":         {func(file, _, _, _ object) { file["uids"] = object{"new": "../../../../evil"} }, "cannot be one"},
		"no UID":      {func(file, _, _, _ object) { file["uids"] = nil }, "has no uid"},
		"its UID":     {func(file, _, _, _ object) { file["uids"] = object{"new": "u-other"} }, "have the same uid"},
		"recorded": {func(_, input, _, _ object) {
			input["records"].(object)["other"].(object)["spec"].(object)["Roles"].([]any)[0].(object)["Replicas"] = 1_000_000_000
		}, "slots of a role"},
		"counted": {func(_, input, _, _ object) {
			input["records"].(object)["other"].(object)["counts"] = object{"worker": 1_000_000_000, "x": -1}
		}, ""},
		"observed": {func(_, input, _, _ object) {
			input["snapshot"].(object)["incarnations"].([]any)[0].(object)["slot"] = "job.other.worker[1000000000]"
		}, "is not an index"},
		"record's UID": {func(_, input, _, _ object) { input["records"].(object)["other"].(object)["uid"] = "../x" }, "cannot be one"},
	} {
		_, err := forged(t, sample(), func(file object) {
			input := file["facts"].(object)["input"].(object)
			declared := input["jobs"].([]any)[0].(object)
			c.edit(file, input, declared, declared["Roles"].([]any)[0].(object))
		})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestASealedPlanWantsTheVeryValues(t *testing.T) {
	got, err := Read(saved(t, sample()), "0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	if !got.Sealed() {
		t.Fatal("a plan with secrets is not sealed")
	}
	declared := func(long string) []job.Job {
		return []job.Job{{Name: "new", Roles: []job.Role{{Name: "worker", Program: job.Program{Command: []string{long, shortSecret}}}}, Secrets: []string{long, shortSecret}}}
	}
	var missing *MissingError
	for name, c := range map[string]struct {
		word, value string
		known       bool
	}{"the values": {"a key", longSecret, true}, "another value": {"a key", "another", false}, "another key": {"other", longSecret, false}} {
		s := sealer(c.word)
		s.Jobs(declared(c.value))
		err := got.CheckSealed(s)
		if c.known != (err == nil) || err != nil && (!errors.As(err, &missing) || !reflect.DeepEqual(missing.Jobs, []string{"new"})) {
			t.Errorf("%s: %v", name, err)
		}
	}
	none := sample()
	none.Facts.Input.Jobs[0].Roles[0].Program = job.Program{Command: []string{"true"}}
	none.Facts.Input.Jobs[0].Roles[0].Pod = nil
	if got, err = Read(saved(t, none), "0.1.0"); err != nil || got.Sealed() {
		t.Errorf("a plan whose jobs have no secrets requires some: %v", err)
	}
}

func TestReadRefusesWhatIsNotTheWholePlan(t *testing.T) {
	path := saved(t, sample())
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	newline := bytes.IndexByte(whole, '\n')
	edited := bytes.Clone(whole)
	edited[len(edited)-20] ^= 1
	header := strings.Replace(string(whole[:newline]), "plan 2", "plan 3", 1)
	var version *VersionError
	for name, c := range map[string]struct {
		text []byte
		is   func(error) bool
	}{
		"empty":               {nil, is(ErrNoPlan)},
		"cut in the header":   {whole[:newline/2], is(ErrCut)},
		"cut in the word":     {whole[:5], is(ErrCut)},
		"without its body":    {whole[:newline+1], is(ErrCut)},
		"cut by a byte":       {whole[:len(whole)-1], is(ErrCut)},
		"edited":              {edited, is(ErrEdited)},
		"with more behind":    {append(bytes.Clone(whole), '\n'), is(ErrEdited)},
		"a newer format":      {append([]byte(header), whole[newline:]...), func(err error) bool { return errors.As(err, &version) }},
		"something else":      {[]byte("job \"x\" {\n}\n"), is(ErrNoPlan)},
		"a plan of Terraform": {[]byte("PK\x03\x04 and so on"), is(ErrNoPlan)},
	} {
		other := filepath.Join(t.TempDir(), "plan")
		if err := os.WriteFile(other, c.text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(other, "0.1.0"); err == nil || !c.is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Read(path, "0.2.0"); !errors.As(err, &version) || !strings.Contains(err.Error(), "eltrain 0.1.0") {
		t.Errorf("of another eltrain: %v", err)
	}
	if _, err := Read(t.TempDir(), "0.1.0"); err == nil {
		t.Error("a directory is read as a plan")
	}
}

// A small file that unpacks to gigabytes is refused without taking the memory.
func TestReadRefusesABomb(t *testing.T) {
	var part bytes.Buffer
	z := gzip.NewWriter(&part)
	if _, err := z.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	body := bytes.Repeat(part.Bytes(), 4<<10)
	path := filepath.Join(t.TempDir(), "plan")
	header := fmt.Sprintf("%s %d %x %d\n", magic, Version, sha256.Sum256(body), len(body))
	if err := os.WriteFile(path, append([]byte(header), body...), 0o600); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := Read(path, "0.1.0"); !errors.Is(err, ErrLarge) {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
		t.Errorf("it took %d bytes", took)
	}
}

func TestReadDoesNotWaitForAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{sample().Write(path), func() error { _, err := Read(path, "0.1.0"); return err }()} {
		if err == nil || !strings.Contains(err.Error(), "regular file") {
			t.Error(err)
		}
	}
}

func is(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }

// Files are replaced atomically: if a plan cannot be written, the earlier one stays.
func TestWriteLeavesNoHalfPlan(t *testing.T) {
	dir := t.TempDir()
	if err := sample().Write(filepath.Join(dir, "missing", "plan")); err == nil {
		t.Error("a plan is saved in a directory that does not exist")
	}
	path := filepath.Join(dir, "plan")
	for range 2 {
		if err := sample().Write(path); err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("beside the plan there is %v, %v", entries, err)
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name    string
		happens func(in *plan.Input)
		stale   string // part of the error; "" if it can be applied
		others  int
	}{
		{name: "nothing", happens: func(*plan.Input) {}},
		{name: "a foreign load elsewhere that leaves room", happens: func(in *plan.Input) { in.Snapshot.Nodes[0].Foreign.CPU = 500 }},
		{name: "a node joins", happens: func(in *plan.Input) {
			in.Snapshot.Nodes = append(in.Snapshot.Nodes, job.Node{Name: "n0", Provider: "local", Capacity: job.Resources{CPU: 1}})
		}},
		{name: "a slot of another job dies", others: 1, happens: func(in *plan.Input) {
			in.Snapshot.Incarnations[0][0].State, in.Snapshot.Incarnations[0][0].Exit = job.Gone, &job.Exit{Code: 1}
		}},
		{name: "the node is closed", stale: "node n1, which now is closed (cordoned)", happens: func(in *plan.Input) { in.Snapshot.Nodes[0].Closed = "cordoned" }},
		{name: "the node is full", stale: "nothing left to create", happens: func(in *plan.Input) { in.Snapshot.Nodes[0].Foreign.CPU = 3000 }},
		{name: "somebody started it", stale: "was not running, and is now incarnation 1 on n1", happens: func(in *plan.Input) {
			in.Snapshot.Incarnations = in.Snapshot.Incarnations.With(job.Incarnation{
				Slot: job.Address{Job: "new", Role: "worker", Index: 1}, UID: "u-new", Number: 1, Node: "n1", Provider: "local", State: job.Up})
		}},
		{name: "somebody edited a slot of another job", others: 1, happens: edited(0)},
	} {
		f := sample()
		in := f.Facts.Input
		in.Snapshot.Nodes = append([]job.Node{}, in.Snapshot.Nodes...)
		in.Snapshot.Incarnations = job.InParts(in.Snapshot.Incarnations.List())
		c.happens(&in)
		now := plan.Make(in)
		others, err := f.Check(&in, &now)
		var stale *StaleError
		switch {
		case c.stale == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.stale != "" && (!errors.As(err, &stale) || !strings.Contains(err.Error(), c.stale)):
			t.Errorf("%s: %v, want %q", c.name, err, c.stale)
		case len(others) != c.others:
			t.Errorf("%s: other changes are %v", c.name, others)
		}
	}
}

// A file that hides a start, by what it says of what runs or of the nodes, is stale: it starts nothing that it does not show.
func TestHiddenStartsAreRefused(t *testing.T) {
	runs := func(in *plan.Input, name, uid string, index, number int) {
		i := slices.IndexFunc(in.Jobs, func(j job.Job) bool { return j.Name == name })
		role := &in.Jobs[i].Roles[0]
		in.Snapshot.Incarnations = in.Snapshot.Incarnations.With(job.Incarnation{Slot: job.Address{Job: name, Role: "worker", Index: index}, UID: uid, Number: number,
			Node: "n1", Provider: "local", State: job.Up, Fingerprint: job.Fingerprints(&in.Jobs[i], role)(index), Reserved: role.Resources})
	}
	both := func(in *plan.Input) { runs(in, "new", "u-new", 0, 1); runs(in, "new", "u-new", 1, 1) }
	for _, c := range []struct {
		name     string
		declared func([]job.Job)   // in the file and after it
		forge    func(*plan.Input) // in the file alone
		since    func(*plan.Input)
		shows    plan.Summary
		stale    string
	}{
		{name: "a new job runs", forge: both, stale: "job.new.worker[0] was incarnation 1 on n1, and is now not running"},
		{name: "a part of it runs", forge: func(in *plan.Input) { runs(in, "new", "u-new", 1, 1) }, shows: plan.Summary{Add: 1}, stale: "job.new.worker[1] was incarnation 1"},
		{name: "a new job runs, and there is no room for it yet", forge: both, since: func(in *plan.Input) { in.Snapshot.Nodes[0].Foreign.CPU = 3000 },
			stale: "job.new.worker[0] was incarnation 1 on n1, and is now not running"},
		{name: "a new job has no room", forge: func(in *plan.Input) { in.Snapshot.Nodes[0].Foreign.CPU = 3000 }, stale: "job.new.worker[0] would be started, which the plan does not show"},
		{name: "an edited job runs", declared: func(jobs []job.Job) { jobs[1].Roles[0].Command = []string{"steal"} },
			forge: func(in *plan.Input) {
				in.Snapshot.Incarnations = nil
				both(in)
				runs(in, "other", "u-other", 0, 2)
			}, stale: "job.other.worker[0] was incarnation 2 on n1, and is now incarnation 1 on n1"},
		{name: "a job with more slots runs", declared: func(jobs []job.Job) { jobs[1].Roles[0].Replicas = 2 },
			forge: func(in *plan.Input) { both(in); runs(in, "other", "u-other", 1, 1) }, shows: plan.Summary{Change: 1}, stale: "job.other.worker[1] was incarnation 1 on n1, and is now not running"},
	} {
		f := sample()
		if c.declared != nil {
			jobs := f.Facts.Input.Jobs
			jobs[1].Roles = slices.Clone(jobs[1].Roles) // the record has the same
			c.declared(jobs)
		}
		now := f.Facts.Input
		now.Snapshot.Nodes = slices.Clone(now.Snapshot.Nodes)
		c.forge(&f.Facts.Input)
		got, err := Read(saved(t, f), "0.1.0")
		if err != nil {
			t.Fatal(err)
		}
		if got := got.Facts.Plan.Summary(); got != c.shows {
			t.Errorf("%s: the plan shows %+v", c.name, got)
		}
		now.Snapshot.Nodes[0].Foreign.CPU = 0
		if c.since != nil {
			c.since(&now)
		}
		p := plan.Make(now)
		if _, err = got.Check(&now, &p); !errors.As(err, new(*StaleError)) || !strings.Contains(err.Error(), c.stale) {
			t.Errorf("%s: %v, want %q", c.name, err, c.stale)
		}
	}
}

// edited returns a function that adds an edit of the environment of incarnation i, made after the plan.
func edited(i int) func(*plan.Input) {
	return func(in *plan.Input) {
		in.Snapshot.Incarnations[0][i].Drift = []job.FieldChange{{Path: `env["X"]`, Before: "1", After: "2"}}
	}
}

// A slot that the plan changes runs on the same node, but its incarnation was edited or replaced by somebody: it must not be
// overwritten.
func TestCheckRefusesWhatWasEdited(t *testing.T) {
	const says = "job.other.worker[0] (incarnation 1 on n1) was edited since"
	again := func(in *plan.Input) { in.Snapshot.Incarnations[0][0].Fingerprint = "of another one" }
	drifted := edited(0)
	for _, c := range []struct {
		name          string
		before, since func(*plan.Input) // nil for nothing
		stale         bool
	}{
		{name: "nobody did anything"},
		{name: "a field was edited", since: drifted, stale: true},
		{name: "a field was edited before the plan", before: drifted, since: drifted},
		{name: "an edit was taken back", before: drifted, since: func(in *plan.Input) { in.Snapshot.Incarnations[0][0].Drift = nil }, stale: true},
		{name: "it is of another fingerprint", since: again, stale: true},
	} {
		f := sample()
		in := f.Facts.Input
		in.Destroy, in.Jobs = true, nil // destroy the slot whatever its state
		at := in.Snapshot.Incarnations
		change := func(by func(*plan.Input)) {
			if in.Snapshot.Incarnations = job.InParts(at.List()); by != nil {
				by(&in)
			}
		}
		change(c.before)
		f.Facts.Input, f.Facts.Plan = in, plan.Make(in)
		f, err := Read(saved(t, f), "0.1.0") // through a file
		if err != nil {
			t.Fatal(err)
		}
		change(c.since)
		now := plan.Make(in)
		_, err = f.Check(&in, &now)
		if stale := errors.As(err, new(*StaleError)); stale != c.stale || stale && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestCheckState(t *testing.T) {
	f := &File{Lineage: "l1", Serial: 7}
	for _, c := range []struct {
		lineage string
		serial  uint64
		stale   string
	}{{"l1", 7, ""}, {"l1", 8, "its serial is 8, was 7"}, {"l2", 7, "lineage"}, {"", 0, "lineage"}} {
		err := f.CheckState(c.lineage, c.serial)
		if (err == nil) != (c.stale == "") || err != nil && !strings.Contains(err.Error(), c.stale) {
			t.Errorf("%s %d: %v", c.lineage, c.serial, err)
		}
	}
	if err := new(File).CheckState("l1", 1); err == nil || !strings.Contains(err.Error(), "there was no state") {
		t.Errorf("a state that was created since: %v", err)
	}
}

func TestStaleErrorStaysShort(t *testing.T) {
	e := &StaleError{}
	for i := range 1000 {
		e.Why = append(e.Why, fmt.Sprint(i))
	}
	if text := e.Error(); !strings.Contains(text, "and 990 more") || strings.Count(text, "\n") > 20 {
		t.Error(text)
	}
}

// A plan replaces a plan or an empty file, but nothing else: the state, a pipe, a device.
func TestAPlanReplacesNothingElse(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	const state = "{\n  \"serial\": 7\n}\n"
	for name, text := range map[string]string{"state": state, "short": "elt", "empty": ""} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"link": "empty", "to-pipe": "pipe", "to-state": "state", "nowhere": "missing"} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(syscall.Mkfifo(at("pipe"), 0o600), os.Mkdir(at("dir"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"state": "is not a saved plan", "short": "is not a saved plan", "to-state": "is not a saved plan",
		"pipe": "not a regular file", "to-pipe": "not a regular file", "dir": "not a regular file", "nowhere": "a symbolic link to a missing file",
	} {
		if err := sample().Write(at(name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("-out=%s: %v, want %q", name, err, want)
		}
	}
	if text, err := os.ReadFile(at("state")); err != nil || string(text) != state {
		t.Errorf("the state is %q, %v", text, err)
	}
	if info, err := os.Lstat(at("pipe")); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		t.Errorf("the pipe is %v, %v", info, err)
	}
	for range 2 { // the second time it replaces a plan
		if err := sample().Write(at("link")); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Lstat(at("link")); err != nil || info.Mode().Type() != fs.ModeSymlink {
		t.Errorf("the link is %v, %v", info, err)
	}
	if _, err := Read(at("empty"), "0.1.0"); err != nil {
		t.Errorf("behind the link: %v", err)
	}
}
