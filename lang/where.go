package lang

import (
	"bytes"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/job"
)

// Further returns what a configuration is read from besides the job directory: its modules' directories and the files that
// it names.
func (c *Config) Further() []string {
	if len(c.Directories) == 0 {
		return nil
	}
	return slices.Concat(c.Directories[1:], c.Named)
}

// SourceOf returns where the files import a job, or else where they declare it.
func (c *Config) SourceOf(name string) (at job.Source) {
	for i := range c.Jobs {
		if c.Jobs[i].Name == name {
			at = c.Jobs[i].Source
		}
	}
	for _, i := range c.Imports {
		if i.To.Job == name {
			at = i.Source
		}
	}
	return at
}

// LineOf returns the range of a source's whole line; nil if it is unknown.
func (c *Config) LineOf(at job.Source) *hcl.Range {
	file := c.Files[at.File]
	if file == nil || at.Line < 1 {
		return nil
	}
	begin := 0
	for range at.Line - 1 {
		next := bytes.IndexByte(file.Bytes[begin:], '\n')
		if next < 0 {
			return nil
		}
		begin += next + 1
	}
	line, _, _ := bytes.Cut(file.Bytes[begin:], []byte("\n"))
	return &hcl.Range{
		Filename: at.File,
		Start:    hcl.Pos{Line: at.Line, Column: 1, Byte: begin},
		End:      hcl.Pos{Line: at.Line, Column: 1 + len(line), Byte: begin + len(line)},
	}
}
