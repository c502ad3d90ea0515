package httpbridge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// Errors that callers branch on with errors.Is.
var (
	// errNoEndpoint: Config.Endpoints has no endpoint for the topic. Its class is Unavailable: the
	// event waits for a process whose Endpoints have the topic.
	errNoEndpoint = errors.New("httpbridge: the topic has no endpoint")
	// ErrPaused: the endpoint has asked for a pause by Retry-After, which is not over. Nothing was
	// sent. The topic, or the effect, waits until the pause is over.
	ErrPaused = errors.New("httpbridge: the endpoint has asked for a pause")
	// errClosed: Publish or Send was called after Close. Its class is Unavailable.
	errClosed = errors.New("httpbridge: publisher is closed")
)

const (
	maxAnswerHead = 64 << 10               // bytes of the head of an answer that are read
	maxAnswerBody = 16 << 10               // bytes of its body
	answerBodyFor = 250 * time.Millisecond // how long its body is read
	maxQuoted     = 200                    // bytes of its body in an error
	maxRequestID  = 128
)

// Publisher posts events to webhooks. It implements core.ReceiptPublisher, core.SizeChecker and
// core.TopicLister. It is safe for use by several goroutines.
type Publisher struct {
	cfg       Config
	client    *http.Client
	transport *http.Transport
	throttle  throttle

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
}

// NewPublisher returns a Publisher. It checks cfg, reports every problem at once, and does not
// connect.
func NewPublisher(cfg Config) (*Publisher, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.TLS != nil {
		secure = cfg.TLS.Clone()
		secure.MinVersion = max(secure.MinVersion, tls.VersionTLS12)
	}
	dialer := &net.Dialer{
		Timeout: cfg.Timeout / 2, KeepAlive: 15 * time.Second, Control: control(cfg.AllowAddresses),
	}
	p := &Publisher{cfg: cfg, transport: &http.Transport{
		Proxy: cfg.proxy(), DialContext: dialer.DialContext, TLSClientConfig: secure,
		TLSHandshakeTimeout: cfg.Timeout / 2, ForceAttemptHTTP2: true, DisableCompression: true,
		MaxConnsPerHost: cfg.MaxConnsPerHost, MaxIdleConnsPerHost: cfg.MaxConnsPerHost, MaxIdleConns: 1000,
		IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: maxAnswerHead,
		// A timeout does not end a connection of HTTP/2. Without pings a connection that a firewall
		// has forgotten would be used again until TCP gives up, after a quarter of an hour.
		HTTP2: &http.HTTP2Config{SendPingTimeout: cfg.Timeout, PingTimeout: cfg.Timeout / 2},
	}}
	p.client = &http.Client{
		Transport:     p.transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return p, nil
}

// Topics implements core.TopicLister: the topics of Config.Endpoints, or every topic.
func (p *Publisher) Topics() []string {
	if p.cfg.Endpoint != nil {
		return nil
	}
	topics := slices.Sorted(maps.Keys(p.cfg.Endpoints))
	if topics == nil {
		topics = []string{} // none, where nil would be every topic
	}
	return topics
}

// CheckSize implements core.SizeChecker with Config.MaxBody and Config.MaxMetadata. It also refuses
// an event that Config.CloudEvents cannot send.
func (p *Publisher) CheckSize(e core.Event) error {
	if m := p.cfg.CloudEvents; m != nil {
		if err := m.Check(e); err != nil {
			return err
		}
	}
	return p.cfg.checkSize(e)
}

// Publish implements core.Publisher.
func (p *Publisher) Publish(ctx context.Context, d core.Delivery) error {
	_, err := p.PublishWithReceipt(ctx, d)
	return err
}

// PublishWithReceipt implements core.ReceiptPublisher. The receipt is the status of the answer, and
// the id that the endpoint gave the request: "202 req_1042".
func (p *Publisher) PublishWithReceipt(ctx context.Context, d core.Delivery) (string, error) {
	e, err := p.endpoint(d.Topic)
	if err != nil {
		return "", err
	}
	request, err := p.cfg.postOf(d)
	if err != nil {
		if _, ok := core.ClassOf(err); !ok {
			err = core.Permanent(err)
		}
		return "", err
	}
	// A topic has one endpoint, which asks for a pause of all its events.
	receipt, err := p.send(ctx, e, request, core.UnavailableFor)
	if errors.Is(err, ErrEndpoint) {
		err = core.Unavailable(err)
	}
	return receipt, err
}

func (p *Publisher) endpoint(topic string) (Endpoint, error) {
	if p.cfg.Endpoint == nil {
		e, ok := p.cfg.Endpoints[topic]
		if !ok {
			return e, core.Unavailable(fmt.Errorf("%w: add %q to Config.Endpoints", errNoEndpoint, topic))
		}
		return e, nil
	}
	e, err := p.cfg.Endpoint(topic)
	if err != nil {
		return e, fmt.Errorf("httpbridge: Config.Endpoint of topic %q: %w", topic, err)
	}
	if err := e.validate(p.cfg.AllowHTTP); err != nil {
		return e, core.Unavailable(fmt.Errorf("topic %q: %w", topic, err))
	}
	return e, nil
}

// Send posts a message that is not an event. Its errors have the same classes as Publish's, so the
// handler of an effect returns them as they are. There are two differences. An Endpoint or a
// Request that cannot be sent is permanent. An endpoint that asks for a pause puts off the message
// alone (core.PutOff), because others of its channel go elsewhere. The receipt is the same as from
// PublishWithReceipt.
func (p *Publisher) Send(ctx context.Context, to Endpoint, r Request) (receipt string, err error) {
	if err := to.validate(p.cfg.AllowHTTP); err != nil {
		return "", core.Permanent(err)
	}
	request, err := r.post(to)
	if err != nil {
		return "", core.Permanent(err)
	}
	receipt, err = p.send(ctx, to, request, core.PutOff)
	if errors.Is(err, ErrEndpoint) {
		err = core.Permanent(err)
	}
	return receipt, err
}

// send posts a request. wait marks the error of an endpoint that asks for a pause.
func (p *Publisher) send(ctx context.Context, e Endpoint, request post,
	wait func(error, time.Duration) error,
) (string, error) {
	if err := p.enter(); err != nil {
		return "", err
	}
	defer p.calls.Done()
	host := hostOf(e.URL)
	if ctx.Err() != nil {
		return "", fmt.Errorf("httpbridge: not sent to %s: %w", host, ctx.Err())
	}
	if left := p.throttle.left(e.URL); left > 0 {
		return "", wait(fmt.Errorf("%w: %s, for %s more", ErrPaused, host, left.Round(time.Second)), left)
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	r, err := request.request(ctx, e, time.Now())
	if err != nil {
		return "", err
	}
	answer, err := p.client.Do(r)
	if err != nil {
		return "", failure(ctx, host, err)
	}
	body := beginning(answer, cancel)
	if answer.StatusCode/100 == 2 {
		return receipt(answer), nil
	}
	return "", p.refused(e, answer, body, wait)
}

// beginning returns the beginning of the body of an answer, and closes the body. The head of the
// answer decides, so the body gets little time and little memory. After 101 the body is the bare
// connection, which the context does not end: closing it does.
func beginning(answer *http.Response, cancel func()) []byte {
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode < http.StatusOK {
		return nil
	}
	defer time.AfterFunc(answerBodyFor, func() { cancel(); _ = answer.Body.Close() }).Stop()
	body, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBody))
	return body
}

// failure judges an error without an answer.
func failure(ctx context.Context, host string, err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // the text of u has the URL
	}
	if ctx.Err() != nil {
		// Timeouts are left to the relay, which has seen whether other events were accepted
		// meanwhile.
		return &hostError{host, fmt.Errorf("httpbridge: no answer from %s: %w", host, ctx.Err())}
	}
	return core.Unavailable(&hostError{host, fmt.Errorf("httpbridge: %s cannot be reached: %w", host, err)})
}

// hostError names the host that did not answer, for a command.Worker without Destination.
type hostError struct {
	host string
	error
}

func (e *hostError) Host() string { return e.host }

func (e *hostError) Unwrap() error { return e.error }

// refused judges an answer that is not 2xx.
func (p *Publisher) refused(e Endpoint, answer *http.Response, body []byte,
	wait func(error, time.Duration) error,
) error {
	err := &StatusError{
		Endpoint: hostOf(e.URL), Status: answer.StatusCode, RequestID: requestID(answer.Header), Body: quoted(body, e),
	}
	class := p.cfg.ClassOfStatus(answer.StatusCode)
	if class == core.ClassUnavailable && pauses(answer.StatusCode) {
		if err.RetryAfter = retryAfter(answer.Header, p.cfg.MaxRetryAfter); err.RetryAfter > 0 {
			p.throttle.pause(e.URL, err.RetryAfter)
			return wait(err, err.RetryAfter)
		}
	}
	if class == core.ClassTransient {
		return err
	}
	return class.Mark(err)
}

func receipt(answer *http.Response) string {
	if id := requestID(answer.Header); id != "" {
		return strconv.Itoa(answer.StatusCode) + " " + id
	}
	return strconv.Itoa(answer.StatusCode)
}

// requestID returns the name that the endpoint gave the request.
func requestID(h http.Header) string {
	for _, name := range [...]string{"X-Request-Id", "Request-Id", "X-Correlation-Id"} {
		if id := h.Get(name); id != "" && isVisible(id) {
			return id[:min(len(id), maxRequestID)]
		}
	}
	return ""
}

// minRedacted is the length from which a part of an endpoint is taken out of its answers.
const minRedacted = 4

// quoted returns the beginning of a body for an error text, without secrets of the endpoint. Many
// servers answer 404 or 405 with the path of the request, which may be such a secret.
func quoted(body []byte, e Endpoint) string {
	text := string(body)
	for _, v := range private(e) {
		text = strings.ReplaceAll(text, v, "***")
	}
	return strings.ToValidUTF8(text[:min(len(text), maxQuoted)], "")
}

// private returns the parts of an endpoint that must not be in error texts, the longest first.
func private(e Endpoint) []string {
	var all []string
	for _, v := range e.Headers {
		all = append(append(all, v), strings.Fields(v)...) // "Bearer token", and the token alone
	}
	for _, secret := range e.Secrets {
		all = append(all, strings.TrimPrefix(secret, secretPrefix))
	}
	if u, err := url.Parse(e.URL); err == nil {
		all = append(all, u.RawQuery, u.Path, u.EscapedPath())
		all = append(append(all, strings.Split(u.Path, "/")...), strings.Split(u.EscapedPath(), "/")...)
		for pair := range strings.SplitSeq(u.RawQuery, "&") {
			_, raw, _ := strings.Cut(pair, "=")
			all = append(all, raw)
			if v, err := url.QueryUnescape(raw); err == nil {
				all = append(all, v)
			}
		}
	}
	all = slices.DeleteFunc(all, func(v string) bool { return len(v) < minRedacted })
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return all
}

func (p *Publisher) enter() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return core.Unavailable(errClosed)
	}
	p.calls.Add(1)
	return nil
}

// Close refuses further events, waits until ctx ends for the running requests, and closes the
// connections. If ctx ends first, Close returns its error, and the requests go on until their own
// contexts end. Close it after Run has returned. A second Close does nothing.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	p.mu.Unlock()
	if closed {
		return nil
	}
	defer p.transport.CloseIdleConnections()
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		p.calls.Wait()
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("httpbridge: close: requests have not ended: %w", ctx.Err())
	}
}

var (
	_ core.ReceiptPublisher = (*Publisher)(nil)
	_ core.SizeChecker      = (*Publisher)(nil)
	_ core.TopicLister      = (*Publisher)(nil)
)
