package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/eltrain/eltrain/internal/atomicfile"
)

// The global options that change the user's shells, as Terraform's do.
const (
	installFlag   = "install-autocomplete"
	uninstallFlag = "uninstall-autocomplete"
)

// changeShells puts completion into the settings of the user's shells, or takes it out.
func (s *session) changeShells(options []string) int {
	const failed = "The shell's settings cannot be changed"
	asked := func(flag string) bool {
		return slices.Contains(options, "-"+flag) || slices.Contains(options, "--"+flag)
	}
	change := setting.add
	if asked(uninstallFlag) {
		change = setting.remove
	}
	if asked(installFlag) && asked(uninstallFlag) {
		return s.fail(failed, fmt.Errorf("-%s and -%s are opposites: write one of them", installFlag, uninstallFlag))
	}
	all, err := s.settings()
	for _, shell := range all {
		err = errors.Join(err, change(shell))
	}
	if err != nil {
		return s.fail(failed, err)
	}
	fmt.Fprintln(s.streams.Out, "The shell's settings are changed. That is seen in the next shell that is started.")
	return exitDone
}

// setting is what completes eltrain in one shell.
type setting struct {
	file  string
	needs string // a line that has to be in the file before, and that others may need too
	text  string // without the last line's end
	whole bool   // it is all that is in the file
}

// bashFiles are those that bash may read, by preference: of a login shell it is the first of the last three.
var bashFiles = []string{".bashrc", ".bash_profile", ".bash_login", ".profile"}

// zshNeeds is zsh's reading of bash's completions, and what that needs itself, unless the user has it already. -i: who shares
// directories is not asked about them at each start.
const zshNeeds = "(( $+functions[compdef] )) || { autoload -U compinit && compinit -i; }; autoload -U +X bashcompinit && bashcompinit"

// settings are those of the shells that the user has settings of.
func (s *session) settings() ([]setting, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	home := s.getenv("HOME")
	if home == "" {
		return nil, errors.New("HOME is not set: the settings are in that directory")
	}
	there := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	var all []setting
	for _, name := range bashFiles {
		if path := filepath.Join(home, name); there(path) {
			all = append(all, setting{file: path, text: "complete -C " + program + " " + programName})
			break
		}
	}
	if path := filepath.Join(home, ".zshrc"); there(path) {
		all = append(all, setting{
			file: path, needs: zshNeeds,
			text: "complete -o nospace -C " + program + " " + programName,
		})
	}
	config := s.getenv("XDG_CONFIG_HOME")
	if config == "" {
		config = filepath.Join(home, ".config")
	}
	if dir := filepath.Join(config, "fish"); there(dir) {
		all = append(all, setting{
			file: filepath.Join(dir, "completions", programName+".fish"), whole: true,
			text: `function __complete_eltrain
    set -lx COMP_LINE (commandline -cp)
    test -z (commandline -ct)
    and set COMP_LINE "$COMP_LINE "
    ` + program + `
end
complete -f -c eltrain -a "(__complete_eltrain)"`,
		})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there are no settings of bash, zsh or fish in %s", home)
	}
	return all, nil
}

// add leaves what is there already.
func (t setting) add() error {
	if t.whole {
		if err := os.MkdirAll(filepath.Dir(t.file), 0o755); err != nil {
			return err
		}
		return atomicfile.Write(t.file, []byte(t.text+"\n"), 0o644)
	}
	return t.edit(func(lines []string) []string {
		if n := len(lines); n > 0 && lines[n-1] == "" { // the end of the last line
			lines = lines[:n-1]
		}
		for _, line := range []string{t.needs, t.text} {
			if line != "" && !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
		return append(lines, "")
	})
}

// remove takes nothing from where nothing is.
func (t setting) remove() error {
	if t.whole {
		if err := os.Remove(t.file); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return t.edit(func(lines []string) []string {
		return slices.DeleteFunc(lines, func(line string) bool { return line == t.text })
	})
}

// edit replaces the file by what change makes of its lines, where a link leads to if it is one.
func (t setting) edit(change func(lines []string) []string) error {
	path, err := atomicfile.Resolve(t.file)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	have, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	want := []byte(strings.Join(change(strings.Split(string(have), "\n")), "\n"))
	if bytes.Equal(have, want) {
		return nil
	}
	return atomicfile.Write(path, want, info.Mode().Perm())
}
