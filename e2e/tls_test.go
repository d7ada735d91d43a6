package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/eltrain/eltrain/e2e/site"
)

// A service with a self-signed certificate: agents get it from their provider, and those already running find the next master,
// which has another one.
func TestServiceWithItsOwnCertificate(t *testing.T) {
	s := sleeping(t)
	certify(s)
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
	certify(s)
	s.Watch()
	s.Undisturbed(before, s.AwaitWorld(2, before.Generation))
}

// certify makes a self-signed certificate and its key.
func certify(s *site.Site) {
	s.T.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.T.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		s.T.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		s.T.Fatal(err)
	}
	s.Write("service.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})))
	place := filepath.Join(s.Dir, "service.key")
	s.OK(os.WriteFile(place+".new", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600))
	s.OK(os.Rename(place+".new", place))
}
