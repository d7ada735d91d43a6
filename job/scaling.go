package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Scaling bounds an elastic role, and says what its size follows within these bounds.
type Scaling struct {
	Min   int   `hcl:"min,required" change:"update" doc:"The minimum that can train: it is admitted as a whole or not at all."`
	Max   int   `hcl:"max,required" change:"update" doc:"The maximum number of slots."`
	Step  int   `hcl:"step,optional" default:"1" change:"update" doc:"Legal sizes are multiples of step."`
	Sizes []int `hcl:"sizes,optional" change:"update" doc:"Legal sizes, listed. Not together with step."`

	Enabled            *bool    `hcl:"enabled,optional" change:"update" json:",omitempty" doc:"With false the policies are not evaluated, and the role keeps its size. Default: true."`
	DryRun             bool     `hcl:"dry_run,optional" change:"update" json:",omitempty" doc:"Whether the policies only tell what they would do. The role grows as one without policies."`
	EvaluationInterval Duration `hcl:"evaluation_interval,optional" change:"update" json:",omitempty" doc:"How often sources are asked. Also the least time between two changes of the size by policies. Default: 30s."`
	Tolerance          *float64 `hcl:"tolerance,optional" change:"update" json:",omitempty" doc:"How far a value may be from its target, as part of the target, before the size changes. Default: 0.1."`
	MaxScaleUp         int      `hcl:"max_scale_up,optional" change:"update" json:",omitempty" doc:"By how many slots the size may grow at a time. Default: no limit."`
	MaxScaleDown       int      `hcl:"max_scale_down,optional" change:"update" json:",omitempty" doc:"By how many slots the size may shrink at a time. Default: no limit."`
	Freeze             Duration `hcl:"freeze,optional" change:"update" json:",omitempty" doc:"The size stays as it is if the training is over sooner than this. How long it takes is known if it says how many steps there are in all."`
	Explore            *int     `hcl:"explore,optional" change:"update" json:",omitempty" doc:"How many sizes the strategy efficiency may try of which nothing was measured. Default: 3."`
	Batch              Batch    `hcl:"batch,optional" change:"update" json:",omitempty" doc:"How a step's work depends on the size: \"per_slot\" if each slot adds its own, as with a fixed batch per device, or \"global\" if the slots share a batch of a fixed size. For what is judged by how long steps take: efficiency, deadline, and a throughput's target. Default: per_slot."`
	OnCheckError       OnError  `hcl:"on_check_error,optional" change:"update" json:",omitempty" doc:"What happens if a source has no value: \"hold\" (its policy proposes the size as it is, so the role does not shrink), \"ignore\" (as if the policy were not there), or \"fail\" (the role keeps its size). Default: hold."`

	Cooldown      *Cooldown      `hcl:"cooldown,block" change:"update" json:",omitempty" doc:"The least time from a change of the size until policies change it again."`
	Stabilization *Stabilization `hcl:"stabilization_window,block" change:"update" json:",omitempty" doc:"For how long a policy has to propose more, or less, before it counts."`
	Fallback      *Fallback      `hcl:"fallback,block" change:"update" json:",omitempty" doc:"What a policy proposes if its source keeps failing."`

	Policies []Policy `hcl:"policy,block" change:"update" json:",omitempty" doc:"What the size follows. Without any policy the role grows as far as there is room."`
}

// Batch is how a step's work depends on the number of slots.
type Batch string

const (
	BatchPerSlot Batch = "per_slot" // each slot adds its own
	BatchGlobal  Batch = "global"   // the slots share it
)

// Batches are all of them; the first is the default.
var Batches = []Batch{BatchPerSlot, BatchGlobal}

// OnError is what happens if a source has no value.
type OnError string

const (
	HoldOnError   OnError = "hold"
	IgnoreOnError OnError = "ignore"
	FailOnError   OnError = "fail"
)

// OnErrors are all of them; the first is the default.
var OnErrors = []OnError{HoldOnError, IgnoreOnError, FailOnError}

// Cooldown is the least time from a change of the size until the next.
type Cooldown struct {
	Up   Duration `hcl:"up,optional" default:"10m" change:"update" doc:"Until it may grow."`
	Down Duration `hcl:"down,optional" default:"5m" change:"update" doc:"Until it may shrink."`
}

// Stabilization is for how long a proposal has to last.
type Stabilization struct {
	Up   Duration `hcl:"up,optional" default:"2m" change:"update" doc:"The role grows to the least that the policy has proposed for this long."`
	Down Duration `hcl:"down,optional" default:"5m" change:"update" doc:"The role shrinks to the most that the policy has proposed for this long."`
}

// Fallback is what a policy proposes if its source keeps failing.
type Fallback struct {
	Failures int `hcl:"failures,optional" default:"3" change:"update" doc:"How many times in a row the source has failed."`
	Replicas int `hcl:"replicas,required" change:"update" doc:"What its policy proposes from then on."`
}

// The defaults of what a scaling block does not say.
const (
	DefaultEvaluationInterval = Duration(30 * time.Second)
	DefaultTolerance          = 0.1
	DefaultExplorations       = 3
)

var (
	defaultCooldown      = Cooldown{Up: Duration(10 * time.Minute), Down: Duration(5 * time.Minute)}
	defaultStabilization = Stabilization{Up: Duration(2 * time.Minute), Down: Duration(5 * time.Minute)}
)

// Disabled reports whether the role keeps its size.
func (s *Scaling) Disabled() bool { return s.Enabled != nil && !*s.Enabled }

// Proposes reports whether policies propose sizes, rather than only bounding how far the role grows.
func (s *Scaling) Proposes() bool {
	return slices.ContainsFunc(s.Policies, func(p Policy) bool { return p.Strategy != nil && p.Strategy.Kind != Efficiency })
}

// Interval is how often sources are asked.
func (s *Scaling) Interval() time.Duration {
	if s.EvaluationInterval == 0 {
		return DefaultEvaluationInterval.Std()
	}
	return s.EvaluationInterval.Std()
}

// Tolerated is how far a value may be from its target, as part of it.
func (s *Scaling) Tolerated() float64 {
	if s.Tolerance == nil {
		return DefaultTolerance
	}
	return *s.Tolerance
}

// Explorations are how many sizes may be tried of which nothing was measured.
func (s *Scaling) Explorations() int {
	if s.Explore == nil {
		return DefaultExplorations
	}
	return *s.Explore
}

// Pace returns the cooldown.
func (s *Scaling) Pace() Cooldown {
	if s.Cooldown == nil {
		return defaultCooldown
	}
	return *s.Cooldown
}

// Windows returns the stabilization windows.
func (s *Scaling) Windows() Stabilization {
	if s.Stabilization == nil {
		return defaultStabilization
	}
	return *s.Stabilization
}

// Policy is one thing that a role's size follows.
type Policy struct {
	Name     string        `hcl:"name,label" doc:"The policy's name, unique in the block."`
	Source   *MetricSource `hcl:"source,block" change:"update" json:",omitempty" doc:"Where the value comes from that the strategy judges."`
	Schedule *Schedule     `hcl:"schedule,block" change:"update" json:",omitempty" doc:"When the policy is active. While it is, it decides alone; of two, the later in the file."`
	Strategy *Strategy     `hcl:"strategy,block" change:"update" json:",omitempty" doc:"What size follows from the value. Required."`
}

// SourceKind is where a value comes from.
type SourceKind string

const (
	TrainingSource   SourceKind = "training"   // what the training processes show
	PrometheusSource SourceKind = "prometheus" // an instant query
	HTTPSource       SourceKind = "http"       // a number, or one in a JSON document
	ExecSource       SourceKind = "exec"       // a number that a command prints
	CapacitySource   SourceKind = "capacity"   // of the job's provider
	QueueSource      SourceKind = "queue"      // of jobs that wait
)

// SourceKinds are all of them.
var SourceKinds = []SourceKind{TrainingSource, PrometheusSource, HTTPSource, ExecSource, CapacitySource, QueueSource}

// MetricSource is where a value comes from.
type MetricSource struct {
	Kind SourceKind `hcl:"kind,label" doc:"\"training\", \"prometheus\", \"http\", \"exec\", \"capacity\", or \"queue\"."`

	Metric  string            `hcl:"metric,optional" change:"update" json:",omitempty" doc:"training: what the processes show, such as \"tokens_per_second\". capacity: \"free\" (further slots that fit) or \"price\" (the lowest of the nodes with room for a slot, by their label). queue: \"jobs\" or \"slots\" that wait."`
	Ranks   RankAggregate     `hcl:"ranks,optional" change:"update" json:",omitempty" doc:"training: the \"mean\", \"min\", \"max\", \"sum\" or \"median\" over the ranks that show it. Default: mean."`
	Rank    *int              `hcl:"rank,optional" change:"update" json:",omitempty" doc:"training: of this rank alone."`
	Label   string            `hcl:"label,optional" change:"update" json:",omitempty" doc:"capacity: the node label with the price, as \"node.labels.price\"."`
	Address string            `hcl:"address,optional" change:"update" json:",omitempty" doc:"prometheus, http: the URL."`
	Query   string            `hcl:"query,optional" change:"update" json:",omitempty" doc:"prometheus: the query; its result is one number."`
	Offset  Duration          `hcl:"offset,optional" change:"update" json:",omitempty" doc:"prometheus: how long ago the query is about."`
	Field   string            `hcl:"field,optional" change:"update" json:",omitempty" doc:"http: the number's place in a JSON document, as \"queue.length\" or \"workers.0.load\". Without it the document is the number."`
	Headers map[string]string `hcl:"headers,optional" change:"update" json:",omitempty" doc:"prometheus, http: further headers of the request, as { Authorization = \"Bearer …\" }."`
	Command []string          `hcl:"command,optional" change:"update" json:",omitempty" doc:"exec: the command and its arguments, run by the master in the job directory. It prints one number."`
	Timeout Duration          `hcl:"timeout,optional" change:"update" json:",omitempty" doc:"prometheus, http, exec: how long it may take. Default: 10s, or the evaluation interval if that is shorter."`
	Window  Duration          `hcl:"window,optional" change:"update" json:",omitempty" doc:"The value is the mean of those of this long, as far as the size was the same. Default: the newest alone."`
}

// RankAggregate is how the values of several ranks become one.
type RankAggregate string

const (
	MeanOfRanks   RankAggregate = "mean"
	MinOfRanks    RankAggregate = "min"
	MaxOfRanks    RankAggregate = "max"
	SumOfRanks    RankAggregate = "sum"
	MedianOfRanks RankAggregate = "median"
)

// RankAggregates are all of them; the first is the default.
var RankAggregates = []RankAggregate{MeanOfRanks, MinOfRanks, MaxOfRanks, SumOfRanks, MedianOfRanks}

// DefaultSourceTimeout is how long a source may take.
const DefaultSourceTimeout = 10 * time.Second

// Bound is how long the source may take, where it is asked once in interval.
func (m *MetricSource) Bound(interval time.Duration) time.Duration {
	if m.Timeout > 0 {
		return m.Timeout.Std()
	}
	return min(DefaultSourceTimeout, interval)
}

// Schedule is when a policy is active.
type Schedule struct {
	Start    string   `hcl:"start,required" change:"update" doc:"When it begins, in cron's five fields: \"0 20 * * 1-5\"."`
	Duration Duration `hcl:"duration,required" change:"update" doc:"For how long it is active from then on."`
	Timezone string   `hcl:"timezone,optional" default:"UTC" change:"update" doc:"The time zone of start, as \"Europe/Berlin\"."`
}

// StrategyKind is how a size follows from a value.
type StrategyKind string

const (
	TargetValue StrategyKind = "target-value"
	Threshold   StrategyKind = "threshold"
	FixedValue  StrategyKind = "fixed-value"
	Efficiency  StrategyKind = "efficiency"
	PassThrough StrategyKind = "pass-through"
)

// StrategyKinds are all of them.
var StrategyKinds = []StrategyKind{TargetValue, Threshold, FixedValue, Efficiency, PassThrough}

// Strategy is how a size follows from a value.
type Strategy struct {
	Kind StrategyKind `hcl:"kind,label" doc:"\"target-value\", \"threshold\", \"fixed-value\", \"efficiency\", or \"pass-through\"."`

	Target  *float64 `hcl:"target,optional" change:"update" json:",omitempty" doc:"target-value: the value that the size is to lead to."`
	Rising  *bool    `hcl:"rising,optional" change:"update" json:",omitempty" doc:"target-value: whether more slots raise the value, as a throughput, rather than lower it, as a load. Default: true for the rates of the source training, else false."`
	Above   *float64 `hcl:"above,optional" change:"update" json:",omitempty" doc:"threshold: it is crossed by values above this."`
	Below   *float64 `hcl:"below,optional" change:"update" json:",omitempty" doc:"threshold: it is crossed by values below this. With above, by those that are above the one and below the other."`
	Delta   int      `hcl:"delta,optional" change:"update" json:",omitempty" doc:"threshold: by how many slots the size changes once it is crossed: 2, -2."`
	Percent float64  `hcl:"percent,optional" change:"update" json:",omitempty" doc:"threshold: the same in percent of the size, away from it to a whole number. Instead of delta."`
	Within  int      `hcl:"within,optional" change:"update" json:",omitempty" doc:"threshold: how many values cross it, of those within the source's window or else the newest. Default: 5."`

	Replicas int `hcl:"replicas,optional" change:"update" json:",omitempty" doc:"fixed-value: the size."`

	MinEfficiency float64  `hcl:"min_efficiency,optional" change:"update" json:",omitempty" doc:"efficiency: the least throughput of a slot, as part of that at the smallest legal size. Larger sizes are not used. Default: 0.7."`
	Payback       Duration `hcl:"payback,optional" change:"update" json:",omitempty" doc:"efficiency: the time within which a larger size has to make up for the restart. Default: 30m."`
}

// The defaults of what a strategy does not say.
const (
	DefaultWithin        = 5
	DefaultMinEfficiency = 0.7
	DefaultPayback       = 30 * time.Minute
)

// Crossings are how many values have to cross a threshold.
func (s *Strategy) Crossings() int {
	if s.Within == 0 {
		return DefaultWithin
	}
	return s.Within
}

// Crossed reports whether a value crosses the threshold.
func (s *Strategy) Crossed(value float64) bool {
	return (s.Above == nil || value > *s.Above) && (s.Below == nil || value < *s.Below)
}

// LeastEfficiency is the least efficiency of a size that is used.
func (s *Strategy) LeastEfficiency() float64 {
	if s.MinEfficiency == 0 {
		return DefaultMinEfficiency
	}
	return s.MinEfficiency
}

// PaysWithin is the time within which a larger size has to make up for the restart.
func (s *Strategy) PaysWithin() time.Duration {
	if s.Payback == 0 {
		return DefaultPayback
	}
	return s.Payback.Std()
}

// StopWhen is a figure of the training that ends the job.
type StopWhen struct {
	Metric string        `hcl:"metric,required" change:"update" doc:"What the processes show, as of the source training: \"loss\"."`
	Ranks  RankAggregate `hcl:"ranks,optional" change:"update" json:",omitempty" doc:"The \"mean\", \"min\", \"max\", \"sum\" or \"median\" over the ranks that show it. Default: mean."`
	Above  *float64      `hcl:"above,optional" change:"update" json:",omitempty" doc:"It counts while it is above this."`
	Below  *float64      `hcl:"below,optional" change:"update" json:",omitempty" doc:"It counts while it is below this."`
	For    string        `hcl:"for,optional" change:"update" json:",omitempty" doc:"For how long without a break: \"200 steps\" or \"10m\". Default: once."`
	As     string        `hcl:"as,optional" change:"update" json:",omitempty" doc:"How the job ends: \"succeeded\" or \"failed\". Default: succeeded."`
}

// Reached reports whether a value counts.
func (s *StopWhen) Reached(value float64) bool {
	return (s.Above == nil || value > *s.Above) && (s.Below == nil || value < *s.Below)
}

// Lasts reads For: a number of steps, or a time. Both are 0 if once is enough.
func (s *StopWhen) Lasts() (steps int64, d time.Duration, err error) {
	if s.For == "" {
		return 0, 0, nil
	}
	if n, found := strings.CutSuffix(s.For, " steps"); found {
		steps, err = strconv.ParseInt(strings.TrimSpace(n), 10, 64)
		if err == nil && steps > 0 {
			return steps, 0, nil
		}
	} else if d, err := ParseDuration(s.For); err == nil {
		return 0, d.Std(), nil
	}
	return 0, 0, fmt.Errorf("%q is neither a number of steps, as \"200 steps\", nor a time, as \"10m\"", s.For)
}

// Fails reports whether the job fails once the value is reached.
func (s *StopWhen) Fails() bool { return s.As == StopFailed }

// How a job ends by its StopWhen.
const (
	StopSucceeded = "succeeded"
	StopFailed    = "failed"
)

// Survey has what the sources of one role's policies said. Without a role it is about what the job's StopWhen names, as the one value.
type Survey struct {
	UID         string       `json:"uid"` // of the job
	Role        string       `json:"role,omitempty"`
	Evaluations []Evaluation `json:"evaluations"` // by time
}

// MaxEvaluations bounds Survey.Evaluations.
const MaxEvaluations = 240

// Evaluation is what the sources of one role's policies said at one time.
type Evaluation struct {
	At     time.Time `json:"at"`
	Step   int64     `json:"step,omitempty"`
	Size   int       `json:"size"`             // slots that trained; 0 if none did
	Target int       `json:"target"`           // slots that it was to have
	Values []Value   `json:"values,omitempty"` // of its policies with a source
	// Pace is how long a step of the world takes; nil if it shows no steps.
	Pace *Pace `json:"pace,omitempty"`
}

// Pace is how long a step of a world takes.
type Pace struct {
	Generation int     `json:"generation"`
	Nodes      int     `json:"nodes"`
	Replicas   int     `json:"replicas"`  // training processes
	StepTime   float64 `json:"step_time"` // in seconds
	// Batch and NoiseScale are Reading's BatchSize and NoiseScale; 0 if the job does not say both.
	Batch      float64 `json:"batch,omitempty"`
	NoiseScale float64 `json:"noise_scale,omitempty"`
}

// Measured is what the worlds of a job have shown of how long a step takes at each of its sizes.
type Measured struct {
	Sizes []Measurement `json:"sizes,omitempty"`
	Until time.Time     `json:"until"` // of the newest evaluation that is in Sizes
	// Program identifies what the slots are started from. Worlds before generation Since ran another one.
	Program string `json:"program"`
	Since   int    `json:"since,omitempty"`
	// Batch, of one replica, and NoiseScale are the newest that these worlds have shown; see Pace.
	Batch      float64 `json:"batch,omitempty"`
	NoiseScale float64 `json:"noise_scale,omitempty"`
}

// Counts reports whether an evaluation shows a step's time that is not in Sizes yet.
func (m *Measured) Counts(e *Evaluation) bool {
	return e.Pace != nil && e.At.After(m.Until) && e.Pace.Generation >= m.Since
}

// Measurement is how long a step takes at one size; see package scaling/model.
type Measurement struct {
	Nodes    int       `json:"nodes"`
	Replicas int       `json:"replicas"`
	Count    int       `json:"count"`
	StepTime float64   `json:"step_time"` // mean, in seconds
	Variance float64   `json:"variance,omitempty"`
	Last     time.Time `json:"last"`
}

// Value is what a source said, or why it said nothing.
type Value struct {
	Policy string  `json:"policy"`
	Value  float64 `json:"value"`
	// Error is why there is no value. Failures counts how often there was none in a row.
	Error    string `json:"error,omitempty"`
	Failures int    `json:"failures,omitempty"`
	// Absent: there is no value because nothing trains. It is not a failure.
	Absent bool `json:"absent,omitempty"`
}

// Of returns the value for a policy; nil if it was not asked for.
func (e *Evaluation) Of(policy string) *Value {
	for i := range e.Values {
		if e.Values[i].Policy == policy {
			return &e.Values[i]
		}
	}
	return nil
}

// Stopping is since when, without a break, the figure of the job's StopWhen counts.
type Stopping struct {
	Since time.Time `json:"since"`
	Step  int64     `json:"step,omitempty"`
}

// Scaled is what policies last decided about a role's size.
type Scaled struct {
	Size     int       `json:"size"`
	At       time.Time `json:"at,omitzero"`        // when it was changed; zero if it was not
	Explored int       `json:"explored,omitempty"` // sizes of which nothing had been measured when they were decided
}

// What sources can say, by the names in MetricSource.Metric.
const (
	StepMetric     = "step"
	StepRateMetric = "steps_per_second"
	LossMetric     = "loss"
	EpochMetric    = "epoch"
	RateMetric     = "learning_rate"
	TokensMetric   = "tokens_per_second"
	GradNormMetric = "grad_norm"
	CPUMetric      = "cpu_cores"
	MemoryMetric   = "memory_bytes"

	AcceleratorUtilizationMetric = "accelerator_utilization" // 0 to 1
	AcceleratorMemoryMetric      = "accelerator_memory_bytes"
	AcceleratorTemperatureMetric = "accelerator_temperature"
	AcceleratorPowerMetric       = "accelerator_power_watts"

	FreeMetric  = "free"
	PriceMetric = "price"

	JobsMetric  = "jobs"
	SlotsMetric = "slots"
)

// Metrics are those of the sources that have a list of them.
var Metrics = map[SourceKind][]string{
	TrainingSource: {StepMetric, StepRateMetric, LossMetric, EpochMetric, RateMetric, TokensMetric, GradNormMetric, CPUMetric, MemoryMetric,
		AcceleratorUtilizationMetric, AcceleratorMemoryMetric, AcceleratorTemperatureMetric, AcceleratorPowerMetric},
	CapacitySource: {FreeMetric, PriceMetric},
	QueueSource:    {JobsMetric, SlotsMetric},
}

// Rates are the metrics of the source training that more slots raise.
var Rates = map[string]bool{StepRateMetric: true, TokensMetric: true}
