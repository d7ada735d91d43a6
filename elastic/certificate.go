package elastic

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// certificateLook is how often the files of the certificate are looked at: they are replaced days before it expires.
	certificateLook = 10 * time.Second
	// certificateNews is how long a renewed one is not served yet after it was told of: a kubelet may take two minutes to
	// bring it to agents, and one that cannot trust the service when it connects again is lost with its lease.
	certificateNews = 3 * time.Minute
)

// certificate is the service's own, as its files have it. Whoever renews it replaces them.
type certificate struct {
	certFile, keyFile string
	look, news        time.Duration
	log               *slog.Logger
	renewed           func(certificates []byte) error

	mu     sync.Mutex
	served pair
	next   pair      // what the files have now; zero if that is served
	told   time.Time // when renewed took next; zero if it did not
	former bool      // renewed has yet to take that the one before is no longer served
	failed string    // what went wrong at the last look, which is said once
}

// pair is a certificate with its key, and the text of both files.
type pair struct {
	certificate *tls.Certificate
	cert, key   []byte
}

func (p pair) same(o pair) bool { return bytes.Equal(p.cert, o.cert) && bytes.Equal(p.key, o.key) }

func (c *certificate) read() (pair, error) {
	var p pair
	var err error
	if p.cert, err = os.ReadFile(c.certFile); err == nil {
		p.key, err = os.ReadFile(c.keyFile)
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

// load reads what is served from the start.
func (c *certificate) load() error {
	p, err := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served = p
	return err
}

// get is what a connection is served, as tls.Config asks for it.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.served.certificate, nil
}

// certificates vouch, in PEM, for what is served and for what will be.
func (c *certificate) certificates() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Concat(c.next.cert, c.served.cert)
}

// keep looks at the files until closing is closed.
func (c *certificate) keep(closing <-chan struct{}) {
	look := time.NewTicker(c.look)
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

// renew takes one look. What the files have now is told of first and served later, or at once if what is served has
// expired. Files that make no sense change nothing: they may be half replaced.
func (c *certificate) renew(now time.Time) {
	p, err := c.read()
	if err == nil && c.differs(p) {
		err = c.tell(now)
	}
	if c.due(now) {
		c.log.Info("The service uses its renewed certificate.", "expires", c.served.certificate.Leaf.NotAfter)
		c.former = true
	}
	if c.former {
		told := c.renewed(c.certificates()) // without the old one
		c.former = told != nil
		err = cmp.Or(err, told)
	}
	c.say(err)
}

// differs notes what the files have, and reports whether it is to be told of.
func (c *certificate) differs(p pair) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case p.same(c.served):
		c.next, c.told = pair{}, time.Time{}
	case !p.same(c.next):
		c.next, c.told = p, time.Time{}
	}
	return c.next.certificate != nil && c.told.IsZero()
}

func (c *certificate) tell(now time.Time) error {
	if err := c.renewed(c.certificates()); err != nil {
		return fmt.Errorf("publish the renewed certificate to the agents: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = now
	return nil
}

// due serves what is next if it is time.
func (c *certificate) due(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := !c.told.IsZero() && now.Sub(c.told) >= c.news
	if c.next.certificate == nil || !known && now.Before(c.served.certificate.Leaf.NotAfter) {
		return false
	}
	c.served, c.next, c.told = c.next, pair{}, time.Time{}
	return true
}

// say logs what went wrong, once.
func (c *certificate) say(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != c.failed {
		c.log.Warn("Cannot load the renewed certificate; keeping the current one and retrying.", "error", err)
	}
	c.failed = text
}
