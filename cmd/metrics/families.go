package metrics

import "github.com/prometheus/client_golang/prometheus"

// family is a metric with its labels.
type family struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	name string
}

// families are all that this package defines. docs/metrics.md lists them.
var families []*family

func define(kind prometheus.ValueType, name, help string, labels ...string) *family {
	name = "eltrain_" + name
	f := &family{prometheus.NewDesc(name, help, labels, nil), kind, name}
	families = append(families, f)
	return f
}

func gauge(name, help string, labels ...string) *family {
	return define(prometheus.GaugeValue, name, help, labels...)
}

func counter(name, help string, labels ...string) *family {
	return define(prometheus.CounterValue, name, help, labels...)
}

// The master.
var (
	buildInfo = gauge("build_info", "1, with the version of the master.", "version")
	condition = gauge("condition", "1 for each condition that holds, by what it is about and its code.", "about", "code")
)

// Jobs.
var (
	jobPhase       = gauge("job_phase", "1 for the phase that the job is in, 0 for each other one.", "job_name", "phase")
	jobHealthy     = gauge("job_healthy", "1 if the job runs as configured, has succeeded or is suspended; else 0.", "job_name")
	jobGeneration  = gauge("job_generation", "Generation of the newest world.", "job_name")
	jobWorld       = gauge("job_world_size", "Processes that train together; 0 while none do.", "job_name")
	jobStep        = gauge("job_step", "Newest training step. Missing if unknown.", "job_name")
	jobSpeed       = gauge("job_steps_per_second", "Recent training steps per second. Missing if the step is unknown.", "job_name")
	jobLoss        = gauge("job_loss", "Loss of the newest step; it may be NaN or infinite. Missing if unknown.", "job_name")
	jobCheckpoint  = gauge("job_checkpoint_step", "Step of the newest checkpoint. Missing if unknown.", "job_name")
	jobSaved       = gauge("job_checkpoint_timestamp_seconds", "When the newest checkpoint was reported, or written, by the times of its files. Missing if it is older than the master and in no directory.", "job_name")
	jobTime        = gauge("job_time_seconds", "Wall time of the job until now by what it was spent on, without gap or overlap. Time in worlds that show no steps is unknown.", "job_name", "spent")
	jobIncidents   = counter("job_incidents_total", "Incidents since the master started, by cause and by what was done.", "job_name", "cause", "action")
	jobBudget      = gauge("job_restart_budget", "Restarts that the budget allows in its window.", "job_name")
	jobSpent       = gauge("job_restart_budget_spent", "Restarts in that window that were charged.", "job_name")
	jobReason      = gauge("job_reason", "1 for each reason why the job is not as configured, by role (empty: of the whole job) and code.", "job_name", "role", "code")
	jobQueue       = gauge("job_queue_position", "Place of a pending job among those of its provider, from 1. Missing for other jobs.", "job_name")
	roleDesired    = gauge("role_slots_desired", "Slots that the role should have now.", "job_name", "role")
	roleRunning    = gauge("role_slots_running", "Slots of the role that run.", "job_name", "role")
	roleMin        = gauge("role_slots_min", "Fewest slots of the role.", "job_name", "role")
	roleMax        = gauge("role_slots_max", "Most slots of the role.", "job_name", "role")
	nodeUsable     = gauge("node_usable", "1 if new slots may be placed on the node, else 0.", "provider", "node")
	nodeCPU        = gauge("node_cpu_cores", "Processors of the node: its capacity, what is free of it, and what others use.", "provider", "node", "kind")
	nodeMemory     = gauge("node_memory_bytes", "Memory of the node, likewise.", "provider", "node", "kind")
	nodeDevices    = gauge("node_devices", "Devices of the node, likewise.", "provider", "node", "device", "kind")
	nodeUnobserved = gauge("provider_unobserved", "1 if the nodes of the provider cannot be observed, else 0.", "provider")
)

// Training processes and their slots, with metrics_by_slot. state is a letter of /proc/PID/stat.
var (
	rankLabels = []string{"job_name", "role", "slot", "local_rank"}
	slotLabels = []string{"job_name", "role", "slot"}

	rankRank      = gauge("process_rank", "RANK of the process. Missing outside of a world.", rankLabels...)
	rankState     = gauge("process_state", "1 for the state of the main thread of the process, 0 for each other one.", append(rankLabels[:4:4], "state")...)
	rankCPU       = counter("process_cpu_seconds_total", "Processor time of the process and all that it started.", rankLabels...)
	rankRSS       = gauge("process_resident_memory_bytes", "Resident memory, in which shared pages count for each process.", rankLabels...)
	rankPSS       = gauge("process_proportional_memory_bytes", "Resident memory, in which shared pages count in parts.", rankLabels...)
	rankPeak      = gauge("process_peak_resident_memory_bytes", "The most resident memory so far.", rankLabels...)
	rankProcesses = gauge("process_tree_size", "Processes: the process and all that it started.", rankLabels...)
	rankThreads   = gauge("process_threads", "Threads.", rankLabels...)
	rankFiles     = gauge("process_open_files", "Open files.", rankLabels...)
	rankRead      = counter("process_read_bytes_total", "Bytes read by system calls.", rankLabels...)
	rankWritten   = counter("process_written_bytes_total", "Bytes written by system calls.", rankLabels...)
	rankFrom      = counter("process_storage_read_bytes_total", "Bytes read that storage had to serve.", rankLabels...)
	rankTo        = counter("process_storage_written_bytes_total", "Bytes written that go to storage.", rankLabels...)

	slotStep        = gauge("slot_step", "Newest training step that the slot's agent reported. Missing if unknown.", slotLabels...)
	slotSilent      = gauge("slot_silent", "1 if the slot's agent missed a beat, else 0.", slotLabels...)
	slotLimit       = gauge("slot_memory_limit_bytes", "Limit of the slot's cgroup. Missing without one.", slotLabels...)
	slotUsed        = gauge("slot_memory_used_bytes", "Memory that counts towards that limit.", slotLabels...)
	slotStalled     = counter("slot_stalled_seconds_total", "Time in which some threads of the slot's cgroup waited for a resource (PSI): memory, cpu or io.", append(slotLabels[:3:3], "resource")...)
	slotRetransmits = counter("slot_tcp_retransmitted_segments_total", "TCP segments sent again in the slot's network namespace: its pod's, or else its machine's.", slotLabels...)
	slotRDMA        = counter("slot_rdma_events_total", "Events that RDMA devices of the slot's machine counted, by kind.", append(slotLabels[:3:3], "event")...)
	slotRDMABytes   = counter("slot_rdma_bytes_total", "Bytes that those devices moved, by direction.", append(slotLabels[:3:3], "direction")...)
)

// Accelerators of slots, with metrics_by_slot. device is a number below job.MaxDevice.
var (
	deviceLabels = append(slotLabels[:3:3], "device")

	deviceUtilization = gauge("accelerator_utilization_ratio", "Recent part of the time in which the accelerator worked, 0 to 1.", deviceLabels...)
	deviceUsed        = gauge("accelerator_memory_used_bytes", "Memory of the accelerator that is in use.", deviceLabels...)
	deviceMemory      = gauge("accelerator_memory_bytes", "Memory of the accelerator.", deviceLabels...)
	deviceTemperature = gauge("accelerator_temperature_celsius", "Temperature of the accelerator.", deviceLabels...)
	deviceClock       = gauge("accelerator_clock_hertz", "Clock rate, of its processors and of its memory.", append(deviceLabels[:4:4], "clock")...)
	devicePower       = gauge("accelerator_power_watts", "Power that it draws.", deviceLabels...)
	deviceErrors      = counter("accelerator_ecc_errors_total", "Errors of its memory since its driver was loaded, corrected or uncorrected.", append(deviceLabels[:4:4], "kind")...)
	deviceXID         = gauge("accelerator_xid", "Number of its newest NVIDIA XID error; 0 if there was none.", deviceLabels...)
)
