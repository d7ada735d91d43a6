package testbed

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"text/template"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:embed config
var configs embed.FS

const (
	pollInterval = 50 * time.Millisecond

	// Kubernetes' default, see Options.NodeLease.
	defaultNodeLease = 40 * time.Second
	// graceBeyondLease is how much longer than its lease a node's grace period is by default.
	graceBeyondLease = 10 * time.Second
	// nodeMonitorPeriod is how often the controller manager checks nodes by default.
	nodeMonitorPeriod = 5 * time.Second

	// componentQPS lifts the components' client-side rate limits: the scheduler's default of 50 would limit binding to 50 pods
	// a second and distort measurements.
	componentQPS = 10000

	// etcdQuota suffices for runs of tens of thousands of pods; etcd's default is 2 GiB.
	etcdQuota = 4 << 30
)

// settings are the values for the templates in config/.
type settings struct {
	Kubeconfig   string
	QPS          int
	LeaseSeconds int
	Label        string
}

// configure sets each component's command line and readiness check.
func (c *Cluster) configure(binaries string) error {
	lease, grace := c.options.NodeLease, c.options.NodeLease
	if lease == 0 {
		lease, grace = defaultNodeLease, defaultNodeLease+graceBeyondLease
	}
	values := settings{
		Kubeconfig: c.AdminKubeconfig(), QPS: componentQPS, LeaseSeconds: int(lease.Seconds()), Label: kwokLabel,
	}
	for _, name := range []string{"scheduler.yaml", "kwok.yaml"} {
		if err := c.writeConfig(name, values); err != nil {
			return err
		}
	}
	etcdURL := "http://" + net.JoinHostPort(c.address, strconv.Itoa(etcdPort))
	peerURL := "http://" + net.JoinHostPort(c.address, strconv.Itoa(etcdPeerPort))

	c.Etcd = c.component(binaries, Etcd, httpReady(http.DefaultTransport, etcdURL+"/health"),
		"--data-dir="+c.path("etcd"),
		"--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL,
		"--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL,
		"--initial-cluster=default="+peerURL,
		"--unsafe-no-fsync", // its machine does not lose power: kill -9 loses nothing of the page cache
		"--quota-backend-bytes="+strconv.Itoa(etcdQuota),
		"--log-level=warn",
	)
	roots := x509.NewCertPool()
	roots.AddCert(c.ca.certificate)
	// Without keep-alive: a request on a connection to a killed API server would be retried.
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
	c.APIServer = c.component(binaries, APIServer, httpReady(transport, "https://"+c.Address()+"/readyz"),
		"--etcd-servers="+etcdURL,
		"--bind-address="+c.address, "--secure-port="+strconv.Itoa(apiPort),
		"--advertise-address=10.0.0.1",    // a loopback address is rejected
		"--endpoint-reconciler-type=none", // so that it is not advertised to anybody
		"--tls-cert-file="+c.path("apiserver.crt"), "--tls-private-key-file="+c.path("apiserver.key"),
		"--token-auth-file="+c.path("tokens.csv"),
		"--authorization-mode=RBAC",
		"--service-account-issuer="+issuer,
		"--service-account-key-file="+c.path("accounts.key"),
		"--service-account-signing-key-file="+c.path("accounts.key"),
		"--service-cluster-ip-range=10.0.0.0/16",
		"--kubelet-preferred-address-types=InternalIP", // the nodes' names are not in DNS
		"--profiling=false",
	)
	controllersURL, controllersFlags := c.served(controllersPort)
	c.ControllerManager = c.component(binaries, ControllerManager, c.controllersReady(httpReady(transport, controllersURL+"/healthz")),
		append(controllersFlags,
			"--kubeconfig="+c.AdminKubeconfig(),
			"--leader-elect=false",
			"--service-account-private-key-file="+c.path("accounts.key"),
			"--root-ca-file="+c.CAFile(),
			"--flex-volume-plugin-dir="+c.path("flexvolumes"), // otherwise it creates one in the system
			"--node-monitor-grace-period="+grace.String(),
			"--node-monitor-period="+min(nodeMonitorPeriod, grace/4).String(), // a short grace period needs as short a period
			fmt.Sprintf("--kube-api-qps=%d", componentQPS), fmt.Sprintf("--kube-api-burst=%d", componentQPS),
		)...)
	schedulerURL, schedulerFlags := c.served(schedulerPort)
	c.Scheduler = c.component(binaries, Scheduler, httpReady(transport, schedulerURL+"/readyz"),
		append(schedulerFlags, "--config="+c.path("scheduler.yaml"))...)
	c.KWOK = c.component(binaries, KWOK, alwaysReady,
		"--kubeconfig="+c.AdminKubeconfig(), "--config="+c.path("kwok.yaml"),
		"-v", "WARN") // otherwise it logs every lease
	if c.options.Volcano == nil {
		return nil
	}
	return c.configureVolcano()
}

func (c *Cluster) component(binaries, name string, ready func(context.Context) error, args ...string) *Component {
	return &Component{
		name: name, path: filepath.Join(binaries, name),
		args: append(args, c.options.Args[name]...), env: c.options.Env[name],
		log: c.path(name + ".log"), launcher: c.launcher, ready: ready,
	}
}

func (c *Cluster) writeConfig(name string, values settings) error {
	t, err := template.New(name).Delims("[[", "]]").ParseFS(configs, "config/"+name)
	if err != nil {
		return err
	}
	file, err := os.Create(c.path(name))
	if err != nil {
		return err
	}
	return errors.Join(t.Execute(file, values), file.Close())
}

// served returns the URL of a component other than the API server, for its health and metrics, and the flags for that.
// Metrics need the administrator's token.
func (c *Cluster) served(port int) (url string, flags []string) {
	return "https://" + net.JoinHostPort(c.address, strconv.Itoa(port)), []string{
		"--bind-address=" + c.address, "--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + c.path("apiserver.crt"), "--tls-private-key-file=" + c.path("apiserver.key"),
		"--authentication-kubeconfig=" + c.AdminKubeconfig(), "--authorization-kubeconfig=" + c.AdminKubeconfig(),
		"--authentication-skip-lookup", // of the front proxy's certificate: there is none
	}
}

// controllersReady adds to the controller manager's health check what it must have created: without an account named
// default, a namespace rejects pods.
func (c *Cluster) controllersReady(healthy func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := healthy(ctx); err != nil {
			return err
		}
		_, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	}
}

// alwaysReady is for components without a health check: their results are awaited where needed.
func alwaysReady(context.Context) error { return nil }

func httpReady(transport http.RoundTripper, url string) func(context.Context) error {
	const answerTimeout = 5 * time.Second
	client := &http.Client{Transport: transport, Timeout: answerTimeout}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", url, response.Status)
		}
		return nil
	}
}
