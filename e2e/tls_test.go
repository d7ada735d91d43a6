package e2e

import (
	"testing"
)

// A service with a self-signed certificate: agents get it from their provider, and those already running find the next master,
// which has another one.
func TestServiceWithItsOwnCertificate(t *testing.T) {
	s := sleeping(t)
	s.Certify("127.0.0.1")
	s.Write("service.hcl", `eltrain {
  service {
    listen   = "127.0.0.1:0"
    tls_cert = "service.pem"
    tls_key  = "service.key"
  }
}
`)
	m := s.Watch()
	before := s.AwaitWorld(2, 1)
	m.Kill()
	s.Certify("127.0.0.1")
	s.Watch()
	s.Undisturbed(before, s.AwaitWorld(2, before.Generation))
}
