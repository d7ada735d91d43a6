package model

import (
	"math"
	"slices"
	"testing"
)

// form is an alternative formula for the step time. It may leave some of the coefficients unused.
type form struct {
	name  string
	norms []float64
	prior vector // medians of the coefficients, in units of a step time; their logarithms have the deviation 1.5
	time  func(k *vector, norm, nodes, replicas, batch float64) float64
}

func pnorm(a, b, p float64) float64 {
	return math.Pow(math.Pow(a, p)+math.Pow(b, p), 1/p)
}

// The nodes of the measurements are always several, so there is only one network.
var forms = func() []form {
	log := func(k *vector, _, replicas float64) float64 { return k[2] + k[3]*math.Log2(replicas) }
	linear := func(k *vector, _, replicas float64) float64 { return k[2] + k[3]*max(0, replicas-2) }
	overlapped := func(network func(k *vector, nodes, replicas float64) float64) func(*vector, float64, float64, float64, float64) float64 {
		return func(k *vector, norm, nodes, replicas, batch float64) float64 {
			return pnorm(k[0]+k[1]*batch, network(k, nodes, replicas), norm)
		}
	}
	partly := func(network func(k *vector, nodes, replicas float64) float64) func(*vector, float64, float64, float64, float64) float64 {
		return func(k *vector, norm, nodes, replicas, batch float64) float64 {
			return k[0] + pnorm(k[1]*batch, network(k, nodes, replicas), norm)
		}
	}
	three, many := []float64{1, 2, 4}, []float64{1, 1.5, 2, 3, 4, 6, 10}
	of := func(coefficients ...float64) (prior vector) {
		for i := range prior {
			prior[i] = 1
		}
		copy(prior[:], coefficients)
		return prior
	}
	return []form{
		{"log2 of replicas (ours)", three, of(0.2, 0.4, 0.3, 0.05), overlapped(log)},
		{"linear in replicas, 7 norms (Pollux)", many, of(0.2, 0.4, 0.3, 0.01), overlapped(linear)},
		{"ours with 7 norms", many, of(0.2, 0.4, 0.3, 0.05), overlapped(log)},
		{"ours without overlap", []float64{1}, of(0.2, 0.4, 0.3, 0.05), overlapped(log)},
		{"ours, fixed part not overlapped", three, of(0.2, 0.4, 0.3, 0.05), partly(log)},
		{"log2 of replicas and of nodes", three, of(0.2, 0.4, 0.3, 0.05, 0.05), overlapped(func(k *vector, nodes, replicas float64) float64 {
			return log(k, nodes, replicas) + k[4]*math.Log2(nodes)
		})},
		{"log2 of replicas and linear", three, of(0.2, 0.4, 0.3, 0.05, 0.002), overlapped(func(k *vector, nodes, replicas float64) float64 {
			return log(k, nodes, replicas) + k[4]*replicas
		})},
		{"ring: (replicas-1)/replicas and linear", three, of(0.2, 0.4, 0.3, 0.01), overlapped(func(k *vector, _, replicas float64) float64 {
			return k[2]*(replicas-1)/replicas + k[3]*(replicas-1)
		})},
		{"square root of replicas", three, of(0.2, 0.4, 0.3, 0.05), overlapped(func(k *vector, _, replicas float64) float64 { return k[2] + k[3]*math.Sqrt(replicas) })},
		{"linear in nodes and in replicas of a node", three, of(0.2, 0.4, 0.3, 0.01, 0.03), overlapped(func(k *vector, nodes, replicas float64) float64 {
			return k[2] + k[3]*(nodes-1) + k[4]*(replicas/nodes-1)
		})},
		{"all times log2 of replicas (stragglers)", three, of(0.2, 0.4, 0.3, 0.05), func(k *vector, norm, _, replicas, batch float64) float64 {
			return pnorm(k[0]+k[1]*batch, k[2], norm) * (1 + k[3]*math.Log2(replicas))
		}},
	}
}()

// fit returns the form with the most likely coefficients, found as in curve.fit, with derivatives by differences.
func (f *form) fit(observations []Observation) func(Observation) float64 {
	const deviation, loss = 1.5, usualError
	seconds := median(observations, func(o Observation) float64 { return o.StepTime })
	unit := median(observations, func(o Observation) float64 { return o.LocalBatch })
	time := func(at vector, norm float64, o Observation) float64 {
		for i := range at {
			at[i] = f.prior[i] * math.Exp(at[i]*deviation)
		}
		return math.Log(seconds * f.time(&at, norm, float64(o.Nodes), float64(o.Replicas), o.LocalBatch/unit))
	}
	var best vector
	var bestNorm float64
	least := math.Inf(1)
	for _, norm := range f.norms {
		price := func(at vector) (sum float64) {
			for _, o := range observations {
				off := (time(at, norm, o) - math.Log(o.StepTime)) / loss
				sum += math.Log1p(off * off)
			}
			for _, x := range at {
				sum += x * x
			}
			return sum
		}
		var at vector
		cost, damping := price(at), 1e-2
		for range iterations {
			var normal matrix
			var right vector
			for i := range at {
				normal[i][i], right[i] = 1, -at[i]
			}
			for _, o := range observations {
				now := time(at, norm, o)
				off := (now - math.Log(o.StepTime)) / loss
				var gradient vector
				for i := range at {
					moved := at
					moved[i] += 1e-5
					gradient[i] = (time(moved, norm, o) - now) / 1e-5 / loss
				}
				for i := range at {
					right[i] -= gradient[i] * off / (1 + off*off)
					for j := range at {
						normal[i][j] += gradient[i] * gradient[j] / (1 + off*off)
					}
				}
			}
			better := false
			for range damped {
				lifted := normal
				for i := range lifted {
					lifted[i][i] *= 1 + damping
				}
				triangle := lifted.cholesky()
				step := triangle.solve(right)
				next := at
				for i := range next {
					next[i] += min(max(step[i], -1), 1)
				}
				if c := price(next); c < cost {
					better = cost-c > 1e-6*cost
					at, cost = next, c
					damping /= 5
					break
				}
				damping *= 5
			}
			if !better {
				break
			}
		}
		if cost < least {
			best, bestNorm, least = at, norm, cost
		}
	}
	return func(o Observation) float64 { return math.Exp(time(best, bestNorm, o)) }
}

// trials are the divisions into what is fitted and what is predicted.
func trials(all []Observation) (found [][2][]Observation) {
	divide := func(of []Observation, keep func(Observation) bool) {
		in, out := split(of, keep)
		if len(in) > 0 && len(out) > 0 {
			found = append(found, [2][]Observation{in, out})
		}
	}
	for _, most := range []int{8, 12, 16, 24} {
		upTo := func(o Observation) bool { return o.Replicas <= most }
		divide(all, upTo)
		for _, batch := range batches(all) {
			one, _ := split(all, func(o Observation) bool { return o.LocalBatch == batch })
			divide(one, upTo)
		}
	}
	for _, nodes := range []int{6, 8, 12, 16} {
		divide(all, func(o Observation) bool { return o.Nodes == nodes })
	}
	return found
}

// The form was chosen by cross-validation: no other one is much better, and Pollux's is worse.
func TestFormsByCrossValidation(t *testing.T) {
	scores := map[string]float64{}
	for _, f := range forms {
		for _, name := range []string{"bert", "cifar10"} {
			var errors []float64
			for _, trial := range trials(measured(t, name)) {
				predict := f.fit(trial[0])
				for _, o := range trial[1] {
					errors = append(errors, math.Abs(predict(o)/o.StepTime-1))
				}
			}
			slices.Sort(errors)
			median, p90 := quantile(errors, 0.5), quantile(errors, 0.9)
			t.Logf("%-52s %-8s %.1f %% %.1f %%", f.name, name, 100*median, 100*p90)
			scores[f.name] += median
		}
	}
	ours := scores[forms[0].name]
	for name, score := range scores {
		if score < 0.95*ours {
			t.Errorf("%s is better: %.3f, ours %.3f", name, score, ours)
		}
	}
	if pollux := scores[forms[1].name]; pollux < 1.1*ours {
		t.Errorf("Pollux' form is as good: %.3f, ours %.3f", pollux, ours)
	}
}
