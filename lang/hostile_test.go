package lang

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"
)

// lines repeats a pattern, replacing # by a counter, up to a size in bytes.
func lines(pattern string, size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		b.WriteString(strings.ReplaceAll(pattern, "#", fmt.Sprint(i)))
	}
	return b.String()
}

// Limits for a directory of 10 MB: several times what it needs.
const (
	hostileTime   = time.Minute // CPU time of all processors together
	hostileMemory = 4 << 30
)

// kinds returns each kind of block, repeated up to a size in bytes. Together they form one valid file.
func kinds(size int) map[string]string {
	return map[string]string{
		"jobs":      lines("job \"j#\" {\n  role \"w\" {\n    command = [\"x\"]\n  }\n}\n", size),
		"one text":  "locals {\n  text = \"" + strings.Repeat("x", size) + "\"\n}\n",
		"locals":    "locals {\n" + lines("  a# = \"#\"\n", size) + "}\n",
		"chain":     "locals {\n  b0 = 1\n" + lines("  c# = [local.b0, var.x#]\n", size) + "}\n",
		"one list":  "locals {\n  list = [\n" + lines("    #,\n", size) + "  ]\n}\n",
		"variables": lines("variable \"v#\" {\n  default = #\n}\n", size),
		"roles":     "job \"roles\" {\n" + lines("  role \"w#\" {\n    command = [\"x\"]\n  }\n", size) + "}\n",
		"outputs":   lines("output \"o#\" {\n  value = #\n}\n", size),
		"checks":    lines("check \"c#\" {\n  assert {\n    condition = false\n    error_message = \"No.\"\n  }\n}\n", size),
		"moves":     lines("moved {\n  from = job.a#\n  to = job.b#\n}\n", size),
		"modules":   lines("module \"m#\" {\n  source = \"./base\"\n  entry = []\n}\n", size),
		"one move":  lines("moved {\n  from = module.a#\n  to = module.b\n}\n", size) + "module \"b\" {\n  source = \"./base\"\n  entry = []\n}\n",
		"removed":   lines("removed {\n  from = job.r#\n}\n", size),
		"imports":   inJob("") + lines("import {\n  to = job.j.worker[#]\n  id = \"#\"\n}\n", size),
		"unknown":   lines("a# {}\n", size),
		"providers": lines("provider \"p#\" {}\n", size),
		"ignored":   "job \"i\" {\n  role \"w\" {\n    command = []\n  }\n  lifecycle {\n    ignore_changes = [" + lines("role.w.env[\"#\"], ", size) + "]\n  }\n}\n",
	}
}

// TestHostileSizes checks that files of each kind of block, and one of 10 MB, are read or rejected within bounded time and
// memory, and that the number of diagnostics is bounded.
func TestHostileSizes(t *testing.T) {
	t.Parallel()
	alone := filepath.Join(t.TempDir(), "alone")
	if out, err := exec.Command("go", "build", "-o", alone, "./testdata/alone").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	const large = 10 << 20
	texts := kinds(128 << 10)
	var all strings.Builder
	for _, src := range kinds(96 << 10) {
		all.WriteString(src)
	}
	all.WriteString(lines("// nothing #\n", large-all.Len()))
	texts["10 MB of all kinds"] = all.String()
	texts["10 MB of open blocks"] = lines("job \"j#\" {\n", large)
	texts["10 MB of an open text"] = "locals {\n  a = \"" + strings.Repeat("x", large)
	for name, src := range texts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loadAlone(t, alone, src)
		})
	}
}

func loadAlone(t *testing.T, alone, src string) {
	t.Helper()
	base, err := filepath.Abs("testdata/teams/base")
	if err != nil {
		t.Fatal(err)
	}
	dir := linked(t, writeTree(t, map[string]string{"job.hcl": src}), map[string]string{"base": base})
	cmd := exec.CommandContext(t.Context(), alone, dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%.2000s", err, out)
	}
	var jobs, told int
	var failed bool
	var most int64
	if _, err := fmt.Sscan(string(out), &jobs, &told, &failed, &most); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	took := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if most == 0 && runtime.GOOS == "linux" { // other systems do not report it
		t.Error("its memory usage is unknown")
	}
	t.Logf("%d KiB: %s, %d MiB, %d jobs, %d diagnostics, errors: %t", len(src)>>10, took.Round(time.Millisecond), most>>20, jobs, told, failed)
	if took > hostileTime {
		t.Errorf("it took %s", took)
	}
	if most > hostileMemory {
		t.Errorf("it took %d MiB", most>>20)
	}
	if told > maxDiagnostics+2 { // one note about other problems, one about variables without a value
		t.Errorf("it reported %d diagnostics", told)
	}
}

// A truncated list of warnings must still fail if an error was cut off.
func TestErrorsBeyondTheCutAreErrors(t *testing.T) {
	t.Parallel()
	check := "check \"c#\" {\n  assert {\n    condition = false\n    error_message = \"No.\"\n  }\n}\n"
	_, diags := parseText(t, inJob("")+lines(check, 200_000))
	if diags.HasErrors() || len(diags) != maxDiagnostics+1 {
		t.Fatalf("%d diagnostics, errors: %v", len(diags), diags.HasErrors())
	}
	_, diags = parseText(t, inJob("")+lines(check, 200_000)+"nonsense {}\n")
	if last := diags[len(diags)-1]; last.Severity != hcl.DiagError || len(diags) != maxDiagnostics+1 {
		t.Errorf("the last of %d is %v", len(diags), last)
	}
}

// writeTree writes files, by path, into a new directory and returns it.
func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for path, text := range files {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// wantOne checks that loading fails with exactly one error, which contains text.
func wantOne(t *testing.T, dir, text string) {
	t.Helper()
	cfg, diags := Load(dir, options())
	if len(diags) != 1 || !strings.Contains(diags[0].Summary+": "+diags[0].Detail, text) {
		t.Errorf("want one error with %q, got %d:\n%.2000s", text, len(diags), render(cfg, diags))
	}
}

func use(name, source string) string {
	return fmt.Sprintf("module %q {\n  source = %q\n}\n", name, source)
}

// Each level uses the next one twice: 2^30 instances, from a few files.
func TestModulesThatMultiply(t *testing.T) {
	t.Parallel()
	files := map[string]string{"job.hcl": use("a", "./m0") + use("b", "./m0")}
	for i := range 30 {
		files[fmt.Sprintf("m%d/main.hcl", i)] = use("a", fmt.Sprintf("../m%d", i+1)) + use("b", fmt.Sprintf("../m%d", i+1))
	}
	files["m30/main.hcl"] = inJob("")
	wantOne(t, writeTree(t, files), "more than 20000 blocks")
}

func TestModulesThatNest(t *testing.T) {
	t.Parallel()
	files := map[string]string{"job.hcl": use("a", "./m0")}
	for i := range 100 {
		files[fmt.Sprintf("m%d/main.hcl", i)] = use("a", fmt.Sprintf("../m%d", i+1))
	}
	files["m100/main.hcl"] = inJob("")
	wantOne(t, writeTree(t, files), "more than 32 levels deep")
}

func TestForEachThatMultiplies(t *testing.T) {
	t.Parallel()
	for name, src := range map[string]string{
		"jobs":    "job \"j\" {\n  for_each = { for i in setproduct(range(150), range(150)) : \"k${i[0]}-${i[1]}\" => i }\n  role \"w\" {\n    command = [\"x\"]\n  }\n}\n",
		"imports": inJob("") + "import {\n  for_each = { for i in setproduct(range(150), range(150)) : \"k${i[0]}-${i[1]}\" => i }\n  to = job.j\n  id = each.key\n}\n",
		"costly":  "locals {\n  all = { for i in range(1000) : \"k${i}\" => i }\n}\njob \"j\" {\n  for_each = local.all\n  role \"w\" {\n    command = [jsonencode(local.all), jsonencode([for i in range(1000) : i])]\n  }\n}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, diags := parseBriefly(src)
			if !diags.HasErrors() || !strings.Contains(diags.Error(), "Too much to evaluate") {
				t.Errorf("%v", diags)
			}
		})
	}
}

// TestDirectoryThatIsExchanged reads a directory while its module is removed and restored, as by a git checkout. The
// result is the whole configuration or an error, never a part that looks complete.
func TestDirectoryThatIsExchanged(t *testing.T) {
	t.Parallel()
	dir := writeTree(t, map[string]string{"job.hcl": use("a", "./a"), "a/one.hcl": inJob(""), "a/two.hcl": strings.ReplaceAll(inJob(""), `"j"`, `"k"`)})
	stop := make(chan struct{})
	var working sync.WaitGroup
	working.Go(func() {
		two := filepath.Join(dir, "a", "two.hcl")
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, step := range []func() error{
				func() error { return os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "gone")) },
				func() error { return os.Rename(filepath.Join(dir, "gone"), filepath.Join(dir, "a")) },
				func() error { return os.Rename(two, two+".new") },
				func() error { return os.Rename(two+".new", two) },
			} {
				if err := step(); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	whole, failed := 0, 0
	for range 500 {
		cfg, diags := Load(dir, options())
		switch {
		case diags.HasErrors():
			failed++
		case len(cfg.Jobs) == 2:
			whole++
		case len(cfg.Jobs) == 1 && cfg.Jobs[0].Name == "a-j":
			// two.hcl did not exist when the directory was listed, so the listed files were complete.
		default:
			t.Errorf("a part was read without an error: %d jobs", len(cfg.Jobs))
		}
	}
	close(stop)
	working.Wait()
	if whole == 0 || failed == 0 {
		t.Errorf("%d complete and %d failed reads: both must occur for the test to be meaningful", whole, failed)
	}
}
