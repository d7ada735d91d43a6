package metrics

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
)

// Source is what a leading master knows.
type Source interface {
	Live() apply.Live
	Nodes() apply.Nodes
	Usage(apply.UsageAsked) map[string]elastic.Usage
}

// collector collects everything on demand, from one look at the source.
type collector struct{ e *Exporter }

func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, f := range families {
		out <- f.desc
	}
	elastic.DescribeService(out)
}

func (c collector) Collect(out chan<- prometheus.Metric) {
	s := sink{out}
	s.set(buildInfo, 1, c.e.options.Version)
	source := c.e.leading()
	if source == nil {
		return
	}
	live := source.Live()
	facts := view.Facts{Records: live.Records, Snapshot: live.Snapshot, Waits: live.Waits, Conditions: live.Conditions, Released: live.Released, Holder: live.Holder}
	status := view.Status(facts, c.e.options.Redactor)
	for i := range status.Conditions {
		s.set(condition, 1, status.Conditions[i].About, string(status.Conditions[i].Code))
	}
	usage := source.Usage(apply.UsageAsked{})
	for i := range status.Jobs {
		j := &status.Jobs[i]
		name := j.Address[len("job."):]
		s.job(name, j, live.Records[name])
		if u, known := usage[name]; known {
			u.Service.Collect(name, out)
			if !u.Saved.IsZero() {
				s.set(jobSaved, float64(u.Saved.UnixMilli())/1e3, name)
			}
			if c.e.options.BySlot {
				s.ranks(name, u.Ranks)
			}
		}
	}
	s.queues(live.Records)
	c.e.incidents.collect(s, live.Records)
	s.nodes(source.Nodes())
}

// sink sends metrics.
type sink struct{ out chan<- prometheus.Metric }

func (s sink) set(f *family, v float64, labels ...string) {
	s.out <- prometheus.MustNewConstMetric(f.desc, f.kind, v, labels...)
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

var phases = []job.JobPhase{
	job.JobPending, job.JobStarting, job.JobRunning, job.JobDegraded, job.JobSuspended, job.JobSucceeded, job.JobFailed, job.JobCanceled,
}

func (s sink) job(name string, j *view.JobStatus, record *job.Record) {
	for _, phase := range phases {
		s.set(jobPhase, truth(j.Phase == phase), name, string(phase))
	}
	s.set(jobHealthy, truth(j.Healthy), name)
	s.set(jobGeneration, float64(j.Generation), name)
	s.set(jobWorld, float64(j.WorldSize), name)
	if j.Step > 0 {
		s.set(jobStep, float64(j.Step), name)
		s.set(jobSpeed, j.StepsPerSecond, name)
	}
	if loss := j.ReportedLoss(); loss != nil {
		s.set(jobLoss, float64(*loss), name)
	}
	if j.CheckpointStep > 0 {
		s.set(jobCheckpoint, float64(j.CheckpointStep), name)
	}
	spent := j.Goodput.Lost.Parts()
	spent["productive"], spent["unknown"] = j.Goodput.Productive, j.Goodput.Unknown
	for on, seconds := range spent {
		s.set(jobTime, seconds, name, on)
	}
	s.set(jobBudget, float64(j.Budget.Restarts), name)
	s.set(jobSpent, float64(j.Budget.Spent), name)
	type why struct{ role, code string }
	told := map[why]bool{}
	for _, r := range j.ReasonCodes {
		w := why{role: r.Args["role"], code: string(r.Code)}
		if record.Spec.Role(w.role) == nil {
			w.role = ""
		}
		if !told[w] {
			told[w] = true
			s.set(jobReason, 1, name, w.role, w.code)
		}
	}
	for _, r := range j.Roles {
		s.set(roleDesired, float64(r.Desired), name, r.Name)
		s.set(roleRunning, float64(r.Running), name, r.Name)
		s.set(roleMin, float64(r.Min), name, r.Name)
		s.set(roleMax, float64(r.Max), name, r.Name)
	}
}

// queues numbers the pending jobs of each provider in the order in which they are admitted: see docs/language.md on priority.
func (s sink) queues(records job.Records) {
	type pending struct {
		name string
		rec  *job.Record
	}
	queues := map[string][]pending{}
	for name, rec := range records {
		if rec.Phase == job.JobPending {
			queues[rec.Spec.Provider] = append(queues[rec.Spec.Provider], pending{name, rec})
		}
	}
	for _, queue := range queues {
		slices.SortFunc(queue, func(a, b pending) int {
			return cmp.Or(cmp.Compare(b.rec.Spec.Priority, a.rec.Spec.Priority), a.rec.Created.Compare(b.rec.Created), cmp.Compare(a.name, b.name))
		})
		for i, p := range queue {
			s.set(jobQueue, float64(i+1), p.name)
		}
	}
}

func (s sink) nodes(all apply.Nodes) {
	providers := map[string]bool{}
	for provider := range all.Unobserved {
		providers[provider] = true
	}
	for i := range all.Nodes {
		n := &all.Nodes[i]
		if !providers[n.Provider] {
			providers[n.Provider] = false
		}
		s.set(nodeUsable, truth(n.Usable), n.Provider, n.Name)
		for kind, amount := range map[string]job.Resources{"capacity": n.Capacity, "free": n.Free, "foreign": n.Foreign} {
			s.set(nodeCPU, amount.CPU.Cores(), n.Provider, n.Name, kind)
			s.set(nodeMemory, float64(amount.Memory), n.Provider, n.Name, kind)
			for device := range n.Capacity.Devices {
				s.set(nodeDevices, float64(amount.Devices[device]), n.Provider, n.Name, device, kind)
			}
		}
	}
	for provider, unobserved := range providers {
		s.set(nodeUnobserved, truth(unobserved), provider)
	}
}

// ranks sends the metrics of training processes, and those of their slots once.
func (s sink) ranks(jobName string, ranks []elastic.RankUsage) {
	for i := range ranks {
		r := &ranks[i]
		slot := []string{jobName, r.Slot.Role, strconv.Itoa(r.Slot.Index)}
		if r.Local == 0 {
			s.slot(slot, r)
		}
		labels := append(slot, strconv.Itoa(r.Local))
		if r.Rank >= 0 {
			s.set(rankRank, float64(r.Rank), labels...)
		}
		p := r.Process
		if p == nil {
			continue
		}
		for _, state := range job.ThreadStates {
			s.set(rankState, truth(p.State == state), append(labels[:4:4], string(state))...)
		}
		s.set(rankProcesses, float64(p.Processes), labels...)
		s.set(rankThreads, float64(p.Threads), labels...)
		known(s, rankCPU, p.CPUSeconds, labels...)
		known(s, rankRSS, p.RSS, labels...)
		known(s, rankPSS, p.PSS, labels...)
		known(s, rankPeak, p.PeakRSS, labels...)
		known(s, rankFiles, p.OpenFiles, labels...)
		known(s, rankRead, p.Read, labels...)
		known(s, rankWritten, p.Written, labels...)
		known(s, rankFrom, p.ReadFromStorage, labels...)
		known(s, rankTo, p.WrittenToStorage, labels...)
	}
}

func (s sink) slot(labels []string, r *elastic.RankUsage) {
	s.set(slotSilent, truth(r.Silent), labels...)
	if r.Step > 0 {
		s.set(slotStep, float64(r.Step), labels...)
	}
	f := r.Figures
	if f == nil {
		return
	}
	with := func(label string) []string { return append(labels[:3:3], label) }
	known(s, slotLimit, f.MemoryLimit, labels...)
	known(s, slotUsed, f.MemoryUsed, labels...)
	known(s, slotStalled, f.MemoryStalled, with("memory")...)
	known(s, slotStalled, f.CPUStalled, with("cpu")...)
	known(s, slotStalled, f.IOStalled, with("io")...)
	known(s, slotRetransmits, f.TCPRetransmits, labels...)
	for i := range f.Accelerators {
		s.accelerator(with(strconv.Itoa(f.Accelerators[i].Device)), &f.Accelerators[i])
	}
	if d := f.RDMA; d != nil {
		known(s, slotRDMABytes, d.Received, with("received")...)
		known(s, slotRDMABytes, d.Sent, with("sent")...)
		for event, n := range map[string]*int64{
			"receive_errors": d.ReceiveErrors, "send_discards": d.SendDiscards, "symbol_errors": d.SymbolErrors, "link_downed": d.LinkDowned, "out_of_sequence": d.OutOfSequence,
			"packet_sequence_errors": d.SequenceErrors, "ack_timeouts": d.AckTimeouts, "receiver_not_ready": d.ReceiverNotReady,
		} {
			known(s, slotRDMA, n, with(event)...)
		}
	}
}

func (s sink) accelerator(labels []string, a *job.AcceleratorFigures) {
	with := func(label string) []string { return append(labels[:4:4], label) }
	known(s, deviceUtilization, a.Utilization, labels...)
	known(s, deviceUsed, a.MemoryUsed, labels...)
	known(s, deviceMemory, a.MemoryTotal, labels...)
	known(s, deviceTemperature, a.Temperature, labels...)
	known(s, deviceClock, a.Clock, with("processors")...)
	known(s, deviceClock, a.MemoryClock, with("memory")...)
	known(s, devicePower, a.Power, labels...)
	known(s, deviceErrors, a.ECCCorrected, with("corrected")...)
	known(s, deviceErrors, a.ECCUncorrected, with("uncorrected")...)
	known(s, deviceXID, a.XID, labels...)
}

// known sends what is known.
func known[N int64 | float64](s sink, f *family, v *N, labels ...string) {
	if v != nil {
		s.set(f, float64(*v), labels...)
	}
}
