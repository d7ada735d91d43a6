package elastic

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/eltrain/eltrain/job"
)

// traffic counts the service's requests, of all clients.
type traffic struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

// requestBuckets range from a request answered at once to a sync held for a long beat.
var requestBuckets = []float64{.0005, .002, .01, .05, .25, 1, 5, 20}

func newTraffic(s *Server) *traffic {
	t := &traffic{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eltrain_service_requests_total",
			Help: "Requests answered, by route and HTTP status.",
		}, []string{"route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "eltrain_service_request_seconds",
			Help:    "Time from a request to its answer, by route. A sync is held open until there is news.",
			Buckets: requestBuckets,
		}, []string{"route"}),
	}
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "eltrain_service_open_requests",
		Help: "Requests of members held open now.",
	}, func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(len(s.polls))
	})
	t.registry.MustRegister(t.requests, t.seconds, open)
	return t
}

// routeTraffic is the metrics of one route, looked up once instead of per request.
type routeTraffic struct {
	ok      prometheus.Counter
	refused *prometheus.CounterVec
	seconds prometheus.Observer
}

func (t *traffic) of(route string) routeTraffic {
	return routeTraffic{
		ok:      t.requests.WithLabelValues(route, "200"),
		refused: t.requests.MustCurryWith(prometheus.Labels{"route": route}),
		seconds: t.seconds.WithLabelValues(route),
	}
}

func (t routeTraffic) done(status int, took time.Duration) {
	if status == http.StatusOK {
		t.ok.Inc()
	} else {
		t.refused.WithLabelValues(strconv.Itoa(status)).Inc()
	}
	t.seconds.Observe(took.Seconds())
}

// metrics returns a job's metrics, and the service's own, to a client with the job's token.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) error {
	token := bearer(r)
	s.mu.Lock()
	ready := s.ready
	name, err := s.c.Owner(token)
	s.mu.Unlock()
	if !ready {
		return &Error{NotReady, "the service is starting: the desired state is not known yet"}
	}
	if err != nil {
		return err
	}
	own := prometheus.NewRegistry()
	own.MustRegister(jobMetrics{s, name})
	both := prometheus.Gatherers{s.traffic.registry, own}
	promhttp.HandlerFor(both, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

// Traffic has the metrics of the service's requests, of all clients.
func (s *Server) Traffic() prometheus.Gatherer { return s.traffic.registry }

// jobMetrics collects one job's metrics on demand, so that beats do not pay for them.
type jobMetrics struct {
	server *Server
	job    string
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("eltrain_"+name, help, append([]string{"job_name"}, labels...), nil)
}

var (
	descMembers    = describe("members", "Registered members, by the state they report.", "state")
	descSilent     = describe("members_silent", "Members that missed a beat.")
	descGeneration = describe("world_generation", "Generation of the newest world.")
	descSize       = describe("world_slots", "Slots of the current world; 0 if there is none.")
	descProcesses  = describe("world_processes", "Processes of the current world (WORLD_SIZE); 0 if there is none.")
	descFormed     = describe("worlds_formed_total", "Worlds formed since this master started.")
	descBroken     = describe("worlds_broken_total", "Worlds that ended since this master started, planned or not.")
	descExpired    = describe("leases_expired_total", "Leases that ran out since this master started.")
	descFenced     = describe("requests_fenced_total", "Requests of replaced incarnations since this master started.")
	descStep       = describe("step", "Newest training step that a member reported.")
)

// DescribeService sends the descriptions of a ServiceFigures' metrics.
func DescribeService(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descMembers, descSilent, descFormed, descBroken, descExpired, descFenced} {
		out <- d
	}
}

func (m jobMetrics) Describe(out chan<- *prometheus.Desc) {
	DescribeService(out)
	for _, d := range []*prometheus.Desc{descGeneration, descSize, descProcesses, descStep} {
		out <- d
	}
}

func (m jobMetrics) Collect(out chan<- prometheus.Metric) {
	m.server.mu.Lock()
	f, ok := m.server.c.figures(m.job)
	m.server.mu.Unlock()
	if !ok {
		return // removed since the token was checked
	}
	f.Collect(m.job, out)
	for d, v := range map[*prometheus.Desc]float64{
		descGeneration: float64(f.generation), descSize: float64(f.slots), descProcesses: float64(f.processes), descStep: float64(f.step),
	} {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, m.job)
	}
}

// Collect sends what only the service counts as metrics of a job.
func (f ServiceFigures) Collect(jobName string, out chan<- prometheus.Metric) {
	for _, state := range memberStates {
		out <- prometheus.MustNewConstMetric(descMembers, prometheus.GaugeValue, float64(f.members[state]), jobName, string(state))
	}
	out <- prometheus.MustNewConstMetric(descSilent, prometheus.GaugeValue, float64(f.silent), jobName)
	for d, n := range map[*prometheus.Desc]int{descFormed: f.counts.Worlds, descBroken: f.counts.Broken, descExpired: f.counts.Expired, descFenced: f.counts.Fenced} {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), jobName)
	}
}

var memberStates = []job.MemberState{
	job.MemberWaiting, job.MemberRunning, job.MemberFailed, job.MemberSucceeded, job.MemberLeaving,
}

// ServiceFigures are what the service counts of one job, at one moment.
type ServiceFigures struct {
	members          map[job.MemberState]int
	silent           int
	generation       int
	slots, processes int
	step             int64
	counts           Counts
}

func (c *Coordinator) figures(name string) (ServiceFigures, bool) {
	j := c.jobs[name]
	if j == nil {
		return ServiceFigures{}, false
	}
	return j.figures(), true
}

func (j *jobState) figures() ServiceFigures {
	world := j.rdzv.World()
	f := ServiceFigures{members: map[job.MemberState]int{}, generation: world.Generation, counts: j.counts}
	for addr, m := range j.members {
		s := j.rdzv.slots[addr]
		if !s.present {
			continue
		}
		f.members[s.report.State]++
		f.step = max(f.step, s.report.Step)
		if m.silent {
			f.silent++
		}
	}
	if j.rdzv.trains() {
		f.slots = len(world.Members)
		for _, m := range world.Members {
			f.processes += m.Processes
		}
	}
	return f
}
