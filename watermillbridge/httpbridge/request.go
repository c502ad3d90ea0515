package httpbridge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
)

// Names of the headers of watermill-http.
const (
	headerUUID     = "Message-Uuid"
	headerMetadata = "Message-Metadata"
)

// Request is a message that is not an event of an outbox, such as an effect. ID is required.
type Request struct {
	// ID identifies the message: it becomes Idempotency-Key and webhook-id. It must be the same for
	// every attempt: take command.Effect.IdempotencyKey. Visible ASCII without a dot.
	ID string
	// Body is sent byte for byte.
	Body []byte
	// ContentType describes Body. Empty: none.
	ContentType string
	// Headers are sent as they are: visible ASCII. A name that HTTP or this package writes, or that
	// the Endpoint has too, is refused. Nil: none.
	Headers map[string]string
}

// post is a request before it is sent.
type post struct {
	webhookID, idempotencyKey string
	headers                   map[string]string // under names that HTTP can carry
	body                      []byte
}

func (r Request) post(e Endpoint) (post, error) {
	if !isVisible(r.ID) || r.ID == "" || strings.ContainsAny(r.ID, " .") {
		return post{}, fmt.Errorf("httpbridge: Request.ID %.64q is empty, or has other characters than visible "+
			"ASCII without blank and dot", r.ID)
	}
	own := map[string]bool{}
	for name := range e.Headers {
		own[http.CanonicalHeaderKey(name)] = true
	}
	p := post{webhookID: r.ID, idempotencyKey: r.ID, body: r.Body, headers: make(map[string]string, len(r.Headers)+1)}
	for name, v := range r.Headers {
		if !isToken(name) || !isVisible(v) || isOwn(name) || own[http.CanonicalHeaderKey(name)] {
			return post{}, fmt.Errorf("httpbridge: Request.Headers: %.64q cannot be sent: the name is no token or is "+
				"written by HTTP, httpbridge or the Endpoint, or the value has other characters than ASCII", name)
		}
		p.headers[name] = v
	}
	md := maps.Clone(p.headers)
	md[core.HeaderEventID] = r.ID
	if r.ContentType != "" {
		if !isVisible(r.ContentType) {
			return post{}, errors.New("httpbridge: Request.ContentType has other characters than ASCII")
		}
		p.headers["Content-Type"], md[core.HeaderContentType] = r.ContentType, r.ContentType
	}
	text, err := encodeMetadata(md)
	p.headers[headerMetadata] = text
	return p, err
}

// postOf returns the request of an event. Headers that HTTP cannot carry are in Message-Metadata
// alone.
func (c *Config) postOf(d core.Delivery) (post, error) {
	p := post{webhookID: d.ID, idempotencyKey: d.RowID.String(), body: d.Payload}
	md := d.Metadata()
	uuid := unpack(md)
	uuid = cmp.Or(uuid, d.ID)
	if c.CloudEvents != nil {
		ce, err := c.CloudEvents.Message(d)
		if err != nil {
			return post{}, err
		}
		maps.DeleteFunc(md, func(name, _ string) bool { return c.CloudEvents.Collides(name) })
		maps.Copy(md, ce.Headers)
		p.body = ce.Body
	}
	text, err := encodeMetadata(md)
	if err != nil {
		return post{}, err
	}
	p.headers = make(map[string]string, len(d.Headers)+12)
	for name, v := range md {
		if _, mine := d.Headers[name]; !mine && !cloudevents.HTTP.Owns(name) {
			continue // a field of the event: only Message-Metadata has it
		}
		if isToken(name) && isVisible(v) && !isOwn(name) && name != core.HeaderMessage {
			p.headers[name] = v
		}
	}
	p.headers[headerMetadata] = text
	if t := md[core.HeaderContentType]; t != "" && isVisible(t) {
		p.headers["Content-Type"] = t
	}
	if isVisible(uuid) {
		p.headers[headerUUID] = uuid
	}
	return p, nil
}

// checkSize returns an error for an event that is too large at any of its attempts.
func (c *Config) checkSize(e core.Event) error {
	beside := len(e.ContentType) + len(e.TenantID) + len(e.AggregateType) + len(e.AggregateID) + len(e.Key) +
		len(e.Type)
	for name, v := range e.Headers {
		beside += len(name) + len(v) + 6
	}
	payload := len(e.Payload)
	if c.CloudEvents != nil {
		payload, beside = 2*payload+8<<10, 2*beside+2<<10
	}
	// Of each byte at most six are sent. Names and numbers of the fields need less than 1 KiB.
	if payload <= c.MaxBody && 6*beside+1<<10 <= c.MaxMetadata {
		return nil
	}
	id := core.RowID{1}
	p, err := c.postOf(core.Delivery{
		Event: e, RowID: id, ReplayOf: id, KeySeq: math.MaxInt64, Attempt: math.MaxInt32,
	})
	switch {
	case err != nil:
		return err
	case len(p.body) > c.MaxBody:
		return fmt.Errorf("httpbridge: the body would have %d bytes, more than Config.MaxBody %d: store the payload "+
			"elsewhere and send a reference, or raise Config.MaxBody together with the limit of the receiver",
			len(p.body), c.MaxBody)
	case len(p.headers[headerMetadata]) > c.MaxMetadata:
		return fmt.Errorf("httpbridge: headers and fields of the event would have %d bytes in Message-Metadata, more "+
			"than Config.MaxMetadata %d: put them into the payload, or raise Config.MaxMetadata together with the "+
			"limit of the receiver", len(p.headers[headerMetadata]), c.MaxMetadata)
	}
	return nil
}

// request makes the request of p.
func (p post) request(ctx context.Context, e Endpoint, now time.Time) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(p.body))
	if err != nil {
		return nil, fmt.Errorf("%w: the URL cannot be parsed", ErrEndpoint)
	}
	for _, name := range slices.Sorted(maps.Keys(p.headers)) { // two names may differ by their case alone
		r.Header.Set(name, p.headers[name])
	}
	for name, v := range e.Headers {
		r.Header.Set(name, v)
	}
	if r.Header.Get("User-Agent") == "" {
		r.Header.Set("User-Agent", "ormoutbox")
	}
	r.Header.Set(headerIdempotencyKey, p.idempotencyKey)
	r.Header.Set(headerWebhookID, p.webhookID)
	r.Header.Set(headerWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	if len(e.Secrets) > 0 {
		if err := signRequest(r.Header, p.webhookID, now, p.body, e.Secrets); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrEndpoint, err)
		}
	}
	return r, nil
}

// Metadata returns the headers and fields of the event of a received request, exactly as they were
// recorded, for coreinbox.Message.Headers. Of a request of Publisher.Send it returns
// Request.Headers, the content type, and Request.ID as event_id. Of a request of another sender it
// returns webhook-id as event_id, and nothing else, because Standard Webhooks signs no other
// header. Check the request with Verify or VerifyStandard first.
func Metadata(h http.Header) (map[string]string, error) {
	if name := doubled(h); name != "" {
		return nil, fmt.Errorf("httpbridge: header %s stands twice", name)
	}
	id, text := h.Get(headerWebhookID), h.Get(headerMetadata)
	if text == "" {
		if id == "" {
			return nil, errors.New("httpbridge: the request has neither Message-Metadata nor webhook-id")
		}
		return map[string]string{core.HeaderEventID: id}, nil
	}
	var md map[string]string
	if err := json.Unmarshal([]byte(text), &md); err != nil {
		return nil, fmt.Errorf("httpbridge: header Message-Metadata: %w", err)
	}
	if event := md[core.HeaderEventID]; id != "" && event != id {
		return nil, fmt.Errorf("httpbridge: header Message-Metadata: event_id %.64q is not the webhook-id %.64q",
			event, id)
	}
	return md, nil
}

// encodeMetadata writes metadata as JSON in ASCII, which every proxy leaves as it is.
func encodeMetadata(md map[string]string) (string, error) {
	text, err := json.Marshal(md)
	if err != nil {
		return "", fmt.Errorf("httpbridge: metadata: %w", err)
	}
	i := bytes.IndexFunc(text, func(r rune) bool { return r >= 0x7f })
	if i < 0 {
		return string(text), nil
	}
	var b strings.Builder
	b.Write(text[:i])
	for _, r := range string(text[i:]) {
		switch {
		case r < 0x7f:
			b.WriteByte(byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String(), nil
}

// unpack replaces the header core.HeaderMessage by the metadata of Watermill that it carries, and
// returns the UUID that came with them, if any.
func unpack(md map[string]string) (uuid string) {
	v, ok := md[core.HeaderMessage]
	if !ok {
		return ""
	}
	var carried struct {
		UUID     string            `json:"uuid"`
		Metadata map[string]string `json:"metadata"`
	}
	if json.Unmarshal([]byte(v), &carried) != nil {
		return ""
	}
	delete(md, core.HeaderMessage)
	for name, v := range carried.Metadata {
		if _, taken := md[name]; !taken {
			md[name] = v
		}
	}
	return carried.UUID
}

// isOwn reports whether HTTP or this package writes a header.
func isOwn(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Host", "Content-Length", "Content-Encoding", "Transfer-Encoding", "Connection", "Keep-Alive",
		"Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Upgrade", "Expect", "Content-Type",
		headerIdempotencyKey, headerWebhookID, headerWebhookTimestamp, headerWebhookSignature, headerUUID,
		headerMetadata:
		return true
	}
	return false
}

// isToken reports whether s can be the name of a header.
func isToken(s string) bool {
	const others = "!#$%&'*+-.^_`|~"
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(others, r)
	})
}

// isVisible reports whether s arrives unchanged as the value of a header: visible ASCII, and blanks
// inside.
func isVisible(s string) bool {
	hidden := func(r rune) bool { return r < ' ' || r >= 0x7f }
	return strings.TrimSpace(s) == s && !strings.ContainsFunc(s, hidden)
}
