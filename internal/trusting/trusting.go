// Package trusting gives tests HTTP clients that verify a service as agents do.
package trusting

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"testing"
)

// Client returns a client that trusts these CA certificates (PEM) and no others. Its connections are closed with the test.
func Client(t testing.TB, certificates []byte) *http.Client {
	t.Helper()
	return client(t, &tls.Config{RootCAs: Pool(t, certificates)})
}

// ClientOf returns a client that trusts the CA certificates in a file, as `curl --cacert` does.
func ClientOf(t testing.TB, file string) *http.Client {
	t.Helper()
	certificates, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return Client(t, certificates)
}

// Kubelet returns a client that verifies nothing, as a kubelet's probes. Send no token with it.
func Kubelet(t testing.TB) *http.Client {
	return client(t, &tls.Config{InsecureSkipVerify: true})
}

// Pool returns these CA certificates (PEM).
func Pool(t testing.TB, certificates []byte) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(certificates) {
		t.Fatalf("no certificate in %q", certificates)
	}
	return pool
}

func client(t testing.TB, config *tls.Config) *http.Client {
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
