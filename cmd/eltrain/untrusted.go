package main

import (
	"errors"
	"fmt"
	"strconv"
)

// trust is how far a command that changes nothing trusts the files: those of a pull request are not yet reviewed, and it runs with
// the pipeline's secrets.
type trust struct {
	untrusted *bool // nil is not given
	roots     []string
}

func declareTrust(fs *flags) {
	a := new(trust)
	fs.parsed = append(fs.parsed, func(s *session) error { return s.distrust(a) })
	fs.BoolFunc("untrusted", "The files may name no file outside of the repository, and no kubeconfig with plugins. Default where CI is set.", func(text string) error {
		on, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("write true or false")
		}
		a.untrusted = &on
		return nil
	})
	fs.Func("root", "With -untrusted, the file `PATH`, or what is below it, may be named as well. Can be repeated.", func(path string) error {
		if path == "" {
			return errors.New("write -root=PATH")
		}
		a.roots = append(a.roots, path)
		return nil
	})
}

// distrust confines the files as the options say.
func (s *session) distrust(a *trust) error {
	ci := s.getenv("CI")
	if a.untrusted == nil && (ci == "" || ci == "false") || a.untrusted != nil && !*a.untrusted {
		return nil
	}
	if err := s.dir.Confine(a.roots...); err != nil {
		return fmt.Errorf("-untrusted: %w", err)
	}
	return nil
}
