package agent

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/eltrain/eltrain/checkpoint"
	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
)

// What is in the checkpoint directory is reported: the newest whole one and which world wrote it, torn ones, and that one is being
// written.
func TestCheckpointsAreReported(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sleep", "600")
	b.config.Ranked = true
	b.config.CheckpointDir = filepath.Join(b.dir, "ckpt")
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(b.config.CheckpointDir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		b.write(t, filepath.Join("ckpt", name), text)
	}
	put("checkpoint-400/trainer_state.json", `{"global_step": 400}`)
	put("checkpoint-400/model.safetensors", "weights")
	put("checkpoint-300/model.safetensors", "weights")
	b.launch(t)
	b.service.run(3, 1)
	await := func(what string, is func(elastic.Report) bool) elastic.Report {
		t.Helper()
		return b.service.await(t, what, func(r elastic.Report) bool { return r.State == job.MemberRunning && r.Checkpoint != nil && is(r) })
	}
	r := await("a checkpoint that was there", func(r elastic.Report) bool { return r.Saved.Step == 400 && len(r.Checkpoint.Torn) == 1 })
	if c := r.Checkpoint.Newest; r.Saved.Generation != 2 || c.Path != "checkpoint-400" || c.Layout != "transformers" || c.Size != int64(len("weights")+len(`{"global_step": 400}`)) || c.Written.IsZero() {
		t.Errorf("of generation %d: %+v", r.Saved.Generation, c)
	}
	if c := r.Checkpoint.Torn[0]; r.Saving || c.Path != "checkpoint-300" || c.Step != 300 || c.Flaw != (job.Flaw{Code: job.Unmarked, File: "trainer_state.json"}) {
		t.Errorf("torn is %+v, being written: %v", c, r.Saving)
	}
	put("checkpoint-500/model.safetensors", "weights")
	r = await("a checkpoint is being written", func(r elastic.Report) bool { return r.Saving })
	if r.Saved.Step != 400 || len(r.Checkpoint.Torn) != 1 {
		t.Errorf("meanwhile it reports %+v, %+v", r.Saved, r.Checkpoint)
	}
	put("checkpoint-500/trainer_state.json", `{"global_step": 500}`)
	await("it is whole", func(r elastic.Report) bool { return !r.Saving && r.Saved == job.Saved{Step: 500, Generation: 3} })
	b.service.run(4, 1)
	r = await("the next world", func(r elastic.Report) bool { return r.Generation == 4 })
	if r.Saved != (job.Saved{Step: 500, Generation: 3}) {
		t.Errorf("in the next world it reports %+v", r.Saved)
	}
}

// Where the output says when a checkpoint is written, that counts.
func TestAPatternTellsOfCheckpoints(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sh", "-c", "echo saved 7; exec sleep 600")
	b.config.Ranked = true
	b.config.CheckpointDir, b.config.CheckpointPattern = filepath.Join(b.dir, "ckpt"), "saved (?P<step>\\d+)"
	if err := os.Mkdir(b.config.CheckpointDir, 0o755); err != nil {
		t.Fatal(err)
	}
	b.write(t, "ckpt/step-9.pt", "x")
	b.launch(t)
	b.service.run(1, 1)
	r := b.service.await(t, "both", func(r elastic.Report) bool {
		return r.Saved.Step > 0 && r.Checkpoint != nil && r.Checkpoint.Newest != nil
	})
	if r.Saved != (job.Saved{Step: 7, Generation: 1}) || r.Checkpoint.Newest.Step != 9 {
		t.Errorf("it reports %+v and %+v", r.Saved, r.Checkpoint.Newest)
	}
}

// hung is a file system whose server does not answer until it is closed.
type hung chan struct{}

func (h hung) Open(string) (fs.File, error) {
	<-h
	return nil, fs.ErrClosed
}

func TestADeadFileServerHoldsNothingUp(t *testing.T) {
	server := make(hung)
	d := &directory{path: "/ckpt", fsys: server}
	first := d.begin()
	if d.look() != nil || d.begin() != first {
		t.Error("another look was begun while one blocks")
	}
	s := newSaver(d, func() { t.Error("it has something to report") })
	s.begin(world{1, true})
	if now := s.now(); now.saving || now.sight != nil {
		t.Errorf("it knows %+v", now)
	}
	s.close()
	close(server)
	<-first.done
	if first.err == nil {
		t.Error("the look has no error")
	}
}

func TestThePaceOfLooks(t *testing.T) {
	for _, test := range []struct {
		first     bool
		cpu, took time.Duration
		want      time.Duration
	}{
		{true, 100 * time.Microsecond, time.Millisecond, sightEvery},
		{false, 100 * time.Microsecond, time.Millisecond, sightEveryOther},
		{true, 10 * time.Millisecond, 10 * time.Millisecond, 5 * time.Second}, // 0.2 % of a core
		{true, time.Millisecond, 3 * time.Second, 12 * time.Second},           // a slow server
	} {
		if got := pace(test.first, test.cpu, test.took); got != test.want {
			t.Errorf("after a look of %v in %v: %v, want %v", test.cpu, test.took, got, test.want)
		}
	}
}

// Only rank 0 says that a checkpoint is being written: the others would say so long after it was.
func TestRankZeroTellsOfWriting(t *testing.T) {
	fsys := fstest.MapFS{}
	var w checkpoint.Watch
	now := time.Now()
	for _, name := range []string{"checkpoint-1/trainer_state.json", "checkpoint-2/model"} {
		fsys[name] = &fstest.MapFile{Data: []byte("{}")}
		found, err := checkpoint.Look(fsys, now, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.See(found, now)
	}
	for _, first := range []bool{true, false} {
		got := new(saver).stateOf(&w, world{7, first}, nil, now)
		if got.saving != first || got.newest != (job.Saved{Step: 1, Generation: 7}) {
			t.Errorf("with rank 0 %v: being written %v, newest %+v", first, got.saving, got.newest)
		}
	}
}

// A file may be called anything.
func TestNamesFitIntoAReport(t *testing.T) {
	fsys := fstest.MapFS{"step-1\x1b[31m.pt": {Data: []byte("x")}}
	found, err := checkpoint.Look(fsys, time.Now(), nil)
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	if got := plain(found[0].FoundCheckpoint).Path; got != "step-1?[31m.pt" {
		t.Errorf("it is called %q", got)
	}
}

// BenchmarkLook is one look at a directory with ten thousand checkpoints.
func BenchmarkLook(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			dir := b.TempDir()
			for i := range n {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("step-%08d.pt", i+1)), []byte("x"), 0o644); err != nil {
					b.Fatal(err)
				}
			}
			d := openDirectory(dir)
			var cpu time.Duration
			for b.Loop() {
				g := d.begin()
				<-g.done
				cpu += g.cpu
			}
			b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}
