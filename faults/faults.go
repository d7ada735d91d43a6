// Package faults says what goes wrong in a cluster, and when: models of faults as data, and what a seed draws from them. What is drawn
// does not depend on what runs, so different policies can be compared under the same faults.
package faults

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
)

// Kind is what a fault does.
type Kind string

const (
	Process Kind = "process" // a training process of a slot fails
	Hang    Kind = "hang"    // the training processes of a slot stop without ending
	Node    Kind = "node"    // a node falls silent with all that runs on it, and returns after a while
	Reclaim Kind = "reclaim" // a node is taken away after a notice, and returns after a while
)

// Law says when the faults of one thing come.
type Law string

const (
	Exponential Law = "exponential" // at a constant rate
	Weibull     Law = "weibull"     // at a rate that falls (shape below 1) or rises with the time since the last fault
	Storm       Law = "storm"       // once, at a time
)

// Of is what fails by itself.
type Of string

const (
	EachDevice Of = "device" // each place for a slot
	EachNode   Of = "node"
	EachRack   Of = "rack" // all nodes of a rack together
)

// Model is one kind of fault.
type Model struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	Law  Law    `json:"law"`
	Of   Of     `json:"of"`
	// Mean is the time between the faults of one thing. It can be given by an observation instead: Count faults of On things in Within.
	Mean   job.Duration `json:"mean,omitempty"`
	Count  float64      `json:"count,omitempty"`
	On     float64      `json:"on,omitempty"`
	Within job.Duration `json:"within,omitempty"`
	Shape  float64      `json:"shape,omitempty"` // of weibull
	// At is when a storm begins, and Lasts how long: each thing fails in it with the probability Share.
	At    job.Duration `json:"at,omitempty"`
	Lasts job.Duration `json:"lasts,omitempty"`
	Share float64      `json:"share,omitempty"`
	// Away is how long a node is away on average: exponential.
	Away job.Duration `json:"away,omitempty"`
	// Notice is how long before a reclaim it is known.
	Notice job.Duration `json:"notice,omitempty"`
	// Code is the exit code of a process that fails; 0 is that it is killed.
	Code int `json:"code,omitempty"`
	// Lemons are a share of the things of which faults come so many times as often.
	Lemons *Lemons `json:"lemons,omitempty"`
}

// Lemons fail more often than others.
type Lemons struct {
	Share  float64 `json:"share"`
	Factor float64 `json:"factor"`
}

// Models are all kinds of faults of a cluster.
type Models []Model

// file is the JSON of a file of fault models.
type file struct {
	About  string  `json:"about,omitempty"`
	Models []Model `json:"models"`
}

// Read reads a file of fault models. Errors name the model, or the line.
func Read(r io.Reader) (Models, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var f file
	if err := d.Decode(&f); err != nil {
		at := d.InputOffset()
		if syntax, is := errors.AsType[*json.SyntaxError](err); is {
			at = syntax.Offset
		}
		line := 1 + bytes.Count(text[:min(int(at), len(text))], []byte("\n"))
		return nil, fmt.Errorf("line %d: %w", line, err)
	}
	if len(f.Models) == 0 {
		return nil, errors.New("there are no models")
	}
	for i := range f.Models {
		if err := f.Models[i].check(); err != nil {
			return nil, fmt.Errorf("model %d %q: %w", i+1, f.Models[i].Name, err)
		}
	}
	return f.Models, nil
}

// check reports what is wrong with a model.
func (m *Model) check() error {
	oneOf := func(name, value string, all ...string) error {
		if !slices.Contains(all, value) {
			return fmt.Errorf("%s is %q, not one of %q", name, value, all)
		}
		return nil
	}
	if err := errors.Join(oneOf("kind", string(m.Kind), "process", "hang", "node", "reclaim"), oneOf("law", string(m.Law), "exponential", "weibull", "storm"),
		oneOf("of", string(m.Of), "device", "node", "rack")); err != nil {
		return err
	}
	positive := func(name string, v float64) error {
		if !(v > 0 && v < 1e12) {
			return fmt.Errorf("%s has to be positive", name)
		}
		return nil
	}
	switch {
	case m.Law == Storm:
		if err := positive("share", m.Share); err != nil || m.Share > 1 {
			return errors.New("share has to be above 0 and at most 1")
		}
		if m.At < 0 || m.Lasts < 0 {
			return errors.New("at and lasts cannot be negative")
		}
	case m.Mean != 0:
		if m.Count+m.On != 0 || m.Within != 0 {
			return errors.New("mean cannot be together with count, on and within")
		}
		if err := positive("mean", float64(m.Mean)/float64(time.Second)); err != nil {
			return err
		}
	default:
		if err := errors.Join(positive("count", m.Count), positive("on", m.On), positive("within", float64(m.Within)/float64(time.Second))); err != nil {
			return fmt.Errorf("without mean, there have to be count, on and within: %w", err)
		}
	}
	switch l := m.Lemons; {
	case m.Law == Weibull && !(m.Shape >= 0.1 && m.Shape <= 20):
		return errors.New("shape has to be from 0.1 to 20")
	case m.Law != Weibull && m.Shape != 0:
		return errors.New("only weibull has a shape")
	case m.Away < 0 || m.Notice < 0:
		return errors.New("away and notice cannot be negative")
	case l != nil && !(l.Share > 0 && l.Share <= 1 && l.Factor > 0 && l.Factor <= 1e6):
		return errors.New("lemons have to have a share above 0 and at most 1, and a positive factor")
	}
	return nil
}

// mean is the time between the faults of one thing, in seconds.
func (m *Model) mean() float64 {
	if m.Mean > 0 {
		return m.Mean.Std().Seconds()
	}
	return m.Within.Std().Seconds() * m.On / m.Count
}

// Place is a node of the cluster.
type Place struct {
	Name    string
	Devices int    // places for slots
	Rack    string // "" if it has none
}

// Event is one fault.
type Event struct {
	At     time.Duration // since the start
	Model  int           // index
	Node   int           // index
	Device int           // the place of a slot on it, from 0 on, if the fault is of a device; else -1
	Notice time.Duration // of a reclaim: it is known at At, and happens that much later
	Away   time.Duration // how long the node is away
}

// Draw returns the faults of the first part of a run, of that length, in order. The same seed draws the same.
func (all Models) Draw(places []Place, seed uint64, length time.Duration) []Event {
	var events []Event
	for i := range all {
		for k, thing := range things(places, all[i].Of) {
			r := rand.New(rand.NewPCG(seed, uint64(i)<<40|uint64(k)))
			events = all[i].draw(events, i, thing, r, length)
		}
	}
	slices.SortFunc(events, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Device, b.Device))
	})
	return events
}

// thing is what fails by itself: the nodes that do, and which place on each.
type thing struct {
	nodes  []int
	device int
}

func things(places []Place, of Of) (all []thing) {
	racks := map[string]int{}
	for i, p := range places {
		switch of {
		case EachDevice:
			for d := range p.Devices {
				all = append(all, thing{[]int{i}, d})
			}
		case EachRack:
			at, known := racks[p.Rack]
			if !known || p.Rack == "" {
				at, racks[p.Rack] = len(all), len(all)
				all = append(all, thing{device: -1})
			}
			all[at].nodes = append(all[at].nodes, i)
		default:
			all = append(all, thing{[]int{i}, -1})
		}
	}
	return all
}

func (m *Model) draw(events []Event, index int, t thing, r *rand.Rand, length time.Duration) []Event {
	factor := 1.0
	if m.Lemons != nil && r.Float64() < m.Lemons.Share {
		factor = m.Lemons.Factor
	}
	happens := func(at float64) {
		away := time.Duration(0)
		if m.Kind == Node || m.Kind == Reclaim {
			away = time.Duration(r.ExpFloat64() * float64(m.Away))
		}
		for _, node := range t.nodes {
			events = append(events, Event{At: time.Duration(at * float64(time.Second)), Model: index, Node: node, Device: t.device, Notice: m.Notice.Std(), Away: away})
		}
	}
	if m.Law == Storm {
		if at := m.At.Std().Seconds() + r.Float64()*m.Lasts.Std().Seconds(); r.Float64() < m.Share*factor && at < length.Seconds() {
			happens(at)
		}
		return events
	}
	mean := m.mean() / factor
	for at := m.next(mean, r); at < length.Seconds(); at += m.next(mean, r) {
		happens(at)
	}
	return events
}

// next draws a time between two faults, in seconds.
func (m *Model) next(mean float64, r *rand.Rand) float64 {
	if m.Law == Weibull {
		return mean / math.Gamma(1+1/m.Shape) * math.Pow(r.ExpFloat64(), 1/m.Shape)
	}
	return mean * r.ExpFloat64()
}
