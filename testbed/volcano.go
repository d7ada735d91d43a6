package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Volcano says how Volcano is installed. The zero value is the version that testbed/volcano pins, with its chart's
// configuration.
type Volcano struct {
	// Configuration is the scheduler's, the content of its --scheduler-conf; empty is the chart's: actions enqueue, allocate
	// and backfill, no preempt.
	Configuration string

	// Definitions is the version of the API. The programs stay the pinned ones.
	Definitions VolcanoDefinitions
}

// Resources for the dynamic client.
var (
	PodGroups  = schema.GroupVersionResource{Group: "scheduling.volcano.sh", Version: "v1beta1", Resource: "podgroups"}
	Queues     = schema.GroupVersionResource{Group: "scheduling.volcano.sh", Version: "v1beta1", Resource: "queues"}
	HyperNodes = schema.GroupVersionResource{Group: "topology.volcano.sh", Version: "v1alpha1", Resource: "hypernodes"}

	commands = schema.GroupVersionResource{Group: "bus.volcano.sh", Version: "v1alpha1", Resource: "commands"}
)

// Where Volcano's chart has the scheduler's configuration.
const (
	VolcanoNamespace = "volcano-system"
	VolcanoConfigMap = "volcano-scheduler-configmap"
	VolcanoConfigKey = "volcano-scheduler.conf"
)

const (
	// Folders next to Volcano's programs.
	definitionsDir   = "definitions"
	volcanoConfigDir = "config"

	// The first is the default port of both, which share one address here.
	volcanoSchedulerPort  = 11251
	volcanoControllerPort = 11252

	// volcanoSchedulePeriod is a tenth of the default, so that tests wait less. Options.Args overrides it.
	volcanoSchedulePeriod = 100 * time.Millisecond

	// volcanoUser is the user of Volcano's programs, which config/volcano/keep-fields.yaml refers to.
	volcanoUser = "testbed-volcano"
)

// configureVolcano sets the command lines of Volcano's components.
func (c *Cluster) configureVolcano() error {
	var err error
	if c.volcanoDir, err = VolcanoBinaries(); err != nil {
		return err
	}
	// A folder of its own: the scheduler rereads its configuration whenever a file beside it is written.
	if err := os.Mkdir(c.path("volcano"), 0o755); err != nil {
		return err
	}
	configuration := c.options.Volcano.Configuration
	if configuration == "" {
		stock, err := os.ReadFile(filepath.Join(c.volcanoDir, volcanoConfigDir, VolcanoConfigKey))
		if err != nil {
			return err
		}
		configuration = string(stock)
	}
	if err := os.WriteFile(c.volcanoConfigPath(), []byte(configuration), 0o644); err != nil {
		return err
	}
	flags := func(port int) []string {
		return []string{
			"--kubeconfig=" + c.volcanoKubeconfig(), "--leader-elect=false", "--logtostderr",
			"--enable-healthz", "--healthz-address=" + net.JoinHostPort(c.address, strconv.Itoa(port)),
			fmt.Sprintf("--kube-api-qps=%d", componentQPS), fmt.Sprintf("--kube-api-burst=%d", componentQPS),
		}
	}
	healthy := func(port int) func(context.Context) error {
		transport := &http.Transport{DisableKeepAlives: true}
		return httpReady(transport, "http://"+net.JoinHostPort(c.address, strconv.Itoa(port))+"/healthz")
	}
	c.VolcanoScheduler = c.component(c.volcanoDir, VolcanoScheduler, healthy(volcanoSchedulerPort),
		append(flags(volcanoSchedulerPort),
			"--scheduler-conf="+c.volcanoConfigPath(),
			"--schedule-period="+volcanoSchedulePeriod.String(),
			"--cache-dumper=false")...)
	c.VolcanoController = c.component(c.volcanoDir, VolcanoController, healthy(volcanoControllerPort), flags(volcanoControllerPort)...)
	for _, component := range []*Component{c.VolcanoScheduler, c.VolcanoController} {
		component.env = append([]string{
			"KUBECONFIG=" + c.volcanoKubeconfig(),           // otherwise a part of them reads the user's own
			"DEBUG_SOCKET_DIR=" + c.path("volcano/sockets"), // otherwise they create one in the machine's /tmp
		}, component.env...)
	}
	return nil
}

func (c *Cluster) volcanoKubeconfig() string { return c.path("volcano.kubeconfig") }

func (c *Cluster) volcanoConfigPath() string {
	return c.path("volcano/" + VolcanoConfigKey)
}

// startVolcano returns when the queue default is open, so scheduler and controllers work.
func (c *Cluster) startVolcano(ctx context.Context) error {
	if c.options.Volcano == nil {
		return nil
	}
	if err := c.define(ctx, c.options.Volcano.Definitions); err != nil {
		return fmt.Errorf("define Volcano's resources: %w", err)
	}
	if err := c.keepFields(ctx); err != nil {
		return err
	}
	_, err := c.client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: VolcanoNamespace}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	configuration, err := os.ReadFile(c.volcanoConfigPath())
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().ConfigMaps(VolcanoNamespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: VolcanoConfigMap},
		Data:       map[string]string{VolcanoConfigKey: string(configuration)},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	both := []*Component{c.VolcanoScheduler, c.VolcanoController}
	for _, component := range both {
		if err := component.start(); err != nil {
			return err
		}
	}
	for _, component := range both {
		if err := component.awaitReady(ctx); err != nil {
			return err
		}
	}
	return c.awaitQueue(ctx, "default", "Open")
}

// HasVolcano reports whether Volcano runs in the cluster.
func (c *Cluster) HasVolcano() bool { return c.options.Volcano != nil }

// VolcanoConfiguration returns the Volcano scheduler's current configuration, to edit and pass to
// ConfigureVolcano.
func (c *Cluster) VolcanoConfiguration(t T) string {
	t.Helper()
	var content []byte
	c.volcanoLever(t, "read Volcano's configuration", func(context.Context) (err error) {
		content, err = os.ReadFile(c.volcanoConfigPath())
		return err
	})
	return string(content)
}

// ConfigureVolcano replaces the Volcano scheduler's configuration, also in its ConfigMap, and restarts it. It also
// starts a scheduler that is down.
func (c *Cluster) ConfigureVolcano(t T, configuration string) {
	t.Helper()
	c.volcanoLever(t, "configure Volcano", func(ctx context.Context) error {
		if err := c.VolcanoScheduler.kill(); err != nil {
			return err
		}
		if err := os.WriteFile(c.volcanoConfigPath(), []byte(configuration), 0o644); err != nil {
			return err
		}
		configMaps := c.client.CoreV1().ConfigMaps(VolcanoNamespace)
		now, err := configMaps.Get(ctx, VolcanoConfigMap, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Data[VolcanoConfigKey] = configuration
		if _, err := configMaps.Update(ctx, now, metav1.UpdateOptions{}); err != nil {
			return err
		}
		if err := c.VolcanoScheduler.start(); err != nil {
			return err
		}
		return c.VolcanoScheduler.awaitReady(ctx)
	})
}

// Queue is the resources of a Volcano queue.
type Queue struct {
	Weight      int32               `json:"weight"`               // zero: 1
	Capability  corev1.ResourceList `json:"capability,omitempty"` // the maximum
	Deserved    corev1.ResourceList `json:"deserved,omitempty"`   // other queues can reclaim what exceeds it
	Reclaimable *bool               `json:"reclaimable,omitempty"`
}

// MakeQueue creates a queue and waits until it is open. It is deleted after the test.
func (c *Cluster) MakeQueue(t T, name string, queue Queue) {
	t.Helper()
	queue.Weight = max(queue.Weight, 1)
	c.volcanoLever(t, "make queue "+name, func(ctx context.Context) error {
		spec, err := json.Marshal(queue)
		if err != nil {
			return err
		}
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": Queues.GroupVersion().String(), "kind": "Queue", "metadata": map[string]any{"name": name},
		}}
		var fields map[string]any
		if err := yaml.Unmarshal(spec, &fields); err != nil {
			return err
		}
		object.Object["spec"] = fields
		if _, err := c.dynamic.Resource(Queues).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
		return c.awaitQueue(ctx, name, "Open")
	})
	t.Cleanup(func() {
		c.lever(t, "delete queue "+name, func(ctx context.Context) error {
			err := c.dynamic.Resource(Queues).Delete(ctx, name, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
	})
}

// CloseQueue closes a queue as Volcano's own tool does, and waits until its status shows it: Closed, or Closing while it
// has PodGroups. The scheduler of the pinned version still places pods of a closed queue: in a cluster, Volcano's webhook
// refuses to create them. Webhook can simulate that.
func (c *Cluster) CloseQueue(t T, name string) {
	t.Helper()
	c.commandQueue(t, name, "CloseQueue", "Closed", "Closing")
}

// OpenQueue undoes CloseQueue.
func (c *Cluster) OpenQueue(t T, name string) {
	t.Helper()
	c.commandQueue(t, name, "OpenQueue", "Open")
}

func (c *Cluster) commandQueue(t T, name, action string, states ...string) {
	t.Helper()
	c.volcanoLever(t, action+" "+name, func(ctx context.Context) error {
		queue, err := c.dynamic.Resource(Queues).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		reference := map[string]any{
			"apiVersion": queue.GetAPIVersion(), "kind": queue.GetKind(), "name": name, "uid": string(queue.GetUID()),
			"controller": true,
		}
		_, err = c.dynamic.Resource(commands).Namespace(metav1.NamespaceDefault).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": commands.GroupVersion().String(), "kind": "Command",
			"metadata": map[string]any{"generateName": name + "-"}, "action": action, "target": reference,
		}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		return c.awaitQueue(ctx, name, states...)
	})
}

// awaitQueue waits until a queue is in one of the states.
func (c *Cluster) awaitQueue(ctx context.Context, name string, states ...string) error {
	var state string
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		queue, err := c.dynamic.Resource(Queues).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		state, _, err = unstructured.NestedString(queue.Object, "status", "state")
		return slices.Contains(states, state), err
	})
	if err != nil {
		return fmt.Errorf("wait for queue %s to be %s, and it is %q: %w", name, strings.Join(states, " or "), state, err)
	}
	return nil
}

// volcanoLever is lever for clusters with Volcano.
func (c *Cluster) volcanoLever(t T, doing string, do func(context.Context) error) {
	t.Helper()
	c.lever(t, doing, func(ctx context.Context) error {
		if c.options.Volcano == nil {
			return errors.New("the cluster was started without Options.Volcano")
		}
		return do(ctx)
	})
}
