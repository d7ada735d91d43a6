package view

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/detect"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// StatusFormat is the version of the status JSON. A new minor version only adds fields.
const StatusFormat = "1.10"

// WatchOperation is the prefix of the lock's operation (state.LockInfo.Operation) while its holder keeps healing.
const WatchOperation = "apply -watch"

// Facts is what a status is made from.
type Facts struct {
	Records job.Records `json:"records"`
	// Snapshot has what providers and the service see now. A zero At means that nothing could be observed: then the
	// status shows the records as they are.
	Snapshot job.Snapshot `json:"snapshot"`
	Waits    []plan.Wait  `json:"waits,omitempty"` // of the newest plan
	// Scaling is what policies decided about elastic roles.
	Scaling []plan.RoleScaling `json:"scaling,omitempty"`
	// Conditions are what holds and somebody should know.
	Conditions []conditions.Condition `json:"conditions,omitempty"`
	// Released are the jobs that were removed from the state, by UID; Capabilities are the providers', by name.
	Released     map[string]job.Released     `json:"released,omitempty"`
	Capabilities map[string]job.Capabilities `json:"capabilities,omitempty"`
	// Spent is what was used of the directory's budget when the facts were taken.
	Spent job.Spent `json:"spent,omitzero"`
	// Holder holds the state's lock; nil if it is free.
	Holder *state.LockInfo `json:"-"`
}

// StatusModel is all that `eltrain status` shows; its JSON is the interface for machines.
type StatusModel struct {
	FormatVersion string       `json:"format_version"`
	Master        MasterStatus `json:"master"`
	Jobs          []JobStatus  `json:"jobs"`
	// Unrecorded is what runs without a record: the state was lost, or the job was removed from it.
	Unrecorded []UnrecordedStatus `json:"unrecorded"`
	// Conditions are the current conditions, sorted by their subject.
	Conditions []ConditionStatus `json:"conditions"`
	// Budget is what is used of the directory's budget; nil without one.
	Budget *HoursStatus `json:"budget,omitempty"`
}

// ConditionStatus is a condition.
type ConditionStatus struct {
	About      string     `json:"about"` // job.NAME, job.NAME.ROLE, provider.NAME, files, store, journal, webhook
	Code       job.Code   `json:"code"`
	Message    string     `json:"message"`
	ReasonCode job.Reason `json:"reason_code"` // the message in a code; see docs/reasons.md
	Since      time.Time  `json:"since"`
}

// MasterStatus says who manages the jobs. Without a master, training continues and nothing is healed.
type MasterStatus struct {
	Watching  bool       `json:"watching"`
	Operation string     `json:"operation,omitempty"` // of the lock's holder, also when it does not watch
	Who       string     `json:"who,omitempty"`       // user@host
	PID       int        `json:"pid,omitempty"`
	Since     *time.Time `json:"since,omitempty"`
}

// JobStatus is one job.
type JobStatus struct {
	Address        string       `json:"address"` // job.NAME
	UID            string       `json:"uid"`
	Provider       string       `json:"provider"`
	Phase          job.JobPhase `json:"phase"`
	Healthy        bool         `json:"healthy"`    // it runs as configured, or succeeded
	Generation     int          `json:"generation"` // 0 before the first world
	WorldSize      int          `json:"world_size"` // processes that train together; 0 while none do
	Step           int64        `json:"step"`
	CheckpointStep int64        `json:"checkpoint_step,omitempty"` // of the newest checkpoint in its output, or else in its directory
	Loss           *float64     `json:"loss,omitempty"`            // nil if unknown or not finite; 0 is a valid loss
	LossNotFinite  string       `json:"loss_not_finite,omitempty"` // "NaN", "Infinity" or "-Infinity", for which JSON has no number
	StepsPerSecond float64      `json:"steps_per_second"`
	Progress       *JobProgress `json:"progress,omitempty"` // nil if nothing was recognized
	Reasons        []string     `json:"reasons"`            // why it is not as configured
	ReasonCodes    []job.Reason `json:"reason_codes"`       // the same in codes; see docs/reasons.md
	Roles          []RoleStatus `json:"roles"`
	// Checkpoint is the newest whole one in the checkpoint directory, TornCheckpoints some that are not whole, the newest first.
	Checkpoint      *CheckpointStatus `json:"checkpoint,omitempty"`
	TornCheckpoints []TornStatus      `json:"torn_checkpoints,omitempty"`
	Slots           []SlotStatus      `json:"slots"`
	Incidents       []IncidentStatus  `json:"incidents"` // oldest first
	Budget          BudgetStatus      `json:"budget"`
	Goodput         GoodputStatus     `json:"goodput"`

	loss  *job.Loss // as reported
	never bool      // waiting does not help: the declaration has to change; see plan.Wait
}

// JobProgress is how far the training is in all, as the process that is furthest says. What is not known is left out.
type JobProgress struct {
	By              string   `json:"by"` // what its output was recognized as
	Total           int64    `json:"total,omitempty"`
	Percent         *float64 `json:"percent,omitempty"`      // of Total
	SecondsLeft     *float64 `json:"seconds_left,omitempty"` // at the recent rate
	Epoch           *float64 `json:"epoch,omitempty"`
	LearningRate    *float64 `json:"learning_rate,omitempty"`
	TokensPerSecond *float64 `json:"tokens_per_second,omitempty"`
	// Counted is the steps since the processes started, if their output does not say which step it is.
	Counted int64 `json:"counted,omitempty"`

	step int64 // of that process
}

// RoleStatus counts the slots of one role.
type RoleStatus struct {
	Name    string `json:"name"`
	Desired int    `json:"desired"` // as the plan last decided
	Running int    `json:"running"`
	Min     int    `json:"min"`
	Max     int    `json:"max"`
	// Scaling is what its policies decided; nil without policies.
	Scaling *ScalingStatus `json:"scaling,omitempty"`
	// Follows is the role that its count follows, as "role.worker"; "" if none.
	Follows string `json:"follows,omitempty"`
}

// SlotStatus is one slot with its newest incarnation.
type SlotStatus struct {
	Address     string    `json:"address"`
	Incarnation int       `json:"incarnation"`
	Phase       job.Phase `json:"phase"`
	Rank        int       `json:"rank"` // -1 outside a world
	Node        string    `json:"node"`
	Name        string    `json:"name,omitempty"` // its name on the infrastructure: a pod's name
	PID         int       `json:"pid,omitempty"`  // of its first training process
	PIDs        []int     `json:"pids,omitempty"` // of all, when it has several
	AgentPID    int       `json:"agent_pid,omitempty"`
	Step        int64     `json:"step"`
	Restarts    int       `json:"restarts"`
	Cause       job.Cause `json:"cause,omitempty"` // of its last fault
	Exit        *job.Exit `json:"exit,omitempty"`  // how its last processes ended
	Memory      int64     `json:"memory_bytes,omitempty"`
	// Ranks are its processes, by local rank.
	Ranks []job.RankStatus `json:"ranks,omitempty"`

	slot    job.Address
	earlier *job.SlotFault // its last fault, if its last processes ended by another slot's
}

// IncidentStatus is one incident.
type IncidentStatus struct {
	Time     time.Time  `json:"time"`
	Cause    job.Cause  `json:"cause"`
	Culprits []string   `json:"culprits"`
	Action   job.Action `json:"action"`
	Evidence []string   `json:"evidence"`

	EvidenceCodes []job.Reason `json:"evidence_codes"` // the same in codes; see docs/reasons.md
	// Cascade are slots whose processes ended because of it, as worker[0-3,7].
	Cascade []string `json:"cascade,omitempty"`

	slots    []job.Address // Culprits
	cascaded int           // slots in Cascade
}

// GoodputStatus is where the wall time went, in seconds.
type GoodputStatus struct {
	Wall float64 `json:"wall_seconds"`
	// Productive is 0 if no step was ever shown: see Unknown.
	Productive float64      `json:"productive_seconds"`
	Unknown    float64      `json:"unknown_seconds"` // in worlds that have not shown whether they make progress
	Lost       job.LostTime `json:"lost"`
}

func goodputStatus(g *job.Goodput) GoodputStatus {
	return GoodputStatus{g.Wall, g.Productive, g.Unknown, g.Lost}
}

// Status builds the model of all jobs, by name.
func Status(f Facts, r *Redactor) StatusModel {
	m := StatusModel{FormatVersion: StatusFormat, Master: masterStatus(f.Holder), Jobs: []JobStatus{}, Unrecorded: []UnrecordedStatus{}, Conditions: []ConditionStatus{}, Budget: hoursStatus(f.Spent)}
	for _, c := range f.Conditions {
		m.Conditions = append(m.Conditions, ConditionStatus{r.Text(c.About), c.Reason.Code, r.Text(Sentence(c.Reason)), c.Reason.Map(r.Text), c.Since})
	}
	for _, u := range f.Unrecorded() {
		m.Unrecorded = append(m.Unrecorded, unrecordedStatus(&u))
	}
	seen := map[job.Address]*job.Incarnation{}
	for in := range f.Snapshot.Incarnations.All() {
		record := f.Records[in.Slot.Job]
		if record == nil || record.UID != in.UID { // without a record, or of another job of the same name
			continue
		}
		if old := seen[in.Slot]; old == nil || in.Number > old.Number {
			seen[in.Slot] = in
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Records)) {
		m.Jobs = append(m.Jobs, jobStatus(name, f, seen, r))
	}
	return m
}

// Select keeps the jobs that selectors name, and of their roles and slots only those named.
func (m StatusModel) Select(selectors ...job.Selector) StatusModel {
	named := func(fits func(job.Selector) bool) bool { return slices.ContainsFunc(selectors, fits) }
	slot := func(a job.Address) bool { return named(func(s job.Selector) bool { return s.Matches(a) }) }
	jobs := []JobStatus{}
	for _, j := range m.Jobs {
		if !named(func(s job.Selector) bool { return j.Address == "job."+s.Job }) {
			continue
		}
		j.Slots = slices.DeleteFunc(slices.Clone(j.Slots), func(s SlotStatus) bool { return !slot(s.slot) })
		j.Roles = slices.DeleteFunc(slices.Clone(j.Roles), func(r RoleStatus) bool {
			return !named(func(s job.Selector) bool { return j.Address == "job."+s.Job && (s.Role == "" || s.Role == r.Name) })
		})
		jobs = append(jobs, j)
	}
	m.Jobs = jobs
	unrecorded := []UnrecordedStatus{}
	for _, u := range m.Unrecorded {
		if u.Slots = slices.DeleteFunc(slices.Clone(u.Slots), func(s UnrecordedSlot) bool { return !slot(s.slot) }); len(u.Slots) > 0 {
			unrecorded = append(unrecorded, u)
		}
	}
	m.Unrecorded = unrecorded
	m.Budget = nil // it is of all jobs
	m.Conditions = slices.DeleteFunc(slices.Clone(m.Conditions), func(c ConditionStatus) bool {
		return !named(func(s job.Selector) bool { return c.of("job." + s.Job) })
	})
	return m
}

// Same reports whether nothing has changed but what time and measuring alone change: goodput, memory, ages, the use of a budget.
func (m StatusModel) Same(other StatusModel) bool {
	steady := func(m StatusModel) StatusModel {
		m.Jobs = slices.Clone(m.Jobs)
		if m.Budget != nil {
			b := *m.Budget
			b.Used = 0
			m.Budget = &b
		}
		for i := range m.Jobs {
			j := &m.Jobs[i]
			j.Goodput, j.Slots = GoodputStatus{}, slices.Clone(j.Slots)
			if j.Checkpoint != nil {
				c := *j.Checkpoint
				c.AgeSeconds = nil
				j.Checkpoint = &c
			}
			for k := range j.Slots {
				j.Slots[k].Memory, j.Slots[k].Ranks = 0, nil // steps are compared
			}
		}
		return m
	}
	return reflect.DeepEqual(steady(m), steady(other))
}

// ReportedLoss returns the loss as it was reported, which may be NaN or infinite; nil if it is unknown.
func (j *JobStatus) ReportedLoss() *job.Loss { return j.loss }

// of reports whether the condition is about a job, or one of its roles.
func (c *ConditionStatus) of(address string) bool {
	return c.About == address || strings.HasPrefix(c.About, address+".")
}

// Failed reports whether any job has failed or can never run as configured.
func (m StatusModel) Failed() bool {
	return slices.ContainsFunc(m.Jobs, func(j JobStatus) bool { return j.Phase == job.JobFailed || j.never })
}

func masterStatus(h *state.LockInfo) MasterStatus {
	if h == nil {
		return MasterStatus{}
	}
	return MasterStatus{
		Watching:  Watching(h),
		Operation: h.Operation, Who: h.Who, PID: h.PID, Since: &h.Created,
	}
}

// Watching reports whether a lock's holder keeps healing and does not end by itself.
func Watching(h *state.LockInfo) bool { return strings.HasPrefix(h.Operation, WatchOperation) }

func jobStatus(name string, f Facts, seen map[job.Address]*job.Incarnation, r *Redactor) JobStatus {
	record := f.Records[name]
	j := JobStatus{
		Address: "job." + name, UID: record.UID, Provider: record.Spec.Provider, Phase: record.Phase,
		Reasons: []string{}, ReasonCodes: []job.Reason{}, Roles: []RoleStatus{}, Slots: []SlotStatus{}, Incidents: []IncidentStatus{},
		Budget: budgetStatus(record, f.Snapshot.At), Goodput: goodputStatus(&record.Goodput),
	}
	ranks := j.world(newestWorld(name, f))
	faults := lastFaults(record)
	running := map[string]int{}
	saved := record.Goodput.Saved
	var directory Directory
	var gone []job.Address
	for i := range record.Slots {
		s := &record.Slots[i]
		in := seen[s.Address]
		if in != nil && in.Number < s.Incarnation { // the newest is not observed yet
			in = nil
		}
		status := slotStatus(s, in, ranks, r)
		status.fault(faults[s.Address])
		if f.Holder == nil && !record.AtOtherSite(f.Capabilities[record.Spec.Provider]) && vanished(s, in, f.Snapshot) {
			gone = append(gone, s.Address)
			status.Phase, status.Rank, status.PID, status.PIDs = job.Lost, -1, 0, nil
		} else if idle(s, in) {
			status.Phase, status.Rank = job.Registered, -1
			if j.Phase == job.JobRunning {
				j.Phase = job.JobDegraded
			}
		} else if s.Phase == job.Running {
			running[s.Address.Role]++
		}
		if in != nil && in.Member != nil {
			j.progress(in.Member)
			saved = saved.Newest(in.Member.Saved)
			rank, ranked := ranks[s.Address]
			directory.Add(in.Member, ranked && rank == 0)
		}
		j.Slots = append(j.Slots, status)
	}
	j.checkpoints(&record.Spec, &directory, saved, f.Snapshot.At, r)
	for i := range record.Spec.Roles {
		role := &record.Spec.Roles[i]
		least, most := role.Bounds()
		desired, decided := record.Counts[role.Name]
		if !decided {
			desired = role.Replicas
		}
		status := RoleStatus{Name: role.Name, Desired: desired, Running: running[role.Name], Min: least, Max: most}
		if role.Follows != nil {
			status.Follows = "role." + role.Follows.Role
		}
		if k := slices.IndexFunc(f.Scaling, func(s plan.RoleScaling) bool { return s.Job == name && s.Role == role.Name }); k >= 0 {
			status.Scaling = scalingStatus(&f.Scaling[k], r)
		}
		j.Roles = append(j.Roles, status)
	}
	for _, in := range record.Incidents {
		j.Incidents = append(j.Incidents, incidentStatus(in, r))
	}
	if len(gone) > 0 && !record.Phase.Ended() {
		j.because("", goneReason(gone), r)
	}
	if j.Phase == job.JobRunning && (len(gone) > 0 || toldToStop(record)) {
		j.Phase = job.JobDegraded
	}
	j.reasons(name, record, f, r)
	j.Healthy = j.Phase == job.JobRunning || j.Phase == job.JobSucceeded || j.Phase == job.JobSuspended
	return j
}

// toldToStop reports whether all slots of a job were told to stop: a destroy was interrupted, or has yet to end.
func toldToStop(record *job.Record) bool {
	return len(record.Slots) > 0 && !slices.ContainsFunc(record.Slots, func(s job.Slot) bool {
		return s.Phase != job.Canceling && s.Phase != job.Canceled
	})
}

// newestWorld returns a job's world as the service reports it, or else the last recorded one.
func newestWorld(name string, f Facts) job.World {
	recorded := f.Records[name].World
	if now, ok := f.Snapshot.Worlds[name]; ok && now.Generation >= recorded.Generation {
		return now
	}
	return recorded
}

// world enters a world and returns its slots' ranks.
func (j *JobStatus) world(w job.World) map[job.Address]int {
	j.Generation = w.Generation
	ranks := make(map[job.Address]int, len(w.Members))
	for _, member := range w.Members {
		ranks[member.Slot] = member.Rank
		if !w.Broken {
			j.WorldSize += member.Processes
		}
	}
	return ranks
}

// progress enters a member's progress. The furthest one counts; often only one reports the loss.
func (j *JobStatus) progress(m *job.Member) {
	if m.Step > j.Step || m.Step == j.Step && m.Loss != nil {
		j.Step, j.loss = m.Step, m.Loss
		j.Loss, j.LossNotFinite = m.Loss.Finite()
	}
	j.StepsPerSecond = max(j.StepsPerSecond, m.StepRate)
	for _, r := range m.Ranks {
		if r.Progress != nil {
			j.furthest(r.Progress)
		}
	}
}

// furthest enters what a process says of the whole training, if none that is further does.
func (j *JobStatus) furthest(p *job.RankProgress) {
	var step int64
	if p.Step != nil {
		step = *p.Step
	}
	if j.Progress != nil && step <= j.Progress.step {
		return
	}
	now := JobProgress{By: p.By, Epoch: p.Epoch, LearningRate: p.LearningRate, TokensPerSecond: p.TokensPerSecond, step: step}
	switch {
	case p.Counted:
		now.Counted = step
	case p.Total != nil && *p.Total > 0 && step <= *p.Total:
		now.Total = *p.Total
		percent := 100 * float64(step) / float64(*p.Total)
		now.Percent = &percent
		if p.StepRate > 0 {
			left := float64(*p.Total-step) / p.StepRate
			now.SecondsLeft = &left
		}
	}
	j.Progress = &now
}

// vanished reports whether a slot that should run was observed not to run: the record may be older than the observation. It is
// false without an observation.
func vanished(s *job.Slot, in *job.Incarnation, snapshot job.Snapshot) bool {
	if snapshot.At.IsZero() {
		return false
	}
	switch s.Phase {
	case job.Registered, job.Running, job.Suspect:
		return in == nil || in.State == job.Gone
	}
	return false
}

// idle reports whether a slot that should run has an agent without processes, which no master has heard from since.
func idle(s *job.Slot, in *job.Incarnation) bool {
	return s.Phase == job.Running && in != nil && in.State == job.Up && in.Idle && in.Member == nil
}

func goneReason(slots []job.Address) job.Reason {
	byRole := map[string][]int{}
	for _, a := range slots {
		byRole[a.Role] = append(byRole[a.Role], a.Index)
	}
	var names []string
	for _, role := range slices.Sorted(maps.Keys(byRole)) {
		names = append(names, fold(role, byRole[role]))
	}
	several := ""
	if len(slots) > 1 {
		several = "true"
	}
	return job.Because(slotsGone, "slots", strings.Join(names, " and "), "several", several)
}

func slotStatus(s *job.Slot, in *job.Incarnation, ranks map[job.Address]int, r *Redactor) SlotStatus {
	out := SlotStatus{
		Address: s.Address.String(), slot: s.Address, Incarnation: s.Incarnation, Phase: s.Phase,
		Rank: -1, Node: s.Node, Restarts: s.Restarts, Cause: s.Cause, Exit: redactExit(s.Exit, r),
	}
	if rank, ok := ranks[s.Address]; ok && s.Phase == job.Running {
		out.Rank = rank
	}
	if in == nil {
		return out
	}
	out.Name = in.Name
	if in.State != job.Gone {
		out.AgentPID = in.AgentPID
	}
	m := in.Member
	if m == nil {
		return out
	}
	out.Step, out.Memory, out.Ranks = m.Step, int64(m.Memory), m.Ranks
	if len(m.PIDs) > 0 {
		out.PID = m.PIDs[0]
	}
	if len(m.PIDs) > 1 {
		out.PIDs = m.PIDs
	}
	return out
}

// lastFaults returns the last fault that each slot is a culprit of, of those that a job remembers.
func lastFaults(record *job.Record) map[job.Address]*job.SlotFault {
	faults := map[job.Address]*job.SlotFault{}
	for i := range record.Incidents {
		in := &record.Incidents[i]
		for k := range in.Faults {
			if in.Action != job.Report {
				faults[in.Faults[k].Slot] = &in.Faults[k]
			}
		}
	}
	return faults
}

// fault enters a slot's last fault if its record has none: its processes have ended since because of another slot's.
func (s *SlotStatus) fault(last *job.SlotFault) {
	if s.Cause == "" && last != nil {
		s.Cause, s.earlier = last.Cause, last
	}
}

// redactExit returns an exit with redacted texts: the training program's output, and why it could not be started, which quotes
// its command.
func redactExit(exit *job.Exit, r *Redactor) *job.Exit {
	if exit == nil {
		return nil
	}
	out := *exit
	out.NotStarted, out.Message, out.Tail = r.Text(out.NotStarted), r.Text(out.Message), nil
	for _, line := range exit.Tail {
		out.Tail = append(out.Tail, r.Text(line))
	}
	return &out
}

// because adds a reason why a role, or the job if role is "", is not as configured.
func (j *JobStatus) because(role string, why job.Reason, r *Redactor) {
	text := Sentence(why)
	if role != "" && !strings.HasPrefix(text, role+"[") {
		text = role + ": " + text
	}
	j.Reasons = append(j.Reasons, r.Text(text))
	j.ReasonCodes = append(j.ReasonCodes, ofRole(role, why).Map(r.Text))
}

// ofRole adds the role to a reason's arguments.
func ofRole(role string, why job.Reason) job.Reason {
	if role == "" || why.Args["role"] != "" {
		return why
	}
	args := map[string]string{"role": role}
	maps.Copy(args, why.Args)
	why.Args = args
	return why
}

// reasons adds why a job is not as configured: what its newest plan waits for, and why it failed.
func (j *JobStatus) reasons(name string, record *job.Record, f Facts, r *Redactor) {
	before := len(j.Reasons)
	for _, w := range f.Waits {
		if w.Job != name {
			continue
		}
		j.never = j.never || w.Never
		for _, why := range w.Reasons {
			j.because(w.Role, why, r)
		}
	}
	if !record.Awaits.IsZero() && !record.Phase.Ended() {
		j.because("", record.Awaits, r)
	}
	for _, suspicion := range f.Snapshot.Suspicions[name] {
		if suspicion.Cause == job.Hang && suspicion.Generation == j.Generation && j.WorldSize > 0 {
			j.because("", suspicionReason(&suspicion), r)
		}
	}
	if record.Phase == job.JobFailed {
		if why := failure(record); !why.IsZero() {
			j.because("", why, r)
		}
	}
	if record.Phase.Ended() {
		if why := verdict(record); !why.IsZero() {
			j.because("", why, r)
		}
	}
	if record.Phase == job.JobFailed {
		j.because("", restartAdvice(f.Holder), r)
	}
	if len(j.Reasons) > before || record.Phase.Ended() {
		return
	}
	for _, role := range j.Roles {
		if role.Running < role.Desired {
			j.because("", job.Because(slotsMissing, "role", role.Name, "running", itoa(role.Running), "desired", itoa(role.Desired)), r)
		}
	}
}

func suspicionReason(s *job.Suspicion) job.Reason {
	due := ""
	if !s.Certain && !s.Due.IsZero() {
		due = s.Due.Format(time.RFC3339)
	}
	evidence := slices.DeleteFunc(slices.Clone(s.Evidence), func(r job.Reason) bool { // the incident has it
		return r.Code == detect.RankIn || r.Code == detect.RankStack || r.Code == detect.RankCollective || r.Code == detect.RankOutput
	})
	return job.Because(suspectedHang, "slots", strings.Join(shortCulprits(s.Slots), ", "), "due", due).With(evidence...)
}

func incidentStatus(in job.Incident, r *Redactor) IncidentStatus {
	out := IncidentStatus{Time: in.Time, Cause: in.Cause, Action: in.Action, Culprits: []string{}, slots: in.Culprits,
		Evidence: r.Sentences(in.Evidence), EvidenceCodes: r.Reasons(in.Evidence), Cascade: in.Cascade, cascaded: in.Cascaded()}
	for _, c := range in.Culprits {
		out.Culprits = append(out.Culprits, c.String())
	}
	return out
}

// shortCulprits returns slots without their job's name, folded by role.
func shortCulprits(slots []job.Address) []string {
	byRole := map[string][]int{}
	for _, a := range slots {
		byRole[a.Role] = append(byRole[a.Role], a.Index)
	}
	var out []string
	for _, role := range slices.Sorted(maps.Keys(byRole)) {
		out = append(out, fold(role, byRole[role]))
	}
	return out
}
