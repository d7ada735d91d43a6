package state

import (
	"context"

	"github.com/eltrain/eltrain/job"
)

// Requests are what operators ask of whoever leads, and the replies: objects beside the state, which raise no serial.
type Requests interface {
	// Ask stores a new request, and returns it with its ID, which is greater than those before, and who asks, as far as the store
	// can tell.
	Ask(ctx context.Context, r job.Request) (job.Request, error)
	// All returns the requests and their replies, in order.
	All(ctx context.Context) ([]Asked, error)
	// Get returns one.
	Get(ctx context.Context, id string) (Asked, error)
	// Pending returns those without a final reply, in order. It removes those that were answered long ago.
	Pending(ctx context.Context) ([]job.Request, error)
	// Reply stores what has become of a request. A final reply stays.
	Reply(ctx context.Context, r job.Reply) error
}

// Asked is a request with its newest reply, which is zero as long as it waits for a leader.
type Asked struct {
	job.Request
	Reply job.Reply `json:"reply,omitzero"`
}

// Bounds of the requests that have their final reply.
const (
	KeptRequests    = 1000
	KeptRequestDays = 7
)
