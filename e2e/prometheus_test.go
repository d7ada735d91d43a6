package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/soak"
)

// prometheusVersion is that of the server that a role follows.
const prometheusVersion = "v0.316.0"

// prometheus returns the program, built from its module on first use: some minutes.
func prometheus(t *testing.T) string {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "eltrain", "prometheus-"+prometheusVersion)
	program := filepath.Join(dir, "prometheus")
	if _, err := os.Stat(program); err == nil {
		return program
	}
	build := exec.CommandContext(t.Context(), "go", "install", "github.com/prometheus/prometheus/cmd/prometheus@"+prometheusVersion)
	build.Dir, build.Env = t.TempDir(), append(os.Environ(), "GOFLAGS=", "GOBIN="+dir)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build Prometheus: %v\n%s", err, out)
	}
	return program
}

// free returns an address that nobody listens on.
func free(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A role follows a real Prometheus, which scrapes eltrain's own metrics. While that is away, the role keeps its size.
func TestARoleFollowsPrometheus(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	metrics, server := free(t), free(t)
	s := newSite(t, map[string]string{"train.py": throughput, "prometheus.yml": fmt.Sprintf(`
global: { scrape_interval: 1s }
scrape_configs:
  - job_name: eltrain
    static_configs: [{ targets: [%q] }]
`, metrics), "job.hcl": fmt.Sprintf("eltrain {\n  service {\n    metrics = %q\n  }\n}\n", metrics) + policies("p", fmt.Sprintf(`source "prometheus" {
          address = "http://%s"
          query   = "max(eltrain_job_step{job_name=\"p\"})"
        }
        strategy "threshold" {
          above  = 20
          delta  = 2
          within = 1
        }`, server))}).Of("p")
	run := exec.Command(prometheus(t), "--config.file="+filepath.Join(s.Dir, "prometheus.yml"), "--storage.tsdb.path="+t.TempDir(), "--web.listen-address="+server)
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	stop := func() {
		run.Process.Kill()
		run.Wait()
	}
	t.Cleanup(stop)
	s.Watch()
	s.Await("the role to grow to its maximum", func(j site.Job) bool { return j.Trains(6, 2) })
	stop()
	site.Until(t, "the failures are told", func() bool {
		out, _ := s.Run("why", "job.p")
		return strings.Contains(out, "no value: query:") && strings.Contains(out, "connection refused")
	})
}
