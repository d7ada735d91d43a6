package importer

import (
	"strings"
	"testing"

	"github.com/eltrain/eltrain/job"
)

// What expand gives is what the kubelet's own tests of its expansion expect.
func TestReferencesAreExpandedAsTheKubeletDoes(t *testing.T) {
	values := map[string]string{"VAR_A": "A", "VAR_B": "B", "VAR_REF": "$(VAR_A)", "VAR_EMPTY": ""}
	for text, want := range map[string]string{
		"$(VAR_A)": "A", "___$(VAR_B)___": "___B___", "$(VAR_A)$(VAR_B)": "AB", "$(VAR_EMPTY)": "", "$(VAR_REF)": "$(VAR_A)",
		"$$(VAR_A)": "$(VAR_A)", "$$$(VAR_A)": "$A", "$$$$(VAR_A)": "$$(VAR_A)", "f000-$$VAR_A": "f000-$VAR_A", "foo\\$(VAR_A)bar": "foo\\Abar",
		"$(NOBODY)": "$(NOBODY)", "$(VAR_A": "$(VAR_A", "$VAR_A": "$VAR_A", "$": "$", "$$": "$", "$()": "$()", "$(hostname -f) $(echo $$)": "$(hostname -f) $(echo $$)",
	} {
		if got := expand(text, func(name string) (string, bool) { v, ok := values[name]; return v, ok }); got != want {
			t.Errorf("%s is %s, not %s", text, got, want)
		}
	}
}

// Each slot gets its own index, whatever is around it.
func TestTheIndexIsWrittenForEachSlot(t *testing.T) {
	for _, around := range [][2]string{{"", ""}, {"a", "b"}, {"$", "$"}, {"$$", ""}, {"%", "%{x}"}, {"${x}", "\"\n"}, {slotIndex, "$"}} {
		j := &imported{from: "a test"}
		setDefaults(&j.Job)
		j.Name = "j"
		r := &role{}
		setDefaults(&r.Role)
		r.Name, r.Replicas = "worker", 2
		r.Command = []string{"x", around[0] + slotIndex + around[1]}
		j.roles, j.Roles = []*role{r}, []job.Role{r.Role}
		im := newImporter("in.yaml", nil)
		im.jobs = []*imported{j}
		src := im.write()
		read := mustBeValid(t, src)[0].Roles[0]
		for i, index := range []string{"0", "1"} {
			if got, want := read.For(i).Command[1], strings.ReplaceAll(around[0]+slotIndex+around[1], slotIndex, index); got != want {
				t.Errorf("slot %d of %q gets %q\n%s", i, around, got, src)
			}
		}
	}
}

// The index is told as the language writes it where it says nothing.
func TestTheIndexIsShownAsItIsWritten(t *testing.T) {
	src := strings.Replace(least, "[x]", `[torchrun, "--nnodes=$(JOB_COMPLETION_INDEX)", "--wrong=$(JOB_COMPLETION_INDEX)", t.py]`, 1)
	text := told(Manifests("in.yaml", strings.NewReader(src), Checks{}).Diagnostics)
	for _, want := range []string{"--nnodes: The value of the slot's index is not known here", "--wrong=${slot.index} is no option"} {
		if !strings.Contains(text, want) || strings.Contains(text, slotIndex) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// What a script or the job exports of eltrain's own variables would be refused by validate.
func TestOwnVariablesAreNotImported(t *testing.T) {
	script := strings.Replace(least, "[x]", `[sh, -c, "export RANK=$JOB MASTER_ADDR=h OTHER=1 && RANK=3 torchrun t.py"]`, 1)
	script = strings.Replace(script, "$JOB", "2", 1)
	common := strings.Replace(boundless["ElasticJob"], "spec:\n", "spec:\n  envs: {WORLD_SIZE: \"2\", OTHER: \"1\"}\n", 1)
	for _, src := range []string{script, strings.Replace(common, "@", "command: [x]", 1)} {
		r := Manifests("in.yaml", strings.NewReader(src), Checks{})
		role := mustBeValid(t, r.HCL)[0].Roles[0]
		if role.Env["OTHER"] != "1" || role.Env["RANK"]+role.Env["MASTER_ADDR"]+role.Env["WORLD_SIZE"] != "" {
			t.Errorf("env is %v", role.Env)
		}
		if text := told(r.Diagnostics); !strings.Contains(text, "eltrain sets ") {
			t.Errorf("told is %s", text)
		}
	}
}
