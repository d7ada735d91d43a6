package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang/importer"
	"github.com/eltrain/eltrain/providers/kubernetes"
	"github.com/eltrain/eltrain/providers/volcano"
)

type importArgs struct {
	out     string
	file    string   // or "-" for the standard input
	command []string // what follows "--", instead of a file
}

func (a *importArgs) declare(fs *flags) {
	fs.StringVar(&a.out, "out", "", "Write to `FILE`, which must not exist yet, instead of the standard output.")
	fs.rest = &a.command
}

func (a *importArgs) take(_ *session, others []string) error {
	switch {
	case a.command != nil && len(a.command) == 0:
		return errors.New("a command line is missing after --")
	case len(others) == 1 && a.command != nil:
		return fmt.Errorf("import takes either a file or a command line: %q is one argument too many", others[0])
	case len(others) == 1:
		a.file = others[0]
	case a.command == nil:
		return errors.New("a file is missing: write its name, - for the standard input, or a command line after --")
	}
	return nil
}

// explain implements explainer.
func (a *importArgs) explain(err error, args []string) error { return launcherHint(err, args) }

// launcherHint adds how to import a command line if the arguments look like one: "--" is easily forgotten.
func launcherHint(err error, args []string) error {
	if !slices.ContainsFunc(args, importer.Launches) {
		return err
	}
	return fmt.Errorf("%s A command line is imported with:\n\n  eltrain import -- torchrun …", view.Explain(err))
}

func importCommand() *command {
	return taking(command{
		name: "import", usage: "[options] FILE, - or -- COMMAND...",
		synopsis: "Convert other tools' jobs to eltrain's language",
		about: `Converts jobs of other tools: the manifest of a DLRover ElasticJob, a Kubeflow PyTorchJob or TrainJob, a
Volcano Job or a Kubernetes Indexed Job, in a FILE with one or more YAML documents or on the standard input ("-"); or,
after "--", the command line of torchrun or dlrover-run.

The result is valid and in canonical format. What has no equivalent is a warning on standard error with the field and
its line. Nothing is contacted, and running jobs are not touched.`,
		exits: []string{
			"All jobs were imported, possibly with warnings.",
			"Not all jobs were imported, or none was found.",
		},
	}, 1, (*session).importJobs)
}

func (s *session) importJobs(a *importArgs) int {
	result, err := a.read(s.streams.In)
	if err != nil {
		return s.fail("Cannot read the manifest", err)
	}
	s.diagnose(view.DiagnoseHCL(result.Diagnostics, result.Files)...)
	if result.Jobs == 0 {
		return exitError
	}
	if err := a.write(s.streams.Out, result.HCL); err != nil {
		return s.fail("Cannot write the jobs", err)
	}
	if result.Diagnostics.HasErrors() {
		return exitError
	}
	return exitDone
}

// podChecks are the checks that validate will make of imported jobs, with the provider blocks that import writes.
var podChecks = importer.Checks{
	Role: func(provider string, r *job.Role) error {
		if provider == volcano.Name {
			return volcano.Config{}.Check(r)
		}
		return kubernetes.Config{}.Check(r)
	},
	Namespace: func(name string) error { return errors.Join(kubernetes.Config{Namespace: name}.Validate()...) },
	Queue:     func(name string) error { return errors.Join(volcano.Config{Queue: name}.Validate()...) },
}

func (a *importArgs) read(stdin io.Reader) (importer.Result, error) {
	switch {
	case a.command != nil:
		return importer.CommandLine(a.command), nil
	case a.file == "-":
		return importer.Manifests("<stdin>", stdin, podChecks), nil
	}
	f, err := os.Open(a.file)
	if err != nil {
		return importer.Result{}, launcherHint(err, []string{a.file})
	}
	defer f.Close()
	return importer.Manifests(a.file, f, podChecks), nil
}

func (a *importArgs) write(stdout io.Writer, src []byte) error {
	if a.out == "" {
		_, err := stdout.Write(src)
		return err
	}
	return writeNew(a.out, src)
}
