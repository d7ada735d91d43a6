package elastic

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
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

// certificate is the service's own certificate, loaded from files. Whoever renews it replaces the files.
type certificate struct {
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

// pair is a certificate with its key, and the contents of both files.
type pair struct {
	certificate *tls.Certificate
	cert, key   []byte
}

func (p pair) same(o pair) bool { return bytes.Equal(p.cert, o.cert) && bytes.Equal(p.key, o.key) }

func (c *certificate) read() (pair, error) {
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

// load reads the certificate to serve first.
func (c *certificate) load() error {
	p, err := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served = p
	return err
}

// get implements tls.Config.GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.served.certificate, nil
}

// certificates are the CA certificates, in PEM, for what is served and what will be served next.
func (c *certificate) certificates() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Concat(c.next.cert, c.served.cert)
}

// watch reloads the files until closing is closed.
func (c *certificate) watch(closing <-chan struct{}) {
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
func (c *certificate) renew(now time.Time) {
	p, err := c.read()
	if err == nil && c.setNext(p) {
		err = c.announce(now)
	}
	if c.serveNext(now) {
		c.log.Info("The service uses its renewed certificate.", "expires", c.served.certificate.Leaf.NotAfter)
		c.oldAnnounced = true
	}
	if c.oldAnnounced {
		told := c.renewed(c.certificates()) // without the old one
		c.oldAnnounced = told != nil
		err = cmp.Or(err, told)
	}
	c.logOnce(err)
}

// setNext stores the files' content, and reports whether it must be announced.
func (c *certificate) setNext(p pair) bool {
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

func (c *certificate) announce(now time.Time) error {
	if err := c.renewed(c.certificates()); err != nil {
		return fmt.Errorf("publish the renewed certificate to the agents: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.announcedAt = now
	return nil
}

// serveNext starts serving next if it is time, and reports whether it did.
func (c *certificate) serveNext(now time.Time) bool {
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
func (c *certificate) logOnce(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != c.lastError {
		c.log.Warn("Cannot load the renewed certificate; keeping the current one and retrying.", "error", err)
	}
	c.lastError = text
}
