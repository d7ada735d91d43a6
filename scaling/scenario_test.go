package scaling

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/eltrain/eltrain/job"
)

// TestScenarios plays the files of testdata: what sources say in, decisions out. Each command is one of
//
//	role       declares a role, with one setting per line: sizes 2 64 [step=2] [list=(2,4,8)] | size N (that it has) | interval 30s | tolerance 0.1 | at-a-time up=8 down=4 |
//	           freeze 15m | explore N | on-error hold | cooldown up=10m down=5m | window up=2m down=5m | fallback failures=3 replicas=8 | disabled | dry-run | deadline TIME |
//	           policy NAME source=KIND [metric=] [window=] strategy=KIND [target=] [rising=] [above=] [below=] [delta=] [percent=] [within=] [replicas=] [min=] [payback=]
//	           [cron=(0 20 * * 1-5) for=11h zone=Europe/Berlin]
//	noise      the gradient noise scale, and the batch of a slot: noise scale=2000 batch=32
//	growth     what is known of throughputs, one per line: SIZE THROUGHPUT [expected]
//	left 2h    how much longer the training takes at the present size; restart 90s: what a change costs
//	says       [after=30s] [trains=N] POLICY=VALUE|absent|fails ...: sources answer, after so long; then a decision is made
//	decide     [after=30s]: a decision is made
//	clock TIME sets the clock
//	history    further evaluations without decisions, one per line, as in says
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{t: t, now: time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)} // a Monday
		datadriven.RunTest(t, path, s.run)
	})
}

type scenario struct {
	t      *testing.T
	now    time.Time
	in     Input
	fails  map[string]int
	growth growth
}

type growth struct {
	of           map[int]Throughput
	scale, batch float64 // the batch is that of a slot
}

func (g *growth) Throughput(size int) Throughput { return g.of[size] }

func (g *growth) Noise(size int) (scale, batch float64) { return g.scale, g.batch * float64(size) }

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "role":
		s.role(d.Input)
	case "growth":
		s.growth = growth{of: map[int]Throughput{}}
		for line := range strings.Lines(d.Input) {
			f := strings.Fields(line)
			v, err := strconv.ParseFloat(f[1], 64)
			s.must(err)
			s.growth.of[s.number(f[0])] = Throughput{Mean: v, High: v * 1.1, Measured: len(f) < 3}
		}
		s.in.Growth = &s.growth
	case "noise":
		var scale, batch int
		d.ScanArgs(t, "scale", &scale)
		d.ScanArgs(t, "batch", &batch)
		s.growth.scale, s.growth.batch = float64(scale), float64(batch)
	case "left":
		s.in.Left = s.duration(d.CmdArgs[0].Key)
	case "restart":
		s.in.Restart = s.duration(d.CmdArgs[0].Key)
	case "save-due":
		s.in.SaveDue = time.Time{}
		if len(d.CmdArgs) > 0 {
			s.in.SaveDue = s.now.Add(s.duration(d.CmdArgs[0].Key))
		}
	case "clock":
		at, err := time.Parse(time.RFC3339, d.CmdArgs[0].Key)
		s.must(err)
		s.now = at
	case "says":
		s.says(d.CmdArgs)
		return s.decide()
	case "history":
		for line := range strings.Lines(d.Input) {
			_, args, err := datadriven.ParseLine("says " + line)
			s.must(err)
			s.says(args)
		}
	case "decide":
		s.says(d.CmdArgs)
		return s.decide()
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	return ""
}

func (s *scenario) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *scenario) number(text string) int {
	n, err := strconv.Atoi(text)
	s.must(err)
	return n
}

func (s *scenario) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	s.must(err)
	return d
}

// says appends what sources say, if anything.
func (s *scenario) says(args []datadriven.CmdArg) {
	e := job.Evaluation{Target: s.in.Size, Size: s.in.Size}
	for _, a := range args {
		value := ""
		if len(a.Vals) > 0 {
			value = a.Vals[0]
		}
		switch {
		case a.Key == "after":
			s.now = s.now.Add(s.duration(value))
		case a.Key == "trains":
			e.Size = s.number(value)
		case value == "absent":
			e.Values = append(e.Values, job.Value{Policy: a.Key, Absent: true})
		case value == "fails":
			s.fails[a.Key]++
			e.Values = append(e.Values, job.Value{Policy: a.Key, Error: "connection refused", Failures: s.fails[a.Key]})
		default:
			s.fails[a.Key] = 0
			v, err := strconv.ParseFloat(value, 64)
			s.must(err)
			e.Values = append(e.Values, job.Value{Policy: a.Key, Value: v})
		}
	}
	if e.At = s.now; len(e.Values) > 0 {
		s.in.Evaluations = append(s.in.Evaluations, e)
	}
}

// decide decides, carries the decision out as the planner does, and checks that it then stands.
func (s *scenario) decide() string {
	s.in.Now = s.now
	d := Decide(s.in)
	var b strings.Builder
	switch {
	case d.To == 0 && d.Most == 0:
		fmt.Fprintf(&b, "%d: as many as there is room for\n", d.From)
	case d.To == 0:
		fmt.Fprintf(&b, "%d: at most %d\n", d.From, d.Most)
	case d.To == d.From:
		fmt.Fprintf(&b, "%d\n", d.From)
	default:
		fmt.Fprintf(&b, "%d -> %d\n", d.From, d.To)
	}
	for _, p := range d.Proposals {
		size := strconv.Itoa(p.Size)
		switch {
		case p.Inactive:
			size = "inactive"
		case p.Size == 0:
			size = "nothing"
		}
		fmt.Fprintf(&b, "  %s: %s", p.Policy, size)
		if !p.Reason.IsZero() {
			fmt.Fprintf(&b, ", %s", p.Reason)
		}
		if !p.Held.IsZero() {
			fmt.Fprintf(&b, ", %s", p.Held)
		}
		b.WriteByte('\n')
	}
	for _, why := range d.Bounds {
		fmt.Fprintf(&b, "  %s\n", why)
	}
	if !d.Next.IsZero() {
		fmt.Fprintf(&b, "  again in %s\n", d.Next.Sub(s.now).Round(time.Second))
	}
	before := s.in.Size
	switch {
	case d.To > 0:
		s.in.Scaled.Size = d.To
		s.in.Size = d.To
	case d.Most > 0:
		s.in.Size = d.Most // there is room
	}
	if s.in.Size != before {
		s.in.Scaled.At = s.now
		if d.Explores {
			s.in.Scaled.Explored++
		}
	}
	if again := Decide(s.in); again.To != 0 && again.To != s.in.Size || again.To == 0 && again.Most != 0 && again.Most != s.in.Size {
		s.t.Errorf("%s\ndeciding again yields %+v", b.String(), again)
	}
	return b.String()
}

func (s *scenario) role(text string) {
	sc := &job.Scaling{}
	s.in = Input{Scaling: sc, Restart: time.Minute}
	s.fails = map[string]int{}
	for line := range strings.Lines(text) {
		name, args, err := datadriven.ParseLine(line)
		s.must(err)
		arg := func(key string) string {
			for _, a := range args {
				if a.Key == key && len(a.Vals) > 0 {
					return strings.Join(a.Vals, " ")
				}
			}
			return ""
		}
		first := ""
		if len(args) > 0 {
			first = args[0].Key
		}
		span := func(key string) job.Duration {
			if arg(key) == "" {
				return 0
			}
			return job.Duration(s.duration(arg(key)))
		}
		count := func(key string) int {
			if arg(key) == "" {
				return 0
			}
			return s.number(arg(key))
		}
		switch name {
		case "sizes":
			sc.Min, sc.Max, sc.Step = s.number(first), s.number(args[1].Key), max(1, count("step"))
			s.in.Sizes = job.Sizes{Min: sc.Min, Max: sc.Max, Step: sc.Step}
			for _, a := range args {
				if a.Key == "list" {
					for _, v := range a.Vals {
						s.in.Sizes.List = append(s.in.Sizes.List, s.number(v))
					}
				}
			}
		case "size":
			s.in.Size = s.number(first)
		case "interval":
			sc.EvaluationInterval = job.Duration(s.duration(first))
		case "tolerance":
			v, err := strconv.ParseFloat(first, 64)
			s.must(err)
			sc.Tolerance = &v
		case "at-a-time":
			sc.MaxScaleUp, sc.MaxScaleDown = count("up"), count("down")
		case "freeze":
			sc.Freeze = job.Duration(s.duration(first))
		case "explore":
			n := s.number(first)
			sc.Explore = &n
		case "on-error":
			sc.OnCheckError = job.OnError(first)
		case "cooldown":
			sc.Cooldown = &job.Cooldown{Up: span("up"), Down: span("down")}
		case "window":
			sc.Stabilization = &job.Stabilization{Up: span("up"), Down: span("down")}
		case "fallback":
			sc.Fallback = &job.Fallback{Failures: count("failures"), Replicas: count("replicas")}
		case "disabled":
			off := false
			sc.Enabled = &off
		case "dry-run":
			sc.DryRun = true
		case "deadline":
			s.in.Deadline, err = time.Parse(time.RFC3339, first)
			s.must(err)
		case "policy":
			p := job.Policy{Name: first, Strategy: &job.Strategy{Kind: job.StrategyKind(arg("strategy")), Delta: count("delta"), Within: count("within"), Replicas: count("replicas"), Payback: span("payback")}}
			for key, to := range map[string]**float64{"target": &p.Strategy.Target, "above": &p.Strategy.Above, "below": &p.Strategy.Below} {
				if arg(key) != "" {
					v, err := strconv.ParseFloat(arg(key), 64)
					s.must(err)
					*to = &v
				}
			}
			if arg("percent") != "" {
				p.Strategy.Percent, err = strconv.ParseFloat(arg("percent"), 64)
				s.must(err)
			}
			if arg("min") != "" {
				p.Strategy.MinEfficiency, err = strconv.ParseFloat(arg("min"), 64)
				s.must(err)
			}
			if arg("rising") != "" {
				rising := arg("rising") == "true"
				p.Strategy.Rising = &rising
			}
			if arg("source") != "" {
				p.Source = &job.MetricSource{Kind: job.SourceKind(arg("source")), Metric: arg("metric"), Window: span("window")}
			}
			if arg("cron") != "" {
				zone := arg("zone")
				if zone == "" {
					zone = "UTC"
				}
				p.Schedule = &job.Schedule{Start: strings.ReplaceAll(arg("cron"), "_", " "), Duration: span("for"), Timezone: zone}
			}
			sc.Policies = append(sc.Policies, p)
		default:
			s.t.Fatalf("unknown setting %s", name)
		}
	}
	if s.in.Size == 0 {
		s.in.Size = s.in.Sizes.Least()
	}
	if !slices.Contains([]job.OnError{"", job.HoldOnError, job.IgnoreOnError, job.FailOnError}, sc.OnCheckError) {
		s.t.Fatalf("unknown on-error %s", sc.OnCheckError)
	}
}
