package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/eltrain/eltrain/job"
)

// now is when tests look; files were written long before, unless they say otherwise.
var now = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

const zip = "PK\x03\x04 tensors PK\x05\x06                  "

// files makes a directory. A name with a slash at its end is an empty directory.
func files(text map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, data := range text {
		mode := fs.FileMode(0o644)
		if strings.HasSuffix(name, "/") {
			name, mode = strings.TrimSuffix(name, "/"), fs.ModeDir|0o755
		}
		fsys[name] = &fstest.MapFile{Data: []byte(data), Mode: mode, ModTime: now.Add(-time.Hour)}
	}
	return fsys
}

// describe returns what was found as text, one line each.
func describe(found []Checkpoint) (lines []string) {
	for _, c := range found {
		line := fmt.Sprintf("%s %s %d", c.Path, c.Layout, c.Step)
		if c.Whole() {
			line += " whole"
		} else {
			line += " " + string(c.Flaw.Code)
			if c.Flaw.File != "" {
				line += " " + c.Flaw.File
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func mustLook(t *testing.T, fsys fs.FS, known []Checkpoint) []Checkpoint {
	t.Helper()
	found, err := Look(fsys, now, known)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Each layout of the table, with what is whole and what is torn in it.
func TestLayouts(t *testing.T) {
	whole, torn := map[string]bool{}, map[string]bool{}
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"megatron": {
			map[string]string{"iter_0000400/mp_rank_00/model_optim_rng.pt": "x", "iter_0000500/common.pt": "x", "iter_0000600/common.pt": "x",
				"latest_checkpointed_iteration.txt": "500\n", "progress.txt": "x"},
			[]string{"iter_0000600 megatron 600 not_named latest_checkpointed_iteration.txt", "iter_0000500 megatron 500 whole", "iter_0000400 megatron 400 whole"},
		},
		"megatron, its first torn": {
			map[string]string{"iter_0000500/common.pt": "x"},
			[]string{"iter_0000500 megatron 500 unmarked latest_checkpointed_iteration.txt"},
		},
		"megatron, its pointer just cut": {
			map[string]string{"iter_0000500/common.pt": "x", "latest_checkpointed_iteration.txt": ""},
			[]string{"iter_0000500 megatron 500 unmarked latest_checkpointed_iteration.txt"},
		},
		"verl": {
			map[string]string{"global_step_3/actor/model.pt": "x", "global_step_6/actor/model.pt": "x", "latest_checkpointed_iteration.txt": "3"},
			[]string{"global_step_6 verl 6 not_named latest_checkpointed_iteration.txt", "global_step_3 verl 3 whole"},
		},
		"deepspeed": {
			map[string]string{"global_step1000/mp_rank_00_model_states.pt": "x", "global_step2000/zero_pp_rank_0_mp_rank_00_optim_states.pt": "x",
				"latest": "global_step1000", "zero_to_fp32.py": "x"},
			[]string{"global_step2000 deepspeed 2000 not_named latest", "global_step1000 deepspeed 1000 whole"},
		},
		"transformers": {
			map[string]string{
				"checkpoint-500/model.safetensors": "x", "checkpoint-500/trainer_state.json": "{\n  \"epoch\": 1.0,\n  \"global_step\": 500,\n  \"log_history\": []\n}",
				"checkpoint-1000/model.safetensors":  "x",
				"checkpoint-1500/trainer_state.json": `{"global_step": 1500, "log_hi`,
				"checkpoint-2000/trainer_state.json": `{"global_step": 2000}`, "checkpoint-2000/checkpoint-is-incomplete.txt": "x",
				"checkpoint-2500/": "",
				"runs/Jan01/events.out.tfevents.1700000000.me": "x", "config.json": "{}", "model.safetensors": "x", "trainer_state.json": "{}",
			},
			[]string{"checkpoint-2500 transformers 2500 unmarked trainer_state.json", "checkpoint-2000 transformers 2000 marked checkpoint-is-incomplete.txt",
				"checkpoint-1500 transformers 1500 cut trainer_state.json", "checkpoint-1000 transformers 1000 unmarked trainer_state.json",
				"checkpoint-500 transformers 500 whole"},
		},
		"transformers, copied under another number": {
			map[string]string{"checkpoint-1/trainer_state.json": `{"best_metric": null, "x": [1, {"global_step": 3}], "global_step": 700}`},
			[]string{"checkpoint-1 transformers 700 whole"},
		},
		"accelerate": {
			map[string]string{"checkpoint-500/random_states_0.pkl": "x", "checkpoint-500/optimizer.bin": "x", "checkpoint_6/random_states_0.pkl": ""},
			[]string{"checkpoint-500 accelerate 500 whole", "checkpoint_6 accelerate 6 unmarked random_states_0.pkl"},
		},
		"torchtitan": {
			map[string]string{"step-10/.metadata": "x", "step-10/__0_0.distcp": "x", "step-20/__0_0.distcp": "x", "step-30/.metadata": "", "step-30/__0_0.distcp": "x"},
			[]string{"step-30 torchtitan 30 unmarked .metadata", "step-20 torchtitan 20 unmarked .metadata", "step-10 torchtitan 10 whole"},
		},
		"dcp": {
			map[string]string{"ckpt-7/.metadata": "x", "ckpt-7/__0_0.distcp": "x", "mine_8/__0_0.distcp": "x"},
			[]string{"mine_8 dcp 8 unmarked .metadata", "ckpt-7 dcp 7 whole"},
		},
		"dcp, the directory itself":       {map[string]string{".metadata": "x", "__0_0.distcp": "x"}, []string{". dcp 0 whole"}},
		"dcp, the directory itself, torn": {map[string]string{"__0_0.distcp": "x", "__1_0.distcp": "x"}, []string{". dcp 0 unmarked .metadata"}},
		"lightning": {
			map[string]string{"epoch=0-step=88.ckpt": zip, "epoch=1-step=176.ckpt": zip[:20], "last.ckpt": zip,
				"epoch=2-step=264.ckpt/.metadata": "x", "epoch=2-step=264.ckpt/meta.pt": "x", "epoch=3-step=352.ckpt/__0_0.distcp": "x"},
			[]string{"epoch=3-step=352.ckpt lightning 352 unmarked meta.pt", "epoch=2-step=264.ckpt lightning 264 whole",
				"epoch=1-step=176.ckpt lightning 176 cut epoch=1-step=176.ckpt", "epoch=0-step=88.ckpt lightning 88 whole", "last.ckpt lightning 0 whole"},
		},
		"nanoGPT":       {map[string]string{"ckpt.pt": zip}, []string{"ckpt.pt file 0 whole"}},
		"nanoGPT, torn": {map[string]string{"ckpt.pt": zip[:len(zip)-1]}, []string{"ckpt.pt file 0 cut ckpt.pt"}},
		"plain files": {
			map[string]string{"step-00000120.json": "{}", "step-00000180.json": "", "step-00000240.json.tmp.77": "{", "9": "x", "log.txt": "x"},
			[]string{"step-00000180.json file 180 empty", "step-00000120.json file 120 whole", "9 file 9 whole", "step-00000240.json.tmp.77 temporary 0 unfinished"},
		},
		"plain files by epoch":           {map[string]string{"epoch_3.pth": "x", "best.pth": "x"}, []string{"best.pth file 0 whole", "epoch_3.pth file 0 whole"}},
		"the best beside those of steps": {map[string]string{"best.pt": "x", "model_v2-40.pt2": "x"}, []string{"model_v2-40.pt2 file 40 whole"}},
		"directories":                    {map[string]string{"step_100/model.pt": "x", "step_200/": "", "logs/x": "x"}, []string{"step_200 directory 200 empty", "step_100 directory 100 whole"}},
		"directories with a pointer": {
			map[string]string{"step_100/model.pt": "x", "step_200/model.pt": "x", "latest": "step_100"},
			[]string{"step_200 directory 200 not_named latest", "step_100 directory 100 whole"},
		},
		"a pointer to elsewhere": {map[string]string{"latest": "s3://bucket/run/step-900\n"}, []string{"latest pointer 900 whole"}},
		"an empty pointer":       {map[string]string{"latest": ""}, []string{"latest pointer 0 empty"}},
		"any file":               {map[string]string{"state": "x", "notes.md": "x"}, []string{"state other 0 whole"}},
		"an empty file":          {map[string]string{"state": ""}, []string{"state other 0 empty"}},
		"nothing":                {map[string]string{"events.out.tfevents.17": "x", "config.json": "{}", "runs/a": "x"}, nil},
		"a huge number":          {map[string]string{"step-99999999999999999999.pt": "x"}, []string{"step-99999999999999999999.pt file 0 whole"}},
	} {
		found := mustLook(t, files(test.files), nil)
		if got := describe(found); !slices.Equal(got, test.want) {
			t.Errorf("%s:\n%s\nwant:\n%s", name, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
		for _, c := range found {
			whole[c.Layout], torn[c.Layout] = whole[c.Layout] || c.Whole(), torn[c.Layout] || !c.Whole()
		}
	}
	for i, l := range Layouts {
		if !compiled()[i].MatchString(l.Like) || l.Source == "" {
			t.Errorf("%s is not like %s, or has no source", l.Name, l.Like)
		}
		if !whole[l.Name] || !torn[l.Name] {
			t.Errorf("%s is tested whole: %v, torn: %v", l.Name, whole[l.Name], torn[l.Name])
		}
	}
}

func TestSizeAndTime(t *testing.T) {
	fsys := files(map[string]string{
		"checkpoint-1/trainer_state.json": "{}", "checkpoint-1/a/weights": "123", "checkpoint-2/trainer_state.json": "{}", "checkpoint-2/a/b/weights": "12345",
		"checkpoint-3/weights": "1234",
	})
	last := now.Add(-time.Minute)
	fsys["checkpoint-2/a/b/weights"].ModTime = last
	found := mustLook(t, fsys, nil)
	if c := Newest(found); c == nil || c.Step != 2 || c.Size != 7 || !c.Written.Equal(last) || c.Mark != "checkpoint-2/trainer_state.json" || !c.Marked.Equal(now.Add(-time.Hour)) {
		t.Errorf("the newest is %+v", c)
	}
	if found[0].Step != 3 || found[0].Size != 4 {
		t.Errorf("the torn one is %+v", found[0])
	}
	// What is known is not read again, until its mark changes.
	fsys["checkpoint-2/a/b/weights"].Data = nil
	again := mustLook(t, fsys, found)
	if c := Newest(again); c.Size != 7 {
		t.Errorf("it was measured again: %+v", c)
	}
	fsys["checkpoint-2/trainer_state.json"].ModTime = now
	if c := Newest(mustLook(t, fsys, again)); c.Size != 2 {
		t.Errorf("it was not measured again: %+v", c)
	}
}

func TestAtAStep(t *testing.T) {
	fsys := files(map[string]string{"global_step1/x": "x", "global_step2/x": "x", "global_step3/x": "x", "latest": "global_step2"})
	for step, want := range map[int64]string{1: "global_step1 deepspeed 1 whole", 3: "global_step3 deepspeed 3 not_named latest", 4: ""} {
		found, err := At(fsys, now, step)
		if got := strings.Join(describe(found), "\n"); err != nil || got != want {
			t.Errorf("step %d: %q, %v", step, got, err)
		}
	}
}

// What was written in place counts once it stays the same.
func TestWrittenJustNow(t *testing.T) {
	fsys := files(map[string]string{"step-5.bin": "x", "step-6/x": "x"})
	fsys["step-5.bin"].ModTime, fsys["step-6/x"].ModTime = now.Add(-Still/2), now.Add(-settled/2)
	found := mustLook(t, fsys, nil)
	if got := describe(found); !slices.Equal(got, []string{"step-6 directory 6 changing", "step-5.bin file 5 changing"}) {
		t.Errorf("they are %q", got)
	}
	found, err := Look(fsys, now.Add(settled), found)
	if got := describe(found); err != nil || !slices.Equal(got, []string{"step-6 directory 6 whole", "step-5.bin file 5 whole"}) {
		t.Errorf("later they are %q, %v", got, err)
	}
}

func TestManyEntries(t *testing.T) {
	fsys := fstest.MapFS{}
	for i := range 10_000 {
		fsys[fmt.Sprintf("checkpoint-%d/trainer_state.json", i)] = &fstest.MapFile{Data: []byte("{}"), ModTime: now.Add(-time.Hour)}
	}
	found := mustLook(t, fsys, nil)
	if len(found) != maxExamined || found[0].Step != 9999 {
		t.Errorf("%d were found, first %+v", len(found), found[0])
	}
	if older, err := At(fsys, now, 17); err != nil || len(older) != 1 || !older[0].Whole() {
		t.Errorf("an old one is %+v, %v", older, err)
	}
}

func TestNoDirectory(t *testing.T) {
	if found, err := Look(fstest.MapFS{}, now, nil); err != nil || len(found) != 0 {
		t.Errorf("in an empty directory are %v, %v", found, err)
	}
	sub, err := fs.Sub(fstest.MapFS{}, "none")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Look(sub, now, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing directory is %v", err)
	}
}

// For each layout: one that appears and grows is being written until it is whole; one that stays as it is, is torn.
func TestWatch(t *testing.T) {
	type write struct{ name, text string }
	for name, writes := range map[string][]write{
		"megatron":     {{"iter_0000900/common.pt", "x"}, {"iter_0000900/common.pt", "xx"}, {"latest_checkpointed_iteration.txt", "900"}},
		"verl":         {{"global_step_900/a", "x"}, {"global_step_900/b", "x"}, {"latest_checkpointed_iteration.txt", "900"}},
		"deepspeed":    {{"global_step900/a", "x"}, {"global_step900/b", "x"}, {"latest", "global_step900"}},
		"transformers": {{"checkpoint-900/model.safetensors", "x"}, {"checkpoint-900/optimizer.pt", "x"}, {"checkpoint-900/trainer_state.json", "{}"}},
		"accelerate":   {{"checkpoint-900/model.safetensors", "x"}, {"checkpoint-900/optimizer.bin", "x"}, {"checkpoint-900/random_states_0.pkl", "x"}},
		"torchtitan":   {{"step-900/__0_0.distcp", "x"}, {"step-900/__0_0.distcp", "xx"}, {"step-900/.metadata", "x"}},
		"dcp":          {{"mine900/__0_0.distcp", "x"}, {"mine900/__0_0.distcp", "xx"}, {"mine900/.metadata", "x"}},
		"lightning":    {{"epoch=1-step=900.ckpt", zip[:10]}, {"epoch=1-step=900.ckpt", zip[:20]}, {"epoch=1-step=900.ckpt", zip}},
		"file":         {{"ckpt_900.pt", zip[:10]}, {"ckpt_900.pt", zip[:20]}, {"ckpt_900.pt", zip}},
		"in place":     {{"ckpt.pt", zip[:10]}, {"ckpt.pt", zip[:20]}, {"ckpt.pt", zip}},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := files(map[string]string{"ckpt.pt": zip})
			if name != "in place" {
				fsys = files(map[string]string{"unrelated/x": ""})
			}
			var w Watch
			var found []Checkpoint
			at := now
			see := func() {
				t.Helper()
				at = at.Add(time.Second)
				found = mustLook(t, fsys, found)
				w.See(found, at)
			}
			see()
			if w.Saving(at) || len(w.Torn(at)) > 0 {
				t.Fatal("something is being written at the start")
			}
			for i, write := range writes {
				added := files(map[string]string{write.name: write.text})
				for name, file := range added {
					file.ModTime = now.Add(time.Duration(i-len(writes)) * settled)
					fsys[name] = file
				}
				see()
				if last := i == len(writes)-1; w.Saving(at) == last || (w.Newest() != nil) != last || len(w.Torn(at)) > 0 {
					t.Errorf("after %v: being written %v, newest %+v, torn %+v", write, w.Saving(at), w.Newest(), w.Torn(at))
				}
				if i == 1 { // its writer may have died
					later := at.Add(quiet)
					if torn := w.Torn(later); w.Saving(later) || len(torn) != 1 {
						t.Errorf("a minute later it is written: %v, and torn are %+v", w.Saving(later), torn)
					}
					// To who looks for the first time, it is torn.
					var first Watch
					first.See(found, later)
					first.See(found, later)
					if torn := first.Torn(later); first.Saving(later) || len(torn) != 1 || torn[0].Whole() {
						t.Errorf("at first sight it is written: %v, and torn are %+v", first.Saving(later), torn)
					}
				}
			}
		})
	}
}

// A directory without any mark is being written until nothing in it has changed for a while.
func TestADirectoryWithoutAMarkIsBeingWritten(t *testing.T) {
	fsys := files(map[string]string{"step_800/x": "x"})
	var w Watch
	at := now
	see := func() {
		found, err := Look(fsys, at, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.See(found, at)
	}
	see()
	fsys["step_900/x"] = &fstest.MapFile{Data: []byte("x"), ModTime: now}
	see()
	if !w.Saving(at) || w.Newest().Step != 800 {
		t.Errorf("it is being written: %v, and the newest is %+v", w.Saving(at), w.Newest())
	}
	at = at.Add(settled)
	see()
	if w.Saving(at) || w.Newest().Step != 900 || len(w.Torn(at)) > 0 {
		t.Errorf("it is still being written: %v, and the newest is %+v", w.Saving(at), w.Newest())
	}
}

// What has a temporary name is being written while it changes. It is never torn, since no program reads it.
func TestATemporaryFileIsBeingWritten(t *testing.T) {
	fsys := files(map[string]string{"step-1.pt": zip, "step-2.pt.tmp.7": "old"})
	var w Watch
	look := func(at time.Time) {
		t.Helper()
		w.See(mustLook(t, fsys, nil), at)
	}
	look(now)
	look(now)
	if w.Saving(now) || len(w.Torn(now)) > 0 {
		t.Errorf("what was left behind is written, or torn: %+v", w.Torn(now))
	}
	fsys["step-3.pt.tmp.8"] = &fstest.MapFile{Data: []byte("x"), ModTime: now}
	look(now)
	if !w.Saving(now) {
		t.Error("it is not seen to be written")
	}
	delete(fsys, "step-3.pt.tmp.8")
	fsys["step-3.pt"] = &fstest.MapFile{Data: []byte(zip), ModTime: now}
	look(now)
	if w.Saving(now) || w.Newest().Step != 3 {
		t.Errorf("after the rename the newest is %+v", w.Newest())
	}
}

// What changes all the time is no checkpoint, and must not keep a hang from being seen.
func TestWhatChangesForeverIsNotBeingWritten(t *testing.T) {
	fsys := files(map[string]string{"step-1.pt": zip})
	var w Watch
	at := now
	for size := 0; at.Before(now.Add(longest)); at = at.Add(quiet / 2) {
		w.See(mustLook(t, fsys, nil), at)
		if began := size > 1; began && !w.Saving(at) {
			t.Fatalf("after %v it is not seen to be written", at.Sub(now))
		}
		size++
		fsys["events.tmp"] = &fstest.MapFile{Data: make([]byte, size), ModTime: at}
	}
	at = at.Add(quiet / 2)
	w.See(mustLook(t, fsys, nil), at)
	if w.Saving(at) || len(w.Torn(at)) > 0 {
		t.Errorf("it is still being written, or torn: %+v", w.Torn(at))
	}
}

func TestTornAreBounded(t *testing.T) {
	text := map[string]string{}
	for i := range 3 * job.MaxTorn {
		text[fmt.Sprintf("checkpoint-%d/weights", i+1)] = "x"
	}
	var w Watch
	for range 2 {
		w.See(mustLook(t, files(text), nil), now)
	}
	if torn := w.Torn(now); len(torn) != job.MaxTorn || torn[0].Step != 3*job.MaxTorn {
		t.Errorf("torn are %+v", torn)
	}
}

func TestTheStepInAName(t *testing.T) {
	for name, want := range map[string]int64{
		"step-00000120.json": 120, "checkpoint-500": 500, "global_step1000": 1000, "iter_0000700": 700, "epoch=3-step=200.ckpt": 200,
		"step-50-rank-3.pt": 50, "ckpt.9": 9, "model_v2-40.pt2": 40, "latest": 0, "step-99999999999999999999": 0, "best.ckpt": 0, "epoch_4.pt": 0,
	} {
		if got := stepOf(name); got != want {
			t.Errorf("%s is of step %d, not %d", name, got, want)
		}
	}
}
