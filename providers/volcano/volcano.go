// Package volcano runs agents as pods in gangs of the Volcano scheduler. It is the Kubernetes provider with another
// gang: each job has a PodGroup, which the scheduler admits to a queue and places whole or not at all. It knows no policy.
//
//	config.go     what the block provider "volcano" has beyond that of "kubernetes"
//	podgroup.go   the PodGroup that a job's group stands for
//	gang.go       keeps it as it is to be, and tells what the scheduler says of it
//	waits.go      why a PodGroup is not let in yet, in words
//	server.go     which fields the installed version of Volcano knows
//	scheduler.go  what the scheduler's configuration means for jobs
//	hypernodes.go where nodes are in the network
package volcano

import (
	"log/slog"

	"github.com/eltrain/eltrain/providers/kubernetes"
)

// Name is what a job's provider argument says.
const Name = "volcano"

// Options are the parts of a provider, as those of the Kubernetes provider.
type Options struct {
	Config  Config
	Logger  *slog.Logger
	Version string
	Owner   string // as in kubernetes.Options
}

// New begins to watch and returns at once, as kubernetes.New does.
func New(o Options) (*kubernetes.Provider, error) {
	return kubernetes.New(kubernetes.Options{
		Config: o.Config.Config, Logger: o.Logger, Version: o.Version, Owner: o.Owner, Provider: Name,
		Gang: func(s kubernetes.Site) (kubernetes.Gang, error) { return newGang(s, o.Config) },
	})
}
