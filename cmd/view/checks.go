package view

import (
	"fmt"
	"slices"
	"strings"
)

// CheckFact is the result of the conditions of one declared check, job or output.
type CheckFact struct {
	Kind     string   `json:"kind"`             // "check", "job" or "output"
	Module   string   `json:"module,omitempty"` // as module.eval["de"]
	Name     string   `json:"name"`
	Key      string   `json:"key,omitempty"` // of a job with for_each
	Status   string   `json:"status"`        // "pass", "fail", "error" or "unknown", as Terraform's
	Problems []string `json:"problems,omitempty"`
}

// CheckResult is a check block, or the conditions of a job or of an output, with all instances of it: an element of
// "checks" in Terraform's plans.
type CheckResult struct {
	Address   CheckAddress    `json:"address"`
	Status    string          `json:"status"` // the worst of the instances
	Instances []CheckInstance `json:"instances,omitempty"`
}

// CheckAddress is where the conditions are declared.
type CheckAddress struct {
	Display string `json:"to_display"` // module.eval.job.train
	Kind    string `json:"kind"`       // "check", "resource" or "output_value"
	Module  string `json:"module,omitempty"`
	Mode    string `json:"mode,omitempty"` // this and the type are a job's
	Type    string `json:"type,omitempty"`
	Name    string `json:"name"`
}

// CheckInstance is one instance: of a module with for_each, or of a job.
type CheckInstance struct {
	Address  CheckInstanceAddress `json:"address"`
	Status   string               `json:"status"`
	Problems []CheckProblem       `json:"problems,omitempty"`
}

// CheckInstanceAddress is the address of one instance.
type CheckInstanceAddress struct {
	Display string `json:"to_display"` // module.eval["de"].job.train["x"]
	Module  string `json:"module,omitempty"`
	Key     string `json:"instance_key,omitempty"`
}

// CheckProblem is a condition that does not hold.
type CheckProblem struct {
	Message string `json:"message"`
}

// checkRank orders results: the worst of the instances counts for the whole. Conditions are unknown if they are not
// evaluated, as in a destroy.
var checkRank = map[string]int{"pass": 0, "unknown": 1, "fail": 2, "error": 3}

// checkResults groups the instances by their declaration, in the order of the files.
func checkResults(facts []CheckFact, r *Redactor) []CheckResult {
	var out []CheckResult
	at := map[string]int{} // index in out, by address
	for i := range facts {
		f := &facts[i]
		address := f.declared()
		k, known := at[address.Display]
		if !known {
			k = len(out)
			at[address.Display] = k
			out = append(out, CheckResult{Address: address, Status: f.Status})
		}
		if checkRank[f.Status] > checkRank[out[k].Status] {
			out[k].Status = f.Status
		}
		inst := CheckInstance{Address: CheckInstanceAddress{Display: f.Address(), Module: f.Module, Key: f.Key}, Status: f.Status}
		for _, text := range f.Problems {
			inst.Problems = append(inst.Problems, CheckProblem{r.Text(text)})
		}
		out[k].Instances = append(out[k].Instances, inst)
	}
	return out
}

// Address names the instance as the files declare it: module.eval["de"].job.train["x"].
func (f *CheckFact) Address() string {
	address := within(f.Module, f.Kind+"."+f.Name)
	if f.Key != "" {
		address += fmt.Sprintf("[%q]", f.Key)
	}
	return address
}

// declared returns the address of its block: without the keys of modules.
func (f *CheckFact) declared() CheckAddress {
	module := withoutKeys(f.Module)
	a := CheckAddress{Display: within(module, f.Kind+"."+f.Name), Kind: f.Kind, Module: module, Name: f.Name}
	switch f.Kind {
	case "job":
		a.Kind, a.Mode, a.Type = "resource", "managed", jobType
	case "output":
		a.Kind = "output_value"
	}
	return a
}

func within(module, address string) string {
	if module == "" {
		return address
	}
	return module + "." + address
}

// withoutKeys turns module.eval["de"] into module.eval. Names and keys contain no brackets.
func withoutKeys(module string) string {
	var out strings.Builder
	for module != "" {
		before, rest, _ := strings.Cut(module, "[")
		out.WriteString(before)
		_, module, _ = strings.Cut(rest, "]")
	}
	return out.String()
}

// notEvaluated is the message for what Terraform calls an error of a check. The read of the files warned about it.
const notEvaluated = "A condition cannot be evaluated: run eltrain validate to see why."

// failedChecks returns the checks that a plan shows, one text for each condition.
func (m *PlanModel) failedChecks() []string {
	var items []string
	for i := range m.Checks {
		for k := range m.Checks[i].Instances {
			inst := &m.Checks[i].Instances[k]
			var texts []string
			for _, p := range inst.Problems {
				texts = append(texts, strings.Join(strings.Fields(p.Message), " "))
			}
			if inst.Status == "error" {
				texts = append(texts, notEvaluated)
			}
			for _, text := range folded(texts) {
				items = append(items, inst.Address.Display+": "+text)
			}
		}
	}
	return items
}

// CheckWarnings warns about the checks that failed when a plan was made, in Terraform's words.
func CheckWarnings(facts []CheckFact) []Diagnostic {
	var out []Diagnostic
	for i := range facts {
		texts := slices.Clone(facts[i].Problems)
		if facts[i].Status == "error" {
			texts = append(texts, notEvaluated)
		}
		for _, text := range texts {
			out = append(out, Caution("Check block assertion failed", fmt.Sprintf("%s\n\nThis is %s. It does not stop an apply.", text, facts[i].Address())))
		}
	}
	return out
}
