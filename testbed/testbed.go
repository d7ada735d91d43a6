// Package testbed brings up a real Kubernetes control plane for tests.
package testbed
