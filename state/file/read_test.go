package file

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/statetest"
)

func open(t testing.TB, path string, o Options) *Store {
	t.Helper()
	s, err := New(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func take(t testing.TB, s *Store) state.Lock {
	t.Helper()
	l, err := s.Lock(t.Context(), state.LockInfo{Who: "test"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Unlock(context.Background()) })
	return l
}

// written makes a state file of serial 2 with a backup of serial 1.
func written(t testing.TB) (s *Store, l state.Lock, newest state.State) {
	t.Helper()
	s = open(t, filepath.Join(t.TempDir(), "eltrain.state"), Options{})
	l = take(t, s)
	for range 2 {
		newest = newest.Next(statetest.Records(2))
		if err := s.Write(t.Context(), newest, l); err != nil {
			t.Fatal(err)
		}
	}
	newest.Epoch = l.Info().Epoch
	return s, l, newest
}

func contents(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// names lists a directory.
func names(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestDamagedStateIsToldApartAndNeverTakenForEmpty(t *testing.T) {
	whole := func(b []byte) []byte { return b }
	tests := []struct {
		name   string
		damage func([]byte) []byte
		want   string
	}{
		{"empty", func([]byte) []byte { return nil }, "the file is empty"},
		{"white space", func([]byte) []byte { return []byte(" \n") }, "only white space"},
		{"zeros", func(b []byte) []byte { return make([]byte, len(b)) }, "only zero bytes"},
		{"cut", func(b []byte) []byte { return b[:len(b)/2] }, "truncated after"},
		{"cut before the last brace", func(b []byte) []byte { return bytes.TrimRight(b, "}\n") }, "truncated after"},
		{"garbage", func([]byte) []byte { return []byte("\x7fELF\x02\x01") }, "not JSON"},
		{"broken in the middle", func(b []byte) []byte { return bytes.Replace(b, []byte(`"serial":`), []byte(`"serial"`), 1) }, "not JSON: line 6"},
		{"something appended", func(b []byte) []byte { return append(whole(b), "{}"...) }, "not JSON"},
		{"other JSON", func([]byte) []byte { return []byte(`{"version": 4, "resources": []}`) }, "not an eltrain state"},
		{"a list", func([]byte) []byte { return []byte(`[]`) }, "not an eltrain state"},
		{"edited", func(b []byte) []byte { return bytes.Replace(b, []byte(`"rank": 1`), []byte(`"rank": 7`), 1) }, `set its "checksum" to "accept"`},
		{"checksum edited", func(b []byte) []byte { return bytes.Replace(b, []byte(`crc32c:`), []byte(`crc32c:0`), 1) }, "was changed after eltrain wrote it"},
		{"accepted but wrong", func([]byte) []byte { return []byte(`{"checksum": "accept", "state": {"version": 1, "serial": "two"}}`) }, "does not contain an eltrain state"},
		{"accepted but nothing", func([]byte) []byte { return []byte(`{"checksum": "accept", "state": {}}`) }, "version, serial or lineage is missing"},
		{"a job of null", func([]byte) []byte {
			return []byte(`{"checksum": "accept", "state": {"version": 1, "serial": 2, "lineage": "l", "jobs": {"gpt": null}}}`)
		}, `the record of job "gpt" is null`},
		{"a newer version", func([]byte) []byte {
			return []byte(`{"checksum": "blake9:77", "state": {"version": 3, "jobs": "elsewhere"}}`)
		}, "format version 3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, l, newest := written(t)
			damaged := tt.damage(contents(t, s.Path()))
			put(t, s.Path(), damaged)

			got, err := s.Read(t.Context())
			var e *DamagedError
			if !errors.As(err, &e) || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("%v\nwant a DamagedError with %q", err, tt.want)
			}
			if got.Serial != 0 || got.Jobs != nil {
				t.Fatalf("something was read after all: %+v", got)
			}
			if e.BackupSerial != 1 || !strings.Contains(err.Error(), s.Path()+".backup is intact (serial 1)") {
				t.Fatalf("the backup is not named: %v", err)
			}
			// It is not overwritten, neither by the handle that wrote it nor by another.
			for _, h := range []*Store{s, open(t, s.Path(), Options{})} {
				if err := h.Write(t.Context(), newest.Next(nil), l); !errors.As(err, &e) {
					t.Fatalf("write: %v; want a DamagedError", err)
				}
			}
			if !bytes.Equal(contents(t, s.Path()), damaged) {
				t.Fatal("the damaged file was changed")
			}
			// The command in the message works.
			lines := strings.Split(err.Error(), "\n")
			if out, err := exec.Command("sh", "-c", lines[len(lines)-1]).CombinedOutput(); err != nil {
				t.Fatalf("%q: %v: %s", lines[len(lines)-1], err, out)
			}
			if got, err := s.Read(t.Context()); err != nil || got.Serial != 1 {
				t.Fatalf("after going back to the backup: serial %d, %v", got.Serial, err)
			}
		})
	}
}

func TestNewerVersionIsTyped(t *testing.T) {
	s, _, _ := written(t)
	put(t, s.Path(), []byte(`{"checksum": "", "state": {"version": 99}}`))
	var e *state.VersionError
	if _, err := s.Read(t.Context()); !errors.As(err, &e) || e.Version != 99 {
		t.Fatalf("%v; want a VersionError of version 99", err)
	}
}

func TestDamageWithoutUsableBackup(t *testing.T) {
	s, _, _ := written(t)
	put(t, s.Path(), nil)
	put(t, s.backupPath(), []byte("x"))
	if _, err := s.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot be used either") {
		t.Fatal(err)
	}
	if err := os.Remove(s.backupPath()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "There is no backup") {
		t.Fatal(err)
	}
}

func TestAnotherLayoutIsNoDamage(t *testing.T) {
	s, _, want := written(t)
	content := contents(t, s.Path())
	for name, b := range map[string][]byte{
		"line ends":   bytes.ReplaceAll(content, []byte("\n"), []byte("\r\n")),
		"indentation": bytes.ReplaceAll(content, []byte("\n  "), []byte("\n\t")),
	} {
		put(t, s.Path(), b)
		got, err := s.Read(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("%s:\n%s", name, d)
		}
	}
}

func TestAnAcceptedEditIsTakenAndChecksummedAgain(t *testing.T) {
	s, l, _ := written(t)
	content := bytes.Replace(contents(t, s.Path()), []byte(`"rank": 1`), []byte(`"rank": 7`), 1)
	_, rest, _ := bytes.Cut(content, []byte("\n  \"state\""))
	put(t, s.Path(), append([]byte("{\n  \"checksum\": \"accept\",\n  \"state\""), rest...))
	got, err := s.Read(t.Context())
	if err != nil || got.Jobs["gpt"].Slots[1].Rank != 7 {
		t.Fatalf("%v", err)
	}
	if err := s.Write(t.Context(), got.Next(got.Jobs), l); err != nil {
		t.Fatal(err)
	}
	if b := contents(t, s.Path()); bytes.Contains(b, []byte(accepted)) {
		t.Fatalf("the checksum is still off:\n%.80s", b)
	}
}

func TestStateFileIsForPeopleAndPrivate(t *testing.T) {
	s, _, _ := written(t)
	content := string(contents(t, s.Path()))
	for _, line := range []string{`  "state": {`, `    "serial": 2,`, `            "address": "job.gpt.worker[0]",`} {
		if !strings.Contains(content, "\n"+line+"\n") {
			t.Errorf("no line %q in\n%.800s", line, content)
		}
	}
	info, err := os.Stat(s.Path())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600: environments may hold secrets", info.Mode(), err)
	}
}

func TestBackupIsThePreviousState(t *testing.T) {
	s, l, st := written(t)
	for range 3 {
		st = st.Next(nil)
		if err := s.Write(t.Context(), st, l); err != nil {
			t.Fatal(err)
		}
		backup, _, err := load(s.backupPath())
		if err != nil || backup.Serial != st.Serial-1 {
			t.Fatalf("backup of serial %d, %v; want %d", backup.Serial, err, st.Serial-1)
		}
	}
	// Like after a crash between the backup and the rename: both names on one file.
	if err := os.Remove(s.backupPath()); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(s.Path(), s.backupPath()); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(t.Context(), st.Next(nil), l); err != nil {
		t.Fatal(err)
	}
	backup, _, err := load(s.backupPath())
	if err != nil || backup.Serial != st.Serial {
		t.Fatalf("backup of serial %d, %v; want %d", backup.Serial, err, st.Serial)
	}
	if got := strings.Join(names(t, filepath.Dir(s.Path())), " "); got != ".eltrain eltrain.state eltrain.state.backup" {
		t.Fatalf("files left: %s", got)
	}
}

func TestBackupWithoutHardLinksIsACopy(t *testing.T) {
	s, _, _ := written(t)
	if err := s.copyBackup(); err != nil || !bytes.Equal(contents(t, s.Path()), contents(t, s.backupPath())) {
		t.Fatal(err)
	}
}

func TestSymbolicLinkSharesTheStateAndItsLock(t *testing.T) {
	s, l, st := written(t)
	link := filepath.Join(t.TempDir(), "link.state")
	if err := os.Symlink(s.Path(), link); err != nil {
		t.Fatal(err)
	}
	linked := open(t, link, Options{})
	var locked *state.LockedError
	if _, err := linked.Lock(t.Context(), state.LockInfo{}, 0); !errors.As(err, &locked) {
		t.Fatalf("%v; want a LockedError", err)
	}
	if err := linked.Write(t.Context(), st.Next(nil), l); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Fatalf("the link was replaced: %v %v", info, err)
	}
	if err := os.Symlink("nowhere", link+"2"); err != nil {
		t.Fatal(err)
	}
	if _, err := New(link+"2", Options{}); err == nil {
		t.Fatal("a link to nowhere was accepted")
	}
}

func TestNewRefusesALeaseThatCannotHold(t *testing.T) {
	for _, o := range []Options{{Lease: -1}, {Lease: 10, Renew: 9}, {Renew: DefaultLease}} {
		if _, err := New(filepath.Join(t.TempDir(), "s"), o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	if _, err := New(filepath.Join(t.TempDir(), "missing", "s"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}
}

// FuzzRead: no content of a state file makes decode panic, and what it accepts survives encoding: the new file reads
// the same.
func FuzzRead(f *testing.F) {
	for _, slots := range []int{0, 2} {
		content, err := encode(state.State{}.Next(statetest.Records(slots)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
		f.Add(content[:len(content)/2])
		f.Add(bytes.Replace(content, []byte("crc32c:"), []byte("accept"), 1))
	}
	f.Add([]byte(`{"checksum": "accept", "state": {"version": 1, "serial": 1, "lineage": "l", "jobs": {"a": null}}}`))
	f.Add([]byte(`{"checksum": "accept", "state": {"version": -1}}`))
	f.Add([]byte(`{"checksum": "", "state": {"version": 99}}`))
	f.Add([]byte("{\"checksum\""))
	f.Fuzz(func(t *testing.T, content []byte) {
		s, err := decode(content)
		if err != nil {
			var e *contentError
			if !errors.As(err, &e) || e.problem == "" || s.Serial != 0 {
				t.Fatalf("%+v, %v", s, err)
			}
			return
		}
		again, err := encode(s)
		if err != nil {
			t.Skip() // a value that decodes but cannot be encoded, such as an address from an edited file
		}
		second, err := decode(again)
		if err != nil {
			t.Fatalf("read, but not again: %v\n%s", err, again)
		}
		if d := cmp.Diff(s, second, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("(-first +second):\n%s", d)
		}
	})
}
