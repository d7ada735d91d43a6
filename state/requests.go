package state

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/job"
)

// Requests are what operators ask of whoever leads, and the replies: objects beside the state, which raise no serial.
type Requests interface {
	// Ask stores a new request, and returns it with its ID, which is greater than those before, and who asks, as far as the store
	// can tell.
	Ask(ctx context.Context, r job.Request) (job.Request, error)
	// All returns the requests and their replies, in order.
	All(ctx context.Context) ([]Asked, error)
	// Get returns one. If there is none with this ID, the error is ErrNoRequest.
	Get(ctx context.Context, id string) (Asked, error)
	// Pending returns those without a final reply, in order. It removes those that were answered long ago.
	Pending(ctx context.Context) ([]job.Request, error)
	// Reply stores what has become of a request, instead of an earlier reply. A final reply stays.
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

// ErrNoRequest says that there is no request with an ID.
var ErrNoRequest = errors.New("there is no such request")

// idTime begins an ID, so that IDs sort by time.
const idTime = "20060102T150405.000000Z"

// NextRequestID returns an ID that is greater than last, the greatest of the requests so far or "": the clock may have been set back.
func NextRequestID(now time.Time, last string) string {
	const maxYear = 9999                 // later ones have more digits, and sort before
	now = now.Truncate(time.Microsecond) // as an ID has it
	stamp, _, _ := strings.Cut(last, "-")
	if before, err := time.Parse(idTime, stamp); err == nil && !now.After(before) && before.Add(time.Microsecond).Year() <= maxYear {
		now = before.Add(time.Microsecond)
	}
	return fmt.Sprintf("%s-%06x", now.UTC().Format(idTime), rand.Uint32()>>8)
}

// Outdated returns those of the requests with a final reply, in order, that are not kept. repliedAt is when a request had its final
// reply; zero if that is unknown.
func Outdated(finished []string, repliedAt func(id string) time.Time, now time.Time) (ids []string) {
	surplus := len(finished) - KeptRequests
	for i, id := range finished {
		if at := repliedAt(id); !at.IsZero() && (i < surplus || now.Sub(at) >= KeptRequestDays*24*time.Hour) {
			ids = append(ids, id)
		}
	}
	return ids
}

// SortAsked sorts requests by their IDs.
func SortAsked(all []Asked) {
	slices.SortFunc(all, func(a, b Asked) int { return job.CompareRequests(a.Request, b.Request) })
}
