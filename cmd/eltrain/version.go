package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/eltrain/eltrain/cmd/view"
)

// version is eltrain's own, without the "v". Files can require it with required_version.
const version = "0.1.0"

// commit is set by the linker (-X main.commit=…) for builds that do not know it.
var commit string

type versionArgs struct {
	noOperands
	json bool
}

func (a *versionArgs) declare(fs *flags) {
	fs.BoolVar(&a.json, "json", false, "Print JSON.")
}

func versionCommand() *command {
	return taking(command{
		name: "version", usage: "[options]",
		synopsis: "Show eltrain's version",
		about:    "Shows the version of eltrain, the platform it was built for, and the commit it was built from if that is known.",
	}, 0, (*session).version)
}

func (s *session) version(a *versionArgs) int {
	if !a.json {
		fmt.Fprintln(s.streams.Out, versionText())
		return exitDone
	}
	err := view.WriteJSON(s.streams.Out, struct {
		Version  string `json:"eltrain_version"`
		Platform string `json:"platform"`
		Commit   string `json:"commit,omitempty"`
		Go       string `json:"go"`
	}{version, platform(), revision(), runtime.Version()})
	if err != nil {
		return s.fail("Cannot write the version", err)
	}
	return exitDone
}

func versionText() string {
	text := "eltrain v" + version + "\non " + platform()
	if c := revision(); c != "" {
		text += "\nat commit " + c
	}
	return text
}

func platform() string { return runtime.GOOS + "_" + runtime.GOARCH }

// revision returns the commit of this build, marked if files were modified; "" if unknown.
func revision() string {
	if commit != "" {
		return commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var rev, changed string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			rev = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				changed = ", with local changes"
			}
		}
	}
	if rev == "" {
		return ""
	}
	return rev + changed
}
