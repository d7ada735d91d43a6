package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eltrain/eltrain/cmd/preview"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/internal/filetest"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/state/memory"
)

const onKubernetes = `job "gpt" {
  provider = "kubernetes"
  role "worker" {
    command = ["train"]
  }
}
`

// Errors in a provider's part of the files are found without network access, and reported with their place.
func TestKubernetesConfiguration(t *testing.T) {
	for name, c := range map[string]struct {
		block string
		want  []string
	}{
		"no block":        {"", []string{"Unknown provider", "Add a block: provider", "main.hcl line 2"}},
		"a mistake in it": {"provider \"kubernetes\" {\n  image      = \"train:1\"\n  agent_path = \"bin/eltrain-agent\"\n}\n", []string{"Invalid block of provider kubernetes", "is not absolute", "kube.hcl line 1"}},
	} {
		dir := directoryWith(t, map[string]string{"main.hcl": onKubernetes, "kube.hcl": c.block})
		for _, command := range []string{"validate", "plan"} {
			o := eltrain(t, dir, command).check(t, exitError, c.want...)
			if strings.Count(o.err, "Error:") != 1 {
				t.Errorf("%s: %s says\n%s", name, command, o.err)
			}
		}
	}
	dir := directoryWith(t, map[string]string{"main.hcl": onKubernetes, "kube.hcl": `provider "kubernetes" {
  kubeconfig = "no-such-file"
  image      = "train:1"
}
`})
	eltrain(t, dir, "validate").check(t, exitDone)
	// A watch may exit too: a supervisor restarts it.
	for _, args := range [][]string{{"plan"}, {"apply", "-auto-approve"}, {"apply", "-watch", "-auto-approve"}} {
		eltrain(t, dir, args...).check(t, exitError, "Cannot use a provider", "no-such-file")
	}
	eltrain(t, dir, "apply", "-help").check(t, exitDone, "supervisor")
}

// Without provider "kubernetes" no kubeconfig is needed.
func TestKubernetesIsOpenedOnlyIfConfigured(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	plan := commandIn(dir, "plan")
	plan.Env = clean("KUBECONFIG="+dir+"/no-such-file", "HOME="+dir)
	run(t, plan).check(t, exitDone, "2 to add")
}

// A role's arguments that the local provider does not support are found in the files, and reported with their place.
func TestLocalRunsNeitherImagesNorPods(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": `job "gpt" {
  role "ps" {
    command = ["ps"]
  }
  role "worker" {
    command = ["train"]
    image   = "train:1"
    pod     = {}
  }
}
`})
	for _, command := range []string{"validate", "plan", "apply"} {
		o := eltrain(t, dir, command).check(t, exitError,
			"Role worker cannot run on provider local", "main.hcl line 7", `image   = "train:1"`, "remove image", "main.hcl line 8", "remove pod")
		if strings.Count(o.err, "Error:") != 2 {
			t.Errorf("%s says\n%s", command, o.err)
		}
	}
}

// A node without memory has none: that is found before a job waits for it, and reported with its place.
func TestANodeWithoutMemoryIsWarnedOf(t *testing.T) {
	nodes := "provider \"local\" {\n  node \"n1\" {\n    cpu    = 2\n    memory = \"1GiB\"\n  }\n  node \"n2\" {\n    cpu = 2\n  }\n}\n"
	const job = `job "gpt" {
  role "worker" {
    command = ["train"]
    resources {
      cpu    = 1
      memory = "1GiB"
    }
  }
}
`
	dir := directoryWith(t, map[string]string{"main.hcl": job, "nodes.hcl": nodes})
	for _, command := range []string{"validate", "plan"} {
		o := eltrain(t, dir, command).check(t, exitDone)
		all := o.out + o.err
		for _, want := range []string{"nodes.hcl line 6", `Node "n2" declares no memory, so it has none`, "job.gpt.worker can never run there"} {
			if strings.Count(strings.Join(strings.Fields(all), " "), want) != 1 {
				t.Errorf("%s does not say %q once:\n%s", command, want, all)
			}
		}
	}
	filetest.Put(t, filepath.Join(dir, "main.hcl"), strings.Replace(job, `memory = "1GiB"`, "", 1))
	if o := eltrain(t, dir, "validate").check(t, exitDone); strings.Contains(o.out+o.err, "Warning") {
		t.Errorf("without a role that needs memory it says\n%s%s", o.out, o.err)
	}
}

// mute is a provider that never answers.
type mute struct{ providers.Provider }

func (mute) Capabilities() job.Capabilities { return job.Capabilities{} }

func (mute) Observe(ctx context.Context) (*providers.Observation, error) {
	<-ctx.Done()
	return nil, errors.New("the API server cannot be reached")
}

func TestPreviewOfAnUnreachableProviderEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &workspace.Workspace{Config: &lang.Config{}, Sealer: new(job.Sealer), Store: memory.New(), Providers: map[string]providers.Provider{"far": mute{}}}
		begun := time.Now()
		_, err := newScreenless("").preview(t.Context(), d, planning{})
		if err == nil || !strings.Contains(err.Error(), `observe provider "far": the API server cannot be reached`) {
			t.Errorf("it says %v", err)
		}
		if took := time.Since(begun); took != preview.Timeout {
			t.Errorf("it took %v", took)
		}
	})
}
