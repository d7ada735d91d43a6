package elastic

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	maxReply = 64 << 10
	// dialTimeout bounds connecting; a request is bounded by its context.
	dialTimeout = 3 * time.Second
	// handshakeTimeout is as long as the service's: one that 10,000 agents reach at once takes seconds.
	handshakeTimeout = headerTimeout
	// clientIdle is short: an active agent keeps its connections in use.
	clientIdle = 30 * time.Second
	// answerMargin is how much longer than a beat a member waits for any answer, unless half a beat is less.
	answerMargin = 2 * time.Second
	// registerBound bounds a registration, unless a beat is less.
	registerBound = 5 * time.Second
	// clientBuffer is enough for any request or reply, and a quarter of net/http's default.
	clientBuffer = 1 << 10
)

// AnswerBound is how long a member of a service with this beat goes without any answer before it registers again. The service holds
// a request for up to a beat.
func AnswerBound(beat time.Duration) time.Duration { return beat + min(answerMargin, beat/2) }

// RegisterBound bounds a registration; beat is 0 before the first. With AnswerBound it is less than a lease, of three beats: a member
// that finds the service hung registers with the next one before it is taken for lost there.
func RegisterBound(beat time.Duration) time.Duration {
	if beat == 0 {
		return registerBound
	}
	return min(registerBound, beat)
}

// Client talks to a Server as one member. It is safe for concurrent use. Refusals are *Error; test for them with errors.Is. Any
// other error means that the service was not reached, or something else answered.
type Client struct {
	base  string
	token string
	http  *http.Client
}

// NewClient makes a client of the service at an https URL: the token is sent only to who proves to be the service. roots verify
// its certificate; nil means the system's.
func NewClient(service, token string, roots *x509.CertPool) (*Client, error) {
	u, err := url.Parse(service)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is not the URL of a service: write https://HOST:PORT", service)
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	return &Client{
		base:  strings.TrimSuffix(service, "/"),
		token: token,
		http: &http.Client{
			Transport: &http.Transport{
				DialContext:         dialer.DialContext,
				TLSHandshakeTimeout: handshakeTimeout,
				TLSClientConfig:     clientTLS(roots),
				// One request is held open; another may run concurrently to report news.
				MaxIdleConnsPerHost: 2,
				IdleConnTimeout:     clientIdle,
				DisableCompression:  true,
				ReadBufferSize:      clientBuffer,
				WriteBufferSize:     clientBuffer,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return errors.New("the service answered with a redirect: the token is not sent elsewhere")
			},
		},
	}, nil
}

// clientTLS is how a client verifies the service. Of the key exchanges P-256 costs both sides the least, which counts when a next
// master takes over 10,000 agents: see bench/tls.md.
func clientTLS(roots *x509.CertPool) *tls.Config {
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, CurvePreferences: []tls.CurveID{tls.CurveP256}}
}

// Register registers the member.
func (c *Client) Register(ctx context.Context, jobName string, r RegisterRequest) (RegisterReply, error) {
	var out RegisterReply
	err := c.do(ctx, http.MethodPost, jobName, "register", r, &out)
	return out, err
}

// Sync reports the member's state and returns the current order, once it differs from r.Seen or the beat is due.
func (c *Client) Sync(ctx context.Context, jobName string, r SyncRequest) (SyncReply, error) {
	var out SyncReply
	err := c.do(ctx, http.MethodPost, jobName, "sync", r, &out)
	return out, err
}

// Members lists the present members.
func (c *Client) Members(ctx context.Context, jobName string) (Membership, error) {
	var out Membership
	err := c.do(ctx, http.MethodGet, jobName, "members", nil, &out)
	return out, err
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func (c *Client) do(ctx context.Context, method, jobName, verb string, in, out any) error {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("%s: %w", verb, err)
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+"/v1/jobs/"+url.PathEscape(jobName)+"/"+verb, body)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxReply+1))
	if err != nil {
		return fmt.Errorf("%s: read the reply: %w", verb, err)
	}
	if res.StatusCode != http.StatusOK {
		return refusal(verb, res.Status, raw)
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("%s: invalid reply from the service: %w", verb, err)
	}
	return nil
}

// refusal is the service's error, or an error if something else answered: a proxy, or another process on the address.
func refusal(verb, status string, raw []byte) error {
	var e ErrorReply
	if err := json.Unmarshal(raw, &e); err != nil || e.Code == "" {
		return fmt.Errorf("%s: %s: the reply is not from the service: %.200q", verb, status, raw)
	}
	return &Error{e.Code, e.Message}
}
