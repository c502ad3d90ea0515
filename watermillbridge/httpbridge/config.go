package httpbridge

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
)

// errUnsafeConfig: a setting of Config would send events to anybody. The error names each one with
// the reason and the remedy.
var errUnsafeConfig = errors.New("httpbridge: unsafe configuration")

// ErrEndpoint: an Endpoint cannot be used. The error names the problem without the secrets. Publish
// takes it for an outage of the topic, and Send for a permanent failure.
var ErrEndpoint = errors.New("httpbridge: invalid endpoint")

// Endpoint is a place that receives webhooks. URL is required.
type Endpoint struct {
	// URL is absolute: https://partner.example/hooks. The scheme http needs Config.AllowHTTP. It
	// must not have a user or a fragment. Error texts name its scheme and host alone.
	URL string
	// Secrets are the keys of signatures, in the form of Standard Webhooks: "whsec_" and the base64
	// of 24 to 64 random bytes. Each of them signs, so that a receiver can go from the old one to
	// the new one: first the new one, then the old one. Empty: requests are not signed.
	Secrets []string
	// Headers are sent with each request, such as Authorization. Their values are taken out of
	// error texts. A header of an event cannot replace them. Names that HTTP or this package writes
	// are refused.
	Headers map[string]string
}

// Config configures a Publisher. Endpoints or Endpoint is required, unless only Send is used.
type Config struct {
	// Endpoints are the endpoints by topic. A relay with this Publisher claims these topics alone.
	// It is copied.
	Endpoints map[string]Endpoint
	// Endpoint returns the endpoint of a topic; it excludes Endpoints. A relay claims every topic
	// then. It is called for each request, by many goroutines, and must be quick. An unmarked error
	// is judged as an error of the destination.
	Endpoint func(topic string) (Endpoint, error)

	// CloudEvents sends each event as a CloudEvent. Its Binding may be empty. An event that breaks
	// a rule of CloudEvents is refused when it is recorded. It is copied. Default: none.
	CloudEvents *cloudevents.Mapper

	// Timeout is the longest time of a request, from the connection to the head of the answer. The
	// context may end it earlier, as a relay's does after relay.Config.PublishTimeout. Default: 10
	// s.
	Timeout time.Duration
	// MaxConnsPerHost is the number of connections to one host. Further requests wait for a free
	// connection. Default: 32, which is relay.Config.Workers.
	MaxConnsPerHost int
	// MaxRetryAfter is the longest Retry-After that is honoured; a longer one counts as this one.
	// At most 24 hours. Default: 10 minutes.
	MaxRetryAfter time.Duration
	// MaxBody is the largest body, in bytes. An event with a larger one is refused when it is
	// recorded. Default: 1 MiB, nginx's default limit.
	MaxBody int
	// MaxMetadata is the largest value of Message-Metadata, in bytes. An event with a larger one is
	// refused when it is recorded. Default: 7 KiB, because many servers take 8 KiB of one header.
	MaxMetadata int
	// ClassOfStatus replaces ClassOfStatus for statuses that are not 2xx. Default: ClassOfStatus.
	ClassOfStatus func(status int) core.Class

	// AllowHTTP permits URLs with http. Anybody on the way can then read and change the events; the
	// signature shows changes.
	AllowHTTP bool
	// AllowAddresses are networks to which connections are permitted although they are private,
	// such as netip.MustParsePrefix("10.1.0.0/16"). Default: none.
	AllowAddresses []netip.Prefix
	// TLS has certificates of clients and authorities. It is copied. InsecureSkipVerify is refused.
	TLS *tls.Config
	// Proxy returns the proxy of a request, as http.ProxyFromEnvironment does. The proxy connects
	// to the endpoint then, so the proxy has to check addresses: this package checks only the
	// proxy's own address. Default: none.
	Proxy func(*http.Request) (*url.URL, error)
}

// validate fills in the defaults and reports every problem.
func (c *Config) validate() error {
	var problems []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, fmt.Errorf("httpbridge: Config."+format, args...))
		}
	}
	bad(c.Endpoints != nil && c.Endpoint != nil, "Endpoints and Endpoint are both set: set one")
	bad(c.Timeout < 0, "Timeout %s is negative", c.Timeout)
	bad(c.MaxConnsPerHost < 0, "MaxConnsPerHost %d is negative", c.MaxConnsPerHost)
	bad(c.MaxRetryAfter < 0 || c.MaxRetryAfter > 24*time.Hour, "MaxRetryAfter %s is not between 0 and 24h",
		c.MaxRetryAfter)
	bad(c.MaxBody < 0, "MaxBody %d is negative", c.MaxBody)
	bad(c.MaxMetadata < 0, "MaxMetadata %d is negative", c.MaxMetadata)
	for i, p := range c.AllowAddresses {
		bad(!p.IsValid(), "AllowAddresses[%d] is no network: use netip.MustParsePrefix", i)
	}
	if c.TLS != nil && c.TLS.InsecureSkipVerify {
		problems = append(problems, fmt.Errorf("%w: Config.TLS.InsecureSkipVerify: anybody on the way could pose as "+
			"the receiver; set Config.TLS.RootCAs to the receiver's authority", errUnsafeConfig))
	}
	if c.CloudEvents != nil {
		own := *c.CloudEvents
		if own.Binding == 0 {
			own.Binding = cloudevents.HTTP
		}
		bad(own.Binding != cloudevents.HTTP, "CloudEvents.Binding is %s: leave it empty", own.Binding)
		if err := own.Validate(); err != nil {
			problems = append(problems, fmt.Errorf("httpbridge: Config.CloudEvents: %w", err))
		}
		c.CloudEvents = &own
	}
	for _, topic := range slices.Sorted(maps.Keys(c.Endpoints)) {
		if err := c.Endpoints[topic].validate(c.AllowHTTP); err != nil {
			problems = append(problems, fmt.Errorf("topic %q: %w", topic, err))
		}
	}
	c.Endpoints = maps.Clone(c.Endpoints)
	for topic, e := range c.Endpoints {
		e.Secrets, e.Headers = slices.Clone(e.Secrets), maps.Clone(e.Headers)
		c.Endpoints[topic] = e
	}
	c.AllowAddresses = slices.Clone(c.AllowAddresses)
	c.defaults()
	return errors.Join(problems...)
}

func (c *Config) defaults() {
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.MaxRetryAfter = cmp.Or(c.MaxRetryAfter, 10*time.Minute)
	c.MaxConnsPerHost = cmp.Or(c.MaxConnsPerHost, 32)
	c.MaxBody = cmp.Or(c.MaxBody, 1<<20)
	c.MaxMetadata = cmp.Or(c.MaxMetadata, 7<<10)
	if c.ClassOfStatus == nil {
		c.ClassOfStatus = ClassOfStatus
	}
}

// proxy returns Proxy with errors that do not have the address of the proxy, where its password is.
func (c *Config) proxy() func(*http.Request) (*url.URL, error) {
	ask := c.Proxy
	if ask == nil {
		return nil
	}
	return func(r *http.Request) (*url.URL, error) {
		u, err := ask(r)
		if err != nil {
			return nil, errors.New("Config.Proxy has no valid address of a proxy")
		}
		return u, nil
	}
}

// validate reports every problem of e. The error wraps ErrEndpoint and has no secrets.
func (e Endpoint) validate(allowHTTP bool) error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	u, err := url.Parse(e.URL)
	switch {
	case err != nil:
		bad("the URL cannot be parsed") // the text of err has the URL
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		bad("the URL is not absolute with scheme https and a host")
	case u.Scheme == "http" && !allowHTTP:
		problems = append(problems, fmt.Errorf("%w: the URL has scheme http, so anybody on the way can read the "+
			"events: use https, or set Config.AllowHTTP", errUnsafeConfig))
	case u.User != nil:
		bad("the URL has a user: set the header Authorization of the Endpoint")
	case u.Fragment != "":
		bad("the URL has a fragment, which is never sent")
	}
	for i, secret := range e.Secrets {
		if _, err := decodeSecret(secret); err != nil {
			bad("secret %d %w", i, err)
		}
	}
	for name, v := range e.Headers {
		switch {
		case !isToken(name) || !isVisible(v):
			bad("header %.64q cannot be sent: the name is no token, or the value has other characters than ASCII",
				name)
		case isOwn(name):
			bad("header %.64q is written by HTTP or by httpbridge: leave it out", name)
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrEndpoint, errors.Join(problems...))
}

// hostOf returns scheme and host of a URL. Paths and queries of webhooks often are secrets.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the endpoint"
	}
	return u.Scheme + "://" + strings.ToLower(u.Host)
}
