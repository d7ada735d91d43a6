package elastic

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/eltrain/eltrain/internal/regular"
)

const (
	// certificateInterval is how often the certificate's files are read: they are replaced days before it expires.
	certificateInterval = 10 * time.Second
	// certificateDelay is the delay between announcing a renewed certificate and serving it: a kubelet may take two minutes to
	// deliver it to agents, and an agent that does not trust the service when it reconnects is lost with its lease.
	certificateDelay = 3 * time.Minute
	maxPEM           = 1 << 20
)

// Certificates are the source of a service's certificates: CertificateFiles, or an Authority.
type Certificates interface {
	// start is called once the service listens on addr, before the other methods.
	start(addr net.Addr) error
	// certificate is tls.Config.GetCertificate.
	certificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// roots are the CA certificates, in PEM, for what is served and what will be served next; nil before start.
	roots() []byte
	// watch renews what is served until closing is closed, if something must be done for that.
	watch(closing <-chan struct{})
}

// CertificateFiles are a certificate and its key in files. Whoever renews it replaces the files.
type CertificateFiles struct {
	certFile, keyFile string
	interval, delay   time.Duration
	log               *slog.Logger
	renewed           func(certificates []byte) error

	mu           sync.Mutex
	served       pair
	next         pair      // the newest content of the files; zero if that is served
	announcedAt  time.Time // when next was announced through renewed; zero if it was not
	oldAnnounced bool      // renewed must still be called without the old certificate
	lastError    string    // the error of the last reload, logged once
}

// NewCertificateFiles returns files that are read when the service starts, and again when they are replaced. renewed is called
// by one goroutine with the service's CA certificates, in PEM, after the files were replaced: first including the old ones, which
// are served until agents can have received the new ones, then without. After an error it is called again.
func NewCertificateFiles(certFile, keyFile string, renewed func(certificates []byte) error, log *slog.Logger) *CertificateFiles {
	return &CertificateFiles{certFile: certFile, keyFile: keyFile, interval: certificateInterval, delay: certificateDelay, log: log, renewed: renewed}
}

// pair is a certificate with its key, and the contents of both files.
type pair struct {
	certificate *tls.Certificate
	cert, key   []byte
}

func (p pair) same(o pair) bool { return bytes.Equal(p.cert, o.cert) && bytes.Equal(p.key, o.key) }

func (c *CertificateFiles) read() (pair, error) {
	var p pair
	var err error
	if p.cert, err = regular.ReadNamed(c.certFile, maxPEM); err == nil {
		p.key, err = regular.ReadSecret(c.keyFile, maxPEM)
	}
	if err != nil {
		return pair{}, fmt.Errorf("read the service's certificate and key: %w", err)
	}
	loaded, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return pair{}, fmt.Errorf("read the service's certificate and key: %w", err)
	}
	p.certificate = &loaded
	return p, nil
}

// start implements Certificates.
func (c *CertificateFiles) start(net.Addr) error {
	p, err := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served = p
	return err
}

// certificate implements Certificates.
func (c *CertificateFiles) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.served.certificate, nil
}

// roots implements Certificates.
func (c *CertificateFiles) roots() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Concat(c.next.cert, c.served.cert)
}

// watch implements Certificates: it reloads the files.
func (c *CertificateFiles) watch(closing <-chan struct{}) {
	look := time.NewTicker(c.interval)
	defer look.Stop()
	for {
		select {
		case <-closing:
			return
		case <-look.C:
			c.renew(time.Now())
		}
	}
}

// renew reloads the files once. New content is announced first and served later, or at once if the served certificate has
// expired. Invalid content changes nothing: the files may be half replaced.
func (c *CertificateFiles) renew(now time.Time) {
	p, err := c.read()
	if err == nil && c.setNext(p) {
		err = c.announce(now)
	}
	if c.serveNext(now) {
		c.log.Info("The service uses its renewed certificate.", "expires", c.served.certificate.Leaf.NotAfter)
		c.oldAnnounced = true
	}
	if c.oldAnnounced {
		told := c.renewed(c.roots()) // without the old one
		c.oldAnnounced = told != nil
		err = cmp.Or(err, told)
	}
	c.logOnce(err)
}

// setNext stores the files' content, and reports whether it must be announced.
func (c *CertificateFiles) setNext(p pair) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case p.same(c.served):
		c.next, c.announcedAt = pair{}, time.Time{}
	case !p.same(c.next):
		c.next, c.announcedAt = p, time.Time{}
	}
	return c.next.certificate != nil && c.announcedAt.IsZero()
}

func (c *CertificateFiles) announce(now time.Time) error {
	if err := c.renewed(c.roots()); err != nil {
		return fmt.Errorf("publish the renewed certificate to the agents: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.announcedAt = now
	return nil
}

// serveNext starts serving next if it is time, and reports whether it did.
func (c *CertificateFiles) serveNext(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := !c.announcedAt.IsZero() && now.Sub(c.announcedAt) >= c.delay
	if c.next.certificate == nil || !known && now.Before(c.served.certificate.Leaf.NotAfter) {
		return false
	}
	c.served, c.next, c.announcedAt = c.next, pair{}, time.Time{}
	return true
}

// logOnce logs an error, once.
func (c *CertificateFiles) logOnce(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != c.lastError {
		c.log.Warn("Cannot load the renewed certificate; keeping the current one and retrying.", "error", err)
	}
	c.lastError = text
}
