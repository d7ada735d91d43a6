package elastic

import (
	"net/http"
	"time"
)

// Stands in while go.sum lacks client_golang's own dependencies; the real file follows with go.mod.
type traffic struct{}

func newTraffic(*Server) *traffic          { return &traffic{} }
func (t *traffic) of(string) *traffic      { return t }
func (t *traffic) done(int, time.Duration) {}
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) error {
	return &Error{NotReady, "no metrics yet"}
}
