package httpbridge_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/watermillbridge/httpbridge"
)

func TestBadInputIsRefused(t *testing.T) {
	t.Parallel()
	endpoint := func(e httpbridge.Endpoint) httpbridge.Config {
		return httpbridge.Config{Endpoints: map[string]httpbridge.Endpoint{"orders": e}}
	}
	headers := func(name, v string) httpbridge.Config {
		return endpoint(httpbridge.Endpoint{URL: "https://a.example", Headers: map[string]string{name: v}})
	}
	for name, tc := range map[string]struct {
		cfg   httpbridge.Config
		is    error
		names string
	}{
		"no URL":      {endpoint(httpbridge.Endpoint{}), httpbridge.ErrEndpoint, `topic "orders"`},
		"relative":    {endpoint(httpbridge.Endpoint{URL: "/hooks"}), httpbridge.ErrEndpoint, "not absolute"},
		"no host":     {endpoint(httpbridge.Endpoint{URL: "https:///hooks"}), httpbridge.ErrEndpoint, "not absolute"},
		"another":     {endpoint(httpbridge.Endpoint{URL: "file:///etc/passwd"}), httpbridge.ErrEndpoint, "https"},
		"unparseable": {endpoint(httpbridge.Endpoint{URL: "https://s3cret\x7f"}), httpbridge.ErrEndpoint, "parsed"},
		"plain HTTP": {
			endpoint(httpbridge.Endpoint{URL: "http://a.example"}), httpbridge.ErrUnsafeConfig, "AllowHTTP",
		},
		"a password": {
			endpoint(httpbridge.Endpoint{URL: "https://u:s3cret@a.example"}), httpbridge.ErrEndpoint, "Authorization",
		},
		"a fragment": {
			endpoint(httpbridge.Endpoint{URL: "https://a.example/#s3cret"}), httpbridge.ErrEndpoint, "fragment",
		},
		"a secret": {
			endpoint(httpbridge.Endpoint{URL: "https://a.example", Secrets: []string{"s3cret"}}),
			httpbridge.ErrEndpoint, "secret 0",
		},
		"a header of HTTP": {headers("host", "b.example"), httpbridge.ErrEndpoint, `"host"`},
		"our header":       {headers("Webhook-Id", "1"), httpbridge.ErrEndpoint, `"Webhook-Id"`},
		"a header's name":  {headers("a b", "1"), httpbridge.ErrEndpoint, `"a b"`},
		"a header's value": {headers("a", "s3cret\n"), httpbridge.ErrEndpoint, `"a"`},
		"both": {httpbridge.Config{
			Endpoints: map[string]httpbridge.Endpoint{},
			Endpoint:  func(string) (httpbridge.Endpoint, error) { return httpbridge.Endpoint{}, nil },
		}, nil, "set one"},
		"timeout":     {httpbridge.Config{Timeout: -1}, nil, "Config.Timeout"},
		"connections": {httpbridge.Config{MaxConnsPerHost: -1}, nil, "Config.MaxConnsPerHost"},
		"retry after": {httpbridge.Config{MaxRetryAfter: 25 * time.Hour}, nil, "Config.MaxRetryAfter"},
		"body":        {httpbridge.Config{MaxBody: -1}, nil, "Config.MaxBody"},
		"metadata":    {httpbridge.Config{MaxMetadata: -1}, nil, "Config.MaxMetadata"},
		"network":     {httpbridge.Config{AllowAddresses: make([]netip.Prefix, 1)}, nil, "AllowAddresses[0]"},
		"binding": {
			httpbridge.Config{CloudEvents: &cloudevents.Mapper{Source: "/a", Binding: cloudevents.Kafka}},
			nil,
			"Binding is kafka",
		},
		"source": {httpbridge.Config{CloudEvents: &cloudevents.Mapper{}}, nil, "Source"},
	} {
		_, err := httpbridge.NewPublisher(tc.cfg)
		if err == nil || tc.is != nil && !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.names) {
			t.Errorf("%s: %v, want %v that names %s", name, err, tc.is, tc.names)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error tells the secret: %v", name, err)
		}
	}
}

// Later changes of the caller's Config change nothing.
func TestTheConfigIsCopied(t *testing.T) {
	t.Parallel()
	cfg := httpbridge.Config{Endpoints: map[string]httpbridge.Endpoint{"a": {URL: "https://a.example"}}}
	p, err := httpbridge.NewPublisher(cfg)
	must(t, err)
	cfg.Endpoints["b"] = httpbridge.Endpoint{}
	if got := p.Topics(); len(got) != 1 {
		t.Errorf("topics %q", got)
	}
}
