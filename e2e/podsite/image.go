package podsite

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/testbed/kubelet"
)

// Dockerfile is what users build the image with.
var Dockerfile = filepath.Join(site.Root, "deploy", "Dockerfile")

// AgentImageOf returns the image that the Dockerfile makes of the built programs. It returns an error for an instruction that
// it does not know.
func AgentImageOf(p site.Programs) (image kubelet.Image, err error) {
	text, err := os.ReadFile(Dockerfile)
	if err != nil {
		return image, err
	}
	for line := range strings.Lines(string(text)) {
		instruction, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		words := strings.Fields(rest)
		switch {
		case instruction == "" || strings.HasPrefix(instruction, "#"):
		case instruction == "FROM" && rest == "scratch":
			image.Scratch = true
		case instruction == "COPY" && len(words) > 1 && strings.HasSuffix(words[len(words)-1], "/"):
			for _, from := range words[:len(words)-1] {
				host := filepath.Join(site.Root, from)
				if program, built := strings.CutPrefix(from, "bin/"); built {
					host = filepath.Join(filepath.Dir(p.Eltrain), program)
				}
				image.Mounts = append(image.Mounts, kubelet.Mount{
					HostPath: host, Path: words[len(words)-1] + filepath.Base(from), ReadOnly: true,
				})
			}
		case instruction == "ENV":
			image.Env = words
		case instruction == "USER":
			image.User = rest
		case instruction == "ENTRYPOINT":
			err = json.Unmarshal([]byte(rest), &image.Command)
		default:
			err = fmt.Errorf("unknown instruction")
		}
		if err != nil {
			return image, fmt.Errorf("%s: %q: %w", Dockerfile, strings.TrimSpace(line), err)
		}
	}
	return image, nil
}
