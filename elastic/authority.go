package elastic

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// authorityInfo separates the authority's key from other uses of the state's key.
	authorityInfo = "eltrain service authority 1"
	// leafLife is how long a certificate of an Authority is valid. Half of it before the end the next one is made, and it begins as
	// long ago: clients' clocks differ. Clients trust the root, so a new one needs no announcement.
	leafLife   = 28 * 24 * time.Hour
	leafMargin = leafLife / 2
)

// Authority makes certificates for services that share a key. Their root is derived from the key, so that whoever has the key
// knows it, and a client of one service trusts the next.
type Authority struct {
	// Key is called when a service starts. It is a secret of at least 32 bytes.
	Key func() ([]byte, error)
	// Names are hosts and addresses, with or without a port, by which the service is reached besides the address that it listens
	// on and this machine's loopback.
	Names []string

	mu       sync.Mutex
	key      ed25519.PrivateKey
	root     *x509.Certificate
	template x509.Certificate // of leaves
	leaf     *tls.Certificate
}

// start implements Certificates.
func (a *Authority) start(addr net.Addr) error {
	secret, err := a.Key()
	if err != nil {
		return fmt.Errorf("read the key of the service's certificate: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.key, a.root, err = authorityOf(secret); err != nil {
		return fmt.Errorf("make the authority of the service's certificate: %w", err)
	}
	a.template = x509.Certificate{Subject: pkix.Name{CommonName: "eltrain service"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true}
	for _, name := range slices.Concat([]string{"localhost", "127.0.0.1", "::1", addr.String()}, a.Names) {
		if host, _, err := net.SplitHostPort(name); err == nil {
			name = host
		}
		if ip := net.ParseIP(name); ip != nil {
			a.template.IPAddresses = append(a.template.IPAddresses, ip)
		} else if isHostName(name) {
			a.template.DNSNames = append(a.template.DNSNames, name)
		}
	}
	return a.issue(time.Now())
}

// isHostName reports whether a certificate may have the name. No client finds a service by another.
func isHostName(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == ""
}

// authorityOf derives the authority's key from a secret, and its root certificate, which is the same at any time and place.
func authorityOf(secret []byte) (ed25519.PrivateKey, *x509.Certificate, error) {
	seed, err := hkdf.Key(sha256.New, secret, nil, authorityInfo, ed25519.SeedSize)
	if err != nil {
		return nil, nil, err
	}
	key := ed25519.NewKeyFromSeed(seed)
	public := key.Public().(ed25519.PublicKey)
	id := sha256.Sum256(public)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "eltrain service authority"}, SubjectKeyId: id[:20],
		NotBefore: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:  time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // RFC 5280: no end
		KeyUsage:  x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key) // Ed25519 takes no random bytes
	if err != nil {
		return nil, nil, err
	}
	root, err := x509.ParseCertificate(der)
	return key, root, err
}

// newKey makes a key that nobody else has.
func newKey() ([]byte, error) {
	key := make([]byte, sha256.Size)
	rand.Read(key) // never fails
	return key, nil
}

// issue makes the certificate to serve from now on. a.mu is held.
func (a *Authority) issue(now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the service's key: %w", err)
	}
	template := a.template
	template.NotBefore, template.NotAfter = now.Add(-leafMargin), now.Add(leafLife)
	der, err := x509.CreateCertificate(rand.Reader, &template, a.root, key.Public(), a.key) // with a random serial number
	if err != nil {
		return fmt.Errorf("make the service's certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return fmt.Errorf("make the service's certificate: %w", err)
	}
	a.leaf = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
	return nil
}

// certificate implements Certificates.
func (a *Authority) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return a.at(time.Now())
}

// at returns the certificate to serve at a time, the next one if it is due.
func (a *Authority) at(now time.Time) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Add(leafMargin).Before(a.leaf.Leaf.NotAfter) {
		return a.leaf, nil
	}
	err := a.issue(now)
	return a.leaf, err
}

// roots implements Certificates.
func (a *Authority) roots() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.root == nil {
		return nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.root.Raw})
}

// watch implements Certificates: the root stays.
func (a *Authority) watch(<-chan struct{}) {}
