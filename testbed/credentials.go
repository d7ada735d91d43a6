package testbed

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	// certificateLife is longer than any run, and short enough that a leaked copy is worthless.
	certificateLife = 24 * time.Hour
	// issuer is both issuer and audience of ServiceAccounts' tokens.
	issuer = "https://kubernetes.default.svc"
	// The files of the keys. Processes that share the cluster read them, to run servers and sign tokens.
	authorityKey = "ca.key"
	accountsKey  = "accounts.key"
	// clockSkew is how long the API server accepts a token after its expiry (the leeway of its JWT library).
	clockSkew = time.Minute
)

// authority is the cluster's own certificate authority.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "eltrain testbed"},
		NotBefore:             time.Now().Add(-time.Hour), // clocks of containers may lag
		NotAfter:              time.Now().Add(certificateLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{certificate: certificate, key: key, pem: pemBlock("CERTIFICATE", der)}, nil
}

// serve issues a serving certificate and its key, in PEM, for the given addresses.
func (a *authority) serve(addresses ...string) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: addresses[0]},
		NotBefore:    a.certificate.NotBefore,
		NotAfter:     a.certificate.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, address := range addresses {
		if ip := net.ParseIP(address); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, address)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, private.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	encoded, err := encodeKey(private)
	return pemBlock("CERTIFICATE", der), encoded, err
}

// serveTLS is serve for a server in this process.
func (a *authority) serveTLS(address string) (*tls.Config, error) {
	certificate, key, err := a.serve(address)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key) // not PKCS 8: the API server reads account keys only in this form
	if err != nil {
		return nil, err
	}
	return pemBlock("EC PRIVATE KEY", der), nil
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// tokenSigner signs ServiceAccounts' tokens as the API server does, with its key. The TokenRequest API issues no token
// of less than ten minutes, too long for tests of expiry.
type tokenSigner struct{ key *ecdsa.PrivateKey }

// sign returns a token that is valid until the given time. The API server accepts it only while the account exists.
func (s *tokenSigner) sign(namespace, name, uid string, until time.Time) (string, error) {
	issued := time.Now().Add(-time.Hour) // long enough ago for any clock
	header := map[string]string{"alg": "ES256", "typ": "JWT"}
	claims := map[string]any{
		"iss": issuer, "aud": []string{issuer},
		"sub": "system:serviceaccount:" + namespace + ":" + name,
		"iat": issued.Unix(), "nbf": issued.Unix(), "exp": until.Add(-clockSkew).Unix(),
		"kubernetes.io": map[string]any{
			"namespace":      namespace,
			"serviceaccount": map[string]string{"name": name, "uid": uid},
		},
	}
	var parts []string
	for _, part := range []any{header, claims} {
		text, err := json.Marshal(part)
		if err != nil {
			return "", err
		}
		parts = append(parts, base64.RawURLEncoding.EncodeToString(text))
	}
	digest := sha256.Sum256([]byte(strings.Join(parts, ".")))
	r, v, err := ecdsa.Sign(rand.Reader, s.key, digest[:])
	if err != nil {
		return "", err
	}
	const half = 32 // bytes of each number of a P-256 signature (RFC 7518 §3.4)
	signature := append(r.FillBytes(make([]byte, half)), v.FillBytes(make([]byte, half))...)
	return strings.Join(append(parts, base64.RawURLEncoding.EncodeToString(signature)), "."), nil
}

// makeCredentials writes the certificates, keys, tokens and kubeconfigs of the components and the administrator. All
// of these are system:masters; a program under test has an account of its own (User).
func (c *Cluster) makeCredentials() error {
	var err error
	if c.ca, err = newAuthority(); err != nil {
		return fmt.Errorf("make the cluster's certificate authority: %w", err)
	}
	certificate, key, err := c.ca.serve(c.address, "kubernetes.default.svc", "kubernetes", "localhost", "10.0.0.1")
	if err != nil {
		return fmt.Errorf("make the API server's certificate: %w", err)
	}
	accountKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	c.accounts = &tokenSigner{key: accountKey}
	accountPEM, err := encodeKey(accountKey)
	if err != nil {
		return err
	}
	authorityPEM, err := encodeKey(c.ca.key)
	if err != nil {
		return err
	}
	token, volcanoToken := rand.Text(), rand.Text()
	files := map[string][]byte{
		"ca.crt":        c.ca.pem,
		authorityKey:    authorityPEM,
		"apiserver.crt": certificate,
		"apiserver.key": key,
		accountsKey:     accountPEM,
		"tokens.csv": fmt.Appendf(nil, "%s,testbed,testbed,system:masters\n%s,%[3]s,%[3]s,system:masters\n",
			token, volcanoToken, volcanoUser),
	}
	for name, content := range files {
		if err := os.WriteFile(c.path(name), content, 0o600); err != nil {
			return err
		}
	}
	if err := c.writeKubeconfig(c.AdminKubeconfig(), "https://"+c.Address(), "default", token); err != nil {
		return err
	}
	if err := c.writeKubeconfig(c.volcanoKubeconfig(), "https://"+c.Address(), "default", volcanoToken); err != nil {
		return err
	}
	return c.makeClients()
}

// makeClients makes the administrator's clients.
func (c *Cluster) makeClients() (err error) {
	if c.admin, err = clientcmd.BuildConfigFromFlags("", c.AdminKubeconfig()); err != nil {
		return err
	}
	c.admin.QPS = -1 // no limit: the API server is what is measured
	c.admin.ContentType = "application/vnd.kubernetes.protobuf"
	c.admin.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if c.client, err = kubernetes.NewForConfig(c.admin); err != nil {
		return err
	}
	c.dynamic, err = dynamic.NewForConfig(c.admin)
	return err
}

func (c *Cluster) writeKubeconfig(path, server, namespace, token string) error {
	const name = "testbed"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: c.ca.pem}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
