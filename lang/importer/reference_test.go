package importer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/eltrain/eltrain/job"
)

// The cases are from the kubelet's own tests of its expansion.
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

// Each slot gets its own index, whatever text surrounds it.
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

// Messages show the index as the language writes it.
func TestTheIndexIsShownAsItIsWritten(t *testing.T) {
	src := strings.Replace(least, "[x]", `[torchrun, "--nnodes=$(JOB_COMPLETION_INDEX)", "--wrong=$(JOB_COMPLETION_INDEX)", t.py]`, 1)
	text := reported(Manifests("in.yaml", strings.NewReader(src), Checks{}).Diagnostics)
	for _, want := range []string{"--nnodes: The value of the slot's index is unknown here", "--wrong=${slot.index} is not a known option"} {
		if !strings.Contains(text, want) || strings.Contains(text, slotIndex) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// eltrain's own variables are not imported, because validate would reject them.
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
		if text := reported(r.Diagnostics); !strings.Contains(text, "eltrain sets ") {
			t.Errorf("the diagnostics are %s", text)
		}
	}
}

// inPodOf expands a container's env in order, as the kubelet does. Each valueFrom gives a text that looks like a reference.
func inPodOf(env []any, services map[string]string) map[string]string {
	values := map[string]string{}
	for _, item := range env {
		fields := item.(map[string]any)
		name := fields["name"].(string)
		text, plain := fields["value"].(string)
		if !plain {
			values[name] = "$(A) of " + name
			continue
		}
		values[name] = expand(text, func(name string) (string, bool) {
			if value, ok := values[name]; ok {
				return value, true
			}
			value, ok := services[name]
			return value, ok
		})
	}
	return values
}

// A container's variables keep their values, although eltrain's pods list those that only the kubelet can resolve before
// the others, as TestPodsOfLaunches shows.
func TestVariablesHaveTheValuesThatTheyHad(t *testing.T) {
	names := []string{"A", "B", "C", "D", "PET_E"}
	services := map[string]string{"REDIS_PORT": "tcp://10.0.0.9:6379", "REDIS_PORT_6379_TCP_ADDR": "10.0.0.9", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
	pieces := []string{"$", "$$", "x", "(A)", "$(", ")", "$(NOBODY)"}
	for _, name := range append(slices.Sorted(maps.Keys(services)), names...) {
		pieces = append(pieces, "$("+name+")")
	}
	rapid.Check(t, func(t *rapid.T) {
		var env []any
		var list []string
		for _, name := range rapid.Permutation(names).Draw(t, "names") {
			if rapid.IntRange(0, 3).Draw(t, "of") == 0 {
				env = append(env, map[string]any{"name": name})
				list = append(list, fmt.Sprintf("{name: %s, valueFrom: {secretKeyRef: {name: s, key: k}}}", name))
				continue
			}
			text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 5).Draw(t, name), "")
			env = append(env, map[string]any{"name": name, "value": text})
			list = append(list, fmt.Sprintf("{name: %s, value: '%s'}", name, text))
		}
		src := strings.Replace(least, "[x]", "[x], env: ["+strings.Join(list, ", ")+"]", 1)
		role := mustBeValid(t, Manifests("in.yaml", strings.NewReader(src), Checks{}).HCL)[0].Roles[0]
		var there []any
		if spec, ok := role.Pod["spec"].(map[string]any); ok {
			there = spec["containers"].([]any)[0].(map[string]any)["env"].([]any)
		}
		got := inPodOf(there, services)
		delete(role.Env, "JOB_COMPLETION_INDEX") // set last by the Job controller, and by eltrain
		for name, text := range role.Env {
			if _, twice := got[name]; twice {
				t.Errorf("%s is in env and in pod", name)
			}
			got[name] = text
		}
		if diff := cmp.Diff(inPodOf(env, services), got); diff != "" {
			t.Errorf("%s\n%s (-want +got):\n%s", src, role.Pod, diff)
		}
	})
}

func TestServicesOfVariables(t *testing.T) {
	for name, want := range map[string]string{
		"REDIS_SERVICE_HOST": "redis", "MY_DB_SERVICE_PORT": "my-db", "REDIS_SERVICE_PORT_METRICS": "redis",
		"REDIS_PORT": "redis", "REDIS_PORT_6379_TCP": "redis", "REDIS_PORT_6379_TCP_ADDR": "redis", "A_PORT_53_UDP_PORT": "a", "A_PORT_9_SCTP_PROTO": "a",
		"KUBERNETES_SERVICE_PORT_HTTPS": "kubernetes", "KUBERNETES_PORT_443_TCP_PORT": "kubernetes",
		"REDIS_HOST": "", "PORT": "", "_PORT": "", "redis_port": "", "REDIS_PORTS": "", "A_PORT_X_TCP": "", "A_PORT_1_TCP_HOST": "", "A_SERVICE_HOST_B": "",
		"MASTER_PORT": "", "PET_MASTER_PORT": "",
	} {
		if got, ok := serviceOf(name); got != want || ok != (want != "") {
			t.Errorf("%s is of %q, not %q", name, got, want)
		}
	}
}

// Variables of Services that eltrain's pods do not have are reported, in commands and in variables.
func TestVariablesOfServicesAreTold(t *testing.T) {
	const absent, inPod = "Variable of a Service", "Variable that only Kubernetes knows"
	for _, c := range []struct {
		container, spec string
		want            map[string]int
	}{
		{container: "command: [x, $(REDIS_SERVICE_HOST), $(REDIS_PORT_6379_TCP_ADDR)]", want: map[string]int{absent: 2}},
		{container: "command: [x, $(KUBERNETES_SERVICE_HOST)]", want: map[string]int{inPod: 1}},
		{container: "command: [x, $(REDIS_PORT)]", spec: "enableServiceLinks: true, ", want: map[string]int{inPod: 1}},
		{container: "command: [x, $(REDIS_PORT)]", spec: "enableServiceLinks: false, ", want: map[string]int{absent: 1}},
		{container: "command: [x, $(REDIS_PORT)], envFrom: [{configMapRef: {name: m}}]", want: map[string]int{inPod: 1}},
		{container: "command: [x], env: [{name: A, value: '$(REDIS_SERVICE_HOST):$(REDIS_SERVICE_PORT)/$(DB_PORT)'}]", want: map[string]int{absent: 2}},
		{container: "command: [x], env: [{name: A, value: $(REDIS_PORT)}]", spec: "enableServiceLinks: true, "},
		{container: "command: [x], env: [{name: A, value: $(REDIS_PORT)}], envFrom: [{configMapRef: {name: m}}]"},
		{container: "command: [x], env: [{name: REDIS_PORT, valueFrom: {fieldRef: {fieldPath: x}}}, {name: A, value: $(REDIS_PORT)}]"},
		{container: "command: [x], env: [{name: A, value: $(KUBERNETES_SERVICE_HOST)}]"},
	} {
		src := strings.NewReplacer("command: [x]", c.container, "spec: {containers", "spec: {"+c.spec+"containers").Replace(least)
		r := Manifests("in.yaml", strings.NewReader(src), Checks{})
		mustBeValid(t, r.HCL)
		got := map[string]int{}
		for _, d := range r.Diagnostics {
			got[d.Summary]++
		}
		if got[absent] != c.want[absent] || got[inPod] != c.want[inPod] {
			t.Errorf("%s %s: the diagnostics are\n%s", c.container, c.spec, reported(r.Diagnostics))
		}
		if strings.Contains(c.container, "name: A,") && !strings.Contains(string(r.HCL), "valueFrom") && !strings.Contains(string(r.HCL), `name  = "A"`) {
			t.Errorf("%s: A is not in the pod:\n%s", c.container, r.HCL)
		}
	}
}
