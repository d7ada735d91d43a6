// Package notify delivers messages of notify blocks: it posts them to a URL, or passes them to a command. It decides neither what
// is told nor when, and retries nothing. A receiver may hang, fail or answer without end: ctx bounds each delivery.
package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/eltrain/eltrain/internal/command"
	"github.com/eltrain/eltrain/job"
)

// Format is the version of Body. A minor version adds fields.
const Format = "1.0"

// Body is a message as receivers get it. Its names are those of events and of the status.
type Body struct {
	FormatVersion string          `json:"format_version"`
	ID            string          `json:"id"` // the same whenever the message is delivered again
	Notify        string          `json:"notify"`
	Event         job.NotifyEvent `json:"event"`
	Job           string          `json:"job"` // its address
	UID           string          `json:"uid"`
	Address       string          `json:"address"` // what it is about
	Since         time.Time       `json:"since"`
	Time          time.Time       `json:"time"`
	Message       string          `json:"message"`
	ReasonCode    job.Reason      `json:"reason_code"` // the message in a code
	Text          string          `json:"text"`        // for chats
}

// seals replaces seals of sensitive values by a text without their digest.
func seals(text string) string {
	return new(job.Secrets).Replace(text, func(string) string { return job.Sensitive })
}

// BodyOf returns a message's body. text has placeholders; sentence is the message's reason in words.
func BodyOf(m job.Message, text, sentence string) Body {
	b := Body{
		FormatVersion: Format, ID: m.ID, Notify: m.Notify, Event: m.Event, Job: "job." + m.Job, UID: m.UID, Address: m.Address,
		Since: m.Since.UTC(), Time: m.Time.UTC(), Message: seals(sentence), ReasonCode: m.Reason.Map(seals),
	}
	b.Text = strings.NewReplacer(
		"{notify}", b.Notify, "{event}", string(b.Event), "{job}", b.Job, "{address}", b.Address, "{message}", b.Message,
		"{code}", string(b.ReasonCode.Code), "{since}", b.Since.Format(time.RFC3339), "{time}", b.Time.Format(time.RFC3339),
	).Replace(text)
	return b
}

// Deliver delivers a body. The error has neither the URL nor headers in it, which may be secret; what a command printed it has.
func Deliver(ctx context.Context, h job.Hook, b Body) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(b); err != nil {
		return err
	}
	if len(h.Command) > 0 {
		return command.Run(ctx, h.Command, &text, nil)
	}
	return post(ctx, h, b.ID, &text)
}

// client follows no redirect: it would lead, with the message and its headers, where the files do not say.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// mostAnswer bounds what is read of an answer, in bytes: enough to use the connection again after a usual one.
const mostAnswer = 64 << 10

func post(ctx context.Context, h job.Hook, id string, body io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, body)
	if err != nil {
		return errors.New("the URL is invalid")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", id)
	for name, value := range h.Headers {
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		if inner := (*url.Error)(nil); errors.As(err, &inner) {
			err = inner.Err // without the URL
		}
		return fmt.Errorf("post: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("post: the answer is %s", resp.Status)
	}
	io.CopyN(io.Discard, resp.Body, mostAnswer) // the message was accepted, whatever else comes
	return nil
}
