package shells

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/eltrain/eltrain/internal/atomicfile"
)

// Program is the name that completion is installed for, whatever this executable is called.
const Program = "eltrain"

// Whole is set in the environment by shells that compare whole words, and quote what they insert.
const Whole = "ELTRAIN_COMPLETION_WHOLE"

// Setting is a file of a shell's settings, and the text for eltrain in it.
type Setting struct {
	File string
	text string // without the final newline; "" for a file that is to have none
	ours bool   // the whole file is eltrain's, else one line
}

// bashFiles are the files that bash may read, by preference. A login shell reads the first of the last three that exists.
var bashFiles = []string{".bashrc", ".bash_profile", ".bash_login", ".profile"}

// The text before and after the program in bash's line.
const (
	bashBegins = "complete -C "
	bashEnds   = " " + Program
)

// The text before and after the program in zsh's line. A new zsh has no completion system: the line starts it unless the
// user's settings did. -i: do not ask about insecure directories at each start.
const (
	zshBegins = "(( $+functions[compdef] )) || { autoload -U compinit && compinit -i; }; " +
		`_eltrain() { local -x COMP_LINE="$words[1,CURRENT-1] $PREFIX" ` + Whole + `=1; compadd -S '' -- ${(f)"$(`
	zshEnds = `)"}; }; compdef _eltrain ` + Program
)

// Settings returns those with completion by a program, for each shell that the user of an environment has settings for.
func Settings(program string, getenv func(string) string) ([]Setting, error) {
	home := getenv("HOME")
	if home == "" {
		return nil, errors.New("HOME is not set: it names the directory with the settings")
	}
	there := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	var all []Setting
	for _, name := range bashFiles {
		if path := filepath.Join(home, name); there(path) {
			all = append(all, Setting{File: path})
		}
	}
	if len(all) > 0 { // bash parses the command twice: as a line of its settings, and when it runs it
		all[0].text = bashBegins + quoted(quoted(program)) + bashEnds
	}
	if path := filepath.Join(cmp.Or(getenv("ZDOTDIR"), home), ".zshrc"); there(path) {
		all = append(all, Setting{File: path, text: zshBegins + quoted(program) + zshEnds})
	}
	if dir := filepath.Join(cmp.Or(getenv("XDG_CONFIG_HOME"), filepath.Join(home, ".config")), "fish"); there(dir) {
		all = append(all, Setting{
			File: filepath.Join(dir, "completions", Program+".fish"), ours: true,
			text: `function __complete_eltrain
    set -lx COMP_LINE (commandline -cp)
    set -lx ` + Whole + ` 1
    test -z (commandline -ct)
    and set COMP_LINE "$COMP_LINE "
    ` + fishQuoted(program) + `
end
complete -f -c eltrain -a "(__complete_eltrain)"`,
		})
	}
	return all, nil
}

// plain reports whether no shell needs quotes for a path.
func plain(path string) bool {
	return !strings.ContainsFunc(path, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("/._-+", r))
	})
}

// quoted returns a path as a word for bash and zsh.
func quoted(path string) string {
	if plain(path) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// fishQuoted returns a path as a word for fish, where a backslash is special within quotes too.
func fishQuoted(path string) string {
	if plain(path) {
		return path
	}
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(path) + "'"
}

// completes reports whether eltrain wrote a line, from whatever path of its executable.
func completes(line string) bool {
	return strings.HasPrefix(line, bashBegins) && strings.HasSuffix(line, bashEnds) ||
		strings.HasPrefix(line, zshBegins) && strings.HasSuffix(line, zshEnds)
}

// Install brings the file to the setting, and reports whether that changed it.
func (t Setting) Install() (changed bool, err error) {
	if t.ours {
		return t.replace()
	}
	return t.edit()
}

// Remove removes what any eltrain executable has installed, and reports whether that changed the file.
func (t Setting) Remove() (changed bool, err error) {
	t.text = ""
	return t.Install()
}

// replace writes or removes a file that is all eltrain's. Its owner is that of the shell's directory.
func (t Setting) replace() (changed bool, err error) {
	have, err := os.ReadFile(t.File)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return false, err
	case t.text == "" && err != nil:
		return false, nil
	case t.text == "":
		err := os.Remove(t.File)
		return err == nil, err
	case string(have) == t.text+"\n":
		return false, nil
	}
	dir := filepath.Dir(t.File)
	shell, err := os.Stat(filepath.Dir(dir))
	if err != nil {
		return false, err
	}
	err = os.Mkdir(dir, 0o755)
	if err == nil {
		err = giveTo(dir, shell)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	err = atomicfile.WriteFor(shell, t.File, []byte(t.text+"\n"), 0o644)
	return err == nil, err
}

// edit changes eltrain's line in a file. It follows a link.
func (t Setting) edit() (changed bool, err error) {
	path, err := atomicfile.Resolve(t.File)
	if err != nil {
		return false, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	have, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	lines := strings.Split(string(have), "\n")
	at := slices.IndexFunc(lines, completes)
	lines = slices.DeleteFunc(lines, completes)
	switch {
	case t.text == "":
	case at >= 0:
		lines = slices.Insert(lines, at, t.text)
	default:
		if last := len(lines) - 1; lines[last] == "" { // after the final newline
			lines = lines[:last]
		}
		lines = append(lines, t.text, "")
	}
	want := []byte(strings.Join(lines, "\n"))
	if bytes.Equal(have, want) {
		return false, nil
	}
	err = atomicfile.WriteFor(info, path, want, info.Mode().Perm())
	return err == nil, err
}
