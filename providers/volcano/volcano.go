// Package volcano runs agents as pods in gangs of the Volcano scheduler. It is the Kubernetes provider with another
// gang: each job has a PodGroup, which the scheduler admits to a queue and places whole or not at all. It knows no policy.
//
//	config.go     what the block provider "volcano" has beyond that of "kubernetes"
//	podgroup.go   the PodGroup of a job
//	gang.go       keeps it up to date, and reports what the scheduler says about it
//	waits.go      why a PodGroup is not admitted yet, in words
//	server.go     which fields the installed version of Volcano supports
//	scheduler.go  what the scheduler's configuration means for jobs
//	hypernodes.go where nodes are in the network
package volcano

import (
	"log/slog"

	"github.com/eltrain/eltrain/providers/kubernetes"
)

// Name is the value of a job's provider argument.
const Name = "volcano"

// Options configure a provider, like kubernetes.Options.
type Options struct {
	Config  Config
	Logger  *slog.Logger
	Version string
	Owner   string // as in kubernetes.Options
}

// New starts the watches and returns at once, as kubernetes.New does.
func New(o Options) (*kubernetes.Provider, error) {
	return kubernetes.New(kubernetes.Options{
		Config: o.Config.Config, Logger: o.Logger, Version: o.Version, Owner: o.Owner, Provider: Name,
		Gang: func(s kubernetes.Site) (kubernetes.Gang, error) { return newGang(s, o.Config) },
	})
}
