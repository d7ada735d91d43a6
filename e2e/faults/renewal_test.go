package faults

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/soak"
)

// renewalBound bounds the time from a renewal until the new certificate is served: until the kubelet updates the volume and the master
// reads it, the three minutes that agents get (docs/kubernetes.md), and site.Bound for a slow machine.
const renewalBound = 4*time.Minute + site.Bound

// deploymentWithTLS returns the Deployment of `kubectl apply -k deploy/tls`.
func deploymentWithTLS(t *testing.T) (d appsv1.Deployment) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "tls", "deployment.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	patch, err := yaml.ToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	base, err := json.Marshal(deployment(t))
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(base, patch, d)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(merged, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// certify writes a new certificate and key for the Deployment's Service into its Secret, as a renewal does.
func (s *trial) certify() (cert []byte) {
	s.T.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.OK(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"eltrain." + s.Namespace + ".svc"}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	s.OK(err)
	bare, err := x509.MarshalPKCS8PrivateKey(private)
	s.OK(err)
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "eltrain-tls"}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: bare}),
	}}
	secrets := s.Cluster.Admin().CoreV1().Secrets(s.Namespace)
	if _, err = secrets.Update(s.T.Context(), secret, metav1.UpdateOptions{}); err != nil {
		_, err = secrets.Create(s.T.Context(), secret, metav1.CreateOptions{})
	}
	s.OK(err)
	return cert
}

// trusting returns a client that trusts only this certificate.
func (s *trial) trusting(cert []byte) *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: "eltrain." + s.Namespace + ".svc"},
		DisableKeepAlives: true, // each request shows what is served now
	}
	return &http.Client{Transport: transport}
}

// trusted returns the certificates that the job's agents get.
func (s *trial) trusted() string {
	s.T.Helper()
	anchors, err := s.Cluster.Admin().CoreV1().ConfigMaps(s.Namespace).List(s.T.Context(), metav1.ListOptions{LabelSelector: "eltrain.dev/job"})
	s.OK(err)
	if len(anchors.Items) != 1 {
		s.T.Fatalf("there are %d anchors", len(anchors.Items))
	}
	return anchors.Items[0].Data["ca.crt"]
}

// The service's certificate is renewed while a master runs, and then while none does, by a write to the Secret alone. Agents
// that trust the old certificate continue, every agent gets the new one, and no training process is restarted.
func TestRenewedCertificate(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	s := newTrial(t, calm.start(t))
	s.Write("eltrain.hcl", deployedSettings(t))
	s.Write("job.hcl", s.counting(workers))
	first := s.certify()
	s.install(deploymentWithTLS(t))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the Deployment's master said:\n%s", s.deployedSays())
		}
	})
	trains := func(who string, cert []byte) {
		t.Helper()
		site.Until(t, "every agent beats at "+who, func() bool { return ready(s.deployed()) && s.beats(cert) == workers })
	}
	trains("the first master", first)
	unchanged := s.unchanged()

	second := s.certify()
	site.Until(t, "agents get both certificates", func() bool { return s.trusted() == string(second)+string(first) })
	if s.beats(second) != 0 {
		t.Error("the new certificate is served at once: agents that do not have it yet cannot connect")
	}
	trains("the first master, by the certificate that agents have had", first)
	for deadline := time.Now().Add(renewalBound); s.beats(second) != workers; time.Sleep(site.Poll) {
		if time.Now().After(deadline) {
			t.Fatalf("the new certificate is not served after %s", renewalBound)
		}
	}
	site.Until(t, "agents get only the new certificate", func() bool { return s.trusted() == string(second) })
	unchanged("renewed under a master")

	s.scale(0)
	site.Until(t, "there is no master", func() bool { return s.deployed() == nil })
	third := s.certify()
	s.scale(1)
	trains("the next master", third)
	unchanged("renewed while none ran")

	s.uninstall()
	s.OK(s.Cluster.Admin().CoreV1().Secrets(s.Namespace).Delete(t.Context(), "eltrain-tls", metav1.DeleteOptions{}))
	s.destroyed()
}
