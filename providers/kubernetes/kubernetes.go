// Package kubernetes runs agents as pods. The cluster's scheduler places them; this package creates and deletes them and
// reports their state from the API server. It knows no policy and no other provider.
//
// Everything that Observe reports comes from open watches (watch.go), kept compact in one index (index.go). What this
// process itself creates and deletes enters the index at once, so that it reads its own writes; there is no other cache
// between the API server and the planner.
package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/kube"
	"github.com/eltrain/eltrain/providers"
)

// Options are the parts of a Provider. Config names the cluster; the others have defaults.
type Options struct {
	Config  Config
	Logger  *slog.Logger
	Version string // of this program, such as "0.3.0": the tag of the agent's image if the configuration names none
	// Owner is the state under which this master launches ("kubernetes ml/team-a"): job.Capabilities.Owner.
	Owner string
	// Provider is the name that jobs use for the provider; by default Name.
	Provider string
	// Gang makes the gang implementation; by default, scheduling gates.
	Gang func(Site) (Gang, error)
}

// Provider is a namespace of one cluster.
type Provider struct {
	name      string
	owner     string // the state
	where     *namespaceIdentity
	client    *kube.Client
	rest      *rest.Config // how client reaches the API server
	namespace string
	config    Config
	version   string
	log       *slog.Logger
	index     *index
	watches   []*watching
	observed  observationCache
	jobs      *preparations
	pacer     *pacer
	gang      Gang

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	owned  sync.WaitGroup // every goroutine of this provider; Close waits for them
}

var _ providers.Provider = (*Provider)(nil)

// New starts the watches and returns at once: Observe waits for the API server. Close stops them.
func New(o Options) (*Provider, error) {
	name, newGang := cmp.Or(o.Provider, Name), o.Gang
	if newGang == nil {
		newGang = newGates
	}
	config, namespace, err := o.Config.access().Client(o.Config.QPS)
	if err != nil {
		return nil, fmt.Errorf("provider %s: %w", name, err)
	}
	config = kube.Shared(config) // one connection for this client and the gang's
	// Half the bytes and a fraction of the CPU time of JSON, on both sides.
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kube.NewClient(config)
	if err != nil {
		return nil, fmt.Errorf("provider %s: %w", name, err)
	}
	log := o.Logger
	if log == nil {
		log = slog.Default()
	}
	p := &Provider{
		name: name, owner: o.Owner, where: newNamespaceIdentity(), client: client, rest: config, namespace: namespace, config: o.Config, version: o.Version, log: log,
		index: newIndex(), jobs: newPreparations(),
	}
	p.pacer = newPacer(o.Config.parallelism(), log, p.index.signal)
	p.observed.version = &p.index.version
	p.index.config, p.index.name, p.index.owner = o.Config, name, o.Owner
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.ownWatches()
	if p.gang, err = newGang(Site{p}); err != nil {
		return nil, errors.Join(fmt.Errorf("provider %s: %w", name, err), p.Close())
	}
	p.owned.Go(func() { p.locate(p.ctx) })
	p.owned.Go(p.activateLoop)
	for _, w := range p.watches {
		w.prepare(p.log)
		p.owned.Go(func() { w.run(p.ctx) })
	}
	return p, nil
}

// Capabilities reports that a scheduler places. The caveats depend on what the API server lets this master see.
func (p *Provider) Capabilities() job.Capabilities {
	c := job.Capabilities{
		Images: true, NeedsImage: p.config.Image == "", Ships: true, Pods: true, Shared: true, Parallelism: p.config.parallelism(),
		Owner: p.owner, Attributes: true, NodesUnknown: p.index.blind(),
	}
	if p.jobs.moved.Load() {
		c.News = job.Duration(configMapDelay)
	}
	p.gang.Can(&c)
	p.where.addTo(&c, p.namespace)
	for _, w := range p.watches {
		if w.byRole {
			continue
		}
		c.Caveats = append(c.Caveats, w.caveats()...)
	}
	return c
}

// Changes implements providers.Provider.
func (p *Provider) Changes() <-chan struct{} { return p.index.changes }

// Close stops the watches. Pods keep running.
func (p *Provider) Close() error {
	p.cancel()
	p.owned.Wait()
	p.index.close()
	p.pacer.close()
	return nil
}
