package plan

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/eltrain/eltrain/job"
)

// Gauge is the value of a source about the provider's capacity, or about the jobs that wait, as of an input.
func Gauge(in *Input, jobName, roleName string, s *job.MetricSource) (float64, error) {
	rec := in.Records[jobName]
	if rec == nil || rec.Spec.Role(roleName) == nil {
		return 0, fmt.Errorf("the job is not known")
	}
	if s.Kind == job.QueueSource {
		return waiting(in, s.Metric), nil
	}
	need := rec.Spec.Role(roleName).Resources
	used := map[string]job.Resources{}
	for inc := range in.Snapshot.Incarnations.All() {
		if inc.Provider == rec.Spec.Provider && inc.State != job.Gone && inc.Node != "" {
			used[inc.Node] = used[inc.Node].Add(inc.Reserved).Add(inc.Extra)
		}
	}
	free, price := 0, math.Inf(1)
	for i := range in.Snapshot.Nodes {
		n := &in.Snapshot.Nodes[i]
		if n.Provider != rec.Spec.Provider || n.Closed != "" || n.Drained != "" || in.Bars["job."+jobName+"."+roleName][n.Name] != "" {
			continue
		}
		fit := fits(n, used[n.Name], need)
		free += fit
		if fit == 0 || s.Metric != job.PriceMetric {
			continue
		}
		text, ok := n.Labels[strings.TrimPrefix(s.Label, "node.labels.")]
		if v, err := strconv.ParseFloat(text, 64); ok && err == nil && !math.IsNaN(v) {
			price = min(price, v)
		}
	}
	if s.Metric == job.FreeMetric {
		return float64(free), nil
	}
	if math.IsInf(price, 0) {
		return 0, fmt.Errorf("no node with room for a slot has the label %s with a number", s.Label)
	}
	return price, nil
}

// fits is how many more slots of a size fit on a node.
func fits(n *job.Node, used, need job.Resources) int {
	taken := used.Add(n.Foreign)
	most := math.MaxInt32
	ratio := func(capacity, taken, need int64) {
		if need > 0 {
			most = min(most, int(max(0, (capacity-taken)/need)))
		}
	}
	ratio(int64(n.Capacity.CPU), int64(taken.CPU), int64(need.CPU))
	ratio(int64(n.Capacity.Memory), int64(taken.Memory), int64(need.Memory))
	for device, count := range need.Devices {
		if !n.AnyDevice {
			ratio(int64(n.Capacity.Devices[device]), int64(taken.Devices[device]), int64(count))
		}
	}
	if most == math.MaxInt32 {
		return 0 // a slot that needs nothing says nothing about capacity
	}
	return most
}

// waiting counts the jobs that are not admitted, or the slots that they need at least.
func waiting(in *Input, metric string) float64 {
	jobs, slots := 0, 0
	for _, rec := range in.Records {
		if rec.Phase != job.JobPending {
			continue
		}
		jobs++
		for i := range rec.Spec.Roles {
			slots += rec.Spec.Roles[i].Sizes().Least()
		}
	}
	if metric == job.SlotsMetric {
		return float64(slots)
	}
	return float64(jobs)
}

// Asks lists what a job's policies and its StopWhen ask sources for, by role; "" is that of StopWhen. A role whose policies judge only
// how long its steps take is there with no policy.
func Asks(j *job.Job) map[string][]job.Policy {
	all := map[string][]job.Policy{}
	for i := range j.Roles {
		if s := j.Roles[i].Scaling; s != nil && !s.Disabled() {
			asked := slices.DeleteFunc(slices.Clone(s.Policies), func(p job.Policy) bool { return p.Source == nil })
			judged := slices.ContainsFunc(s.Policies, func(p job.Policy) bool { return p.Strategy != nil && p.Strategy.Kind == job.Efficiency })
			if len(asked) > 0 || judged || j.Deadline != "" {
				all[j.Roles[i].Name] = asked
			}
		}
	}
	if s := j.StopWhen; s != nil {
		all[""] = []job.Policy{{Name: "stop_when", Source: &job.MetricSource{Kind: job.TrainingSource, Metric: s.Metric, Ranks: s.Ranks}}}
	}
	return all
}

// SameSources reports whether policies ask the same sources.
func SameSources(a, b []job.Policy) bool {
	return slices.EqualFunc(a, b, func(a, b job.Policy) bool { return a.Name == b.Name && reflect.DeepEqual(a.Source, b.Source) })
}
