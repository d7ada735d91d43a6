package sim

import (
	"context"
	"slices"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// Client is one process's handle on the cluster, with its own change signal and published address.
type Client struct {
	*Cluster
	changes chan struct{}
	service string
}

var _ providers.Provider = (*Client)(nil)

// Open returns a handle for another process.
func (c *Cluster) Open() *Client {
	client := &Client{Cluster: c, changes: make(chan struct{}, 1)}
	c.clients = append(c.clients, client)
	return client
}

// Changes implements providers.Provider.
func (c *Client) Changes() <-chan struct{} { return c.changes }

// Publish implements providers.Provider.
func (c *Client) Publish(ctx context.Context, s providers.Service) error {
	c.service = s.URL
	return c.Cluster.Publish(ctx, s)
}

// Prepare returns the job's token, and publishes the service's address to the job's agents again.
func (c *Client) Prepare(ctx context.Context, g job.Group) (string, error) {
	token, err := c.Cluster.Prepare(ctx, g)
	if err == nil && c.service != "" {
		c.tell(c.service)
	}
	return token, err
}

// Close implements providers.Provider.
func (c *Client) Close() error {
	c.clients = slices.DeleteFunc(c.clients, func(other *Client) bool { return other == c })
	return nil
}
