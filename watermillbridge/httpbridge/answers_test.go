package httpbridge_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge/httpbridge"
)

const nowhere = "http://127.0.0.1:1" // no server listens there

// A server answers with each status.
func TestClassOfEachStatus(t *testing.T) {
	t.Parallel()
	status := 0
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	p := newPublisher(t, to(server.URL))
	d := delivery(t)
	for _, status = range []int{200, 201, 202, 203, 204, 205, 206, 207, 299} {
		if receipt, err := p.PublishWithReceipt(t.Context(), d); err != nil || receipt != strconv.Itoa(status) {
			t.Errorf("%d: receipt %q, %v", status, receipt, err)
		}
	}
	for want, statuses := range map[core.Class][]int{
		core.ClassPermanent: {400, 406, 410, 411, 413, 414, 415, 417, 422, 431},
		core.ClassTransient: {409, 418, 424, 499, 500},
		core.ClassUnavailable: {
			101, 300, 301, 302, 303, 304, 307, 308, 401, 402, 403, 404, 405, 407, 408, 421, 423, 425, 426, 428, 429,
			451, 501, 502, 503, 504, 507, 511, 529,
		},
	} {
		for _, status = range statuses {
			err := p.Publish(t.Context(), d)
			class, marked := core.ClassOf(err)
			refused, ok := errors.AsType[*httpbridge.StatusError](err)
			if class != want || marked != (want != core.ClassTransient) || !ok || refused.Status != status ||
				!strings.Contains(err.Error(), fmt.Sprint("answered ", status)) {
				t.Errorf("%d: %v is %v, want %v", status, err, class, want)
			}
			if core.DefaultClassifier(err) != core.ClassTransient {
				t.Errorf("%d: the default classifier has an opinion", status)
			}
		}
	}

	cfg := to(server.URL)
	cfg.ClassOfStatus = func(status int) core.Class { return core.Class(status - 500) }
	p = newPublisher(t, cfg)
	for class := core.ClassTransient; class <= core.ClassUnroutable; class++ {
		status = 500 + int(class)
		if got, _ := core.ClassOf(p.Publish(t.Context(), d)); got != class {
			t.Errorf("a function of one's own: %v, want %v", got, class)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	past := func(later time.Duration) string {
		return time.Date(2020, 1, 1, 12, 0, 0, 0, time.UTC).Add(later).Format(http.TimeFormat)
	}
	for name, tc := range map[string]struct {
		status      int
		after, date string
		want        time.Duration
	}{
		"seconds":                       {429, "30", "", 30 * time.Second},
		"a date by its own clock":       {503, past(90 * time.Second), past(0), 90 * time.Second},
		"of an overload":                {529, "50", "", 50 * time.Second},
		"of a proxy":                    {502, "50", "", 50 * time.Second},
		"too early":                     {425, "60", "", time.Minute},
		"longer than is believed":       {503, "604800", "", time.Hour},
		"a number beyond all":           {503, "18446744073709551615", "", time.Hour},
		"a number beyond that":          {503, "1" + strings.Repeat("0", 400), "", time.Hour},
		"no integer":                    {503, "1.5", "", 1500 * time.Millisecond},
		"none":                          {503, "", "", 0},
		"no time":                       {503, "soon", "", 0},
		"no number":                     {503, "NaN", "", 0},
		"before now":                    {503, "-5", "", 0},
		"zero":                          {503, "0", "", 0},
		"a date that is over":           {503, past(0), past(time.Hour), 0},
		"an event that may be at fault": {500, "30", "", 0},
		"an event that is at fault":     {413, "30", "", 0},
		"no right":                      {401, "30", "", 0},
		"a redirect":                    {302, "30", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				if tc.date != "" {
					w.Header().Set("Date", tc.date)
				}
				w.Header().Set("Retry-After", tc.after)
				w.WriteHeader(tc.status)
			})
			cfg := to(server.URL)
			cfg.MaxRetryAfter = time.Hour
			p := newPublisher(t, cfg)
			err := p.Publish(t.Context(), delivery(t))
			refused, _ := errors.AsType[*httpbridge.StatusError](err)
			class, _ := core.ClassOf(err)
			if refused == nil || refused.RetryAfter != tc.want || tc.want > 0 && class != core.ClassUnavailable {
				t.Fatalf("%v: %v, class %v, want %s", tc, err, class, tc.want)
			}
			// Meanwhile nothing is sent to this endpoint. It is the only one of its topic, and one of many
			// of a channel of effects.
			send := func(to string) error {
				_, err := p.Send(t.Context(), httpbridge.Endpoint{URL: to}, httpbridge.Request{ID: "1"})
				return err
			}
			for want, err := range map[core.Class]error{
				core.ClassUnavailable: p.Publish(t.Context(), delivery(t)), core.ClassKeyUnavailable: send(server.URL),
			} {
				class, _ := core.ClassOf(err)
				if paused := errors.Is(err, httpbridge.ErrPaused); paused != (tc.want > 0) ||
					paused && (requests.Load() != 1 || class != want) {
					t.Errorf("the next one: %v, class %v, want %v, %d requests", err, class, want, requests.Load())
				}
			}
			if err := send(server.URL + "/other"); errors.Is(err, httpbridge.ErrPaused) {
				t.Errorf("another endpoint of the host: %v", err)
			}
		})
	}
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) { // a date by our clock
		w.Header()["Date"] = nil
		w.Header().Set("Retry-After", time.Now().Add(day).UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	err := newPublisher(t, to(server.URL)).Publish(t.Context(), delivery(t))
	refused, _ := errors.AsType[*httpbridge.StatusError](err)
	if refused == nil || refused.RetryAfter != 10*time.Minute {
		t.Errorf("without a clock: %v", err)
	}
}

// A redirect does not take the event anywhere.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int32
	other := serve(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	var server *httptest.Server
	server = serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/same" {
			elsewhere.Add(1)
		}
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		target := other.URL
		if r.URL.Query().Has("same") {
			target = server.URL + "/same"
		}
		http.Redirect(w, r, target, status)
	})
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, same := range []string{"", "&same"} {
			p := newPublisher(t, to(fmt.Sprintf("%s/?status=%d%s", server.URL, status, same)))
			err := p.Publish(t.Context(), delivery(t))
			if class, _ := core.ClassOf(err); class != core.ClassUnavailable ||
				!strings.Contains(err.Error(), "redirects are not followed") {
				t.Errorf("%d%s: %v, %v", status, same, err, class)
			}
		}
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
}

// raw is a server that handles connections itself.
func raw(t *testing.T, handle func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				handle(conn.(*net.TCPConn))
			})
		}
	})
	return "http://" + l.Addr().String()
}

// readHead reads until the body of a request begins.
func readHead(c *net.TCPConn) { _, _ = c.Read(make([]byte, 64<<10)) }

// Servers break in many ways. Only an answer that accepts the event counts, and an event without an
// answer spends no attempt.
func TestServersThatBreak(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		handle func(*net.TCPConn)
		class  string // of the error; empty: accepted
	}{
		"resets at once":         {func(c *net.TCPConn) { _ = c.SetLinger(0) }, "unavailable"},
		"closes without answer":  {readHead, "unavailable"},
		"resets after a request": {func(c *net.TCPConn) { readHead(c); _ = c.SetLinger(0) }, "unavailable"},
		"speaks another protocol": {func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "220 mail.example ESMTP\r\n")
			readHead(c)
		}, "unavailable"},
		"half a head": {func(c *net.TCPConn) {
			readHead(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-")
		}, "unavailable"},
		"an endless head": {func(c *net.TCPConn) {
			readHead(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for i := range 1 << 20 {
				if _, err := fmt.Fprintf(c, "X-%d: %s\r\n", i, strings.Repeat("x", 1000)); err != nil {
					return
				}
			}
		}, "unavailable"},
		"less than it promised": {func(c *net.TCPConn) {
			readHead(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort")
		}, ""},
		"refuses with less than it promised": {func(c *net.TCPConn) {
			readHead(c)
			_, _ = io.WriteString(c, "HTTP/1.1 422 No\r\nContent-Length: 1000\r\n\r\nshort")
		}, "permanent"},
		"two lengths": {func(c *net.TCPConn) {
			readHead(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nshort")
		}, "unavailable"},
		"a status that is none": {func(c *net.TCPConn) {
			readHead(c)
			_, _ = io.WriteString(c, "HTTP/1.1 600 What\r\nContent-Length: 0\r\n\r\n")
		}, "unavailable"},
		"switches protocols": {func(c *net.TCPConn) {
			readHead(c)
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
			readHead(c) // until the client closes
		}, "unavailable"},
		"hints without end": {func(c *net.TCPConn) {
			readHead(c)
			for {
				if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"); err != nil {
					return
				}
			}
		}, "unavailable"},
		"answers and never ends": {func(c *net.TCPConn) {
			readHead(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
			readHead(c) // until the client closes
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPublisher(t, to(raw(t, tc.handle)))
			// Nobody ends the context.
			done, d := make(chan error, 1), delivery(t)
			go func() { done <- p.Publish(context.WithoutCancel(t.Context()), d) }()
			var err error
			select {
			case err = <-done:
			case <-time.After(20 * time.Second): // Timeout is longer
				t.Fatal("Publish has not returned")
			}
			class := ""
			if err != nil {
				c, _ := core.ClassOf(err)
				class = c.String()
			}
			if class != tc.class {
				t.Errorf("%v is %q, want %q", err, class, tc.class)
			}
		})
	}
	err := newPublisher(t, to(nowhere)).Publish(t.Context(), delivery(t))
	if class, _ := core.ClassOf(err); class != core.ClassUnavailable || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody listens: %v, %v", err, class)
	}
	err = newPublisher(t, to("http://no-such-host.invalid")).Publish(t.Context(), delivery(t))
	if class, _ := core.ClassOf(err); class != core.ClassUnavailable {
		t.Errorf("no such name: %v, %v", err, class)
	}
}

// The time of a request is bounded by its context and by Config.Timeout. The relay judges that
// error, so it is not marked.
func TestServersThatHang(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int32
	url := raw(t, func(c *net.TCPConn) {
		for {
			if _, err := c.Read(make([]byte, 64<<10)); err != nil {
				return
			}
			arrived.Add(1)
		}
	})
	// A busy machine may need longer to send the request.
	sent := func(publish func(limit time.Duration) error) error {
		for limit := 50 * time.Millisecond; ; limit *= 2 {
			before := arrived.Load()
			if err := publish(limit); arrived.Load() > before || limit > time.Minute {
				return err
			}
		}
	}
	ended, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for name, err := range map[string]error{
		"context": sent(func(limit time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			return newPublisher(t, to(url)).Publish(ctx, delivery(t))
		}),
		"timeout": sent(func(limit time.Duration) error {
			cfg := to(url)
			cfg.Timeout = limit
			return newPublisher(t, cfg).Publish(t.Context(), delivery(t))
		}),
		"before": newPublisher(t, to(url)).Publish(ended, delivery(t)),
	} {
		if _, marked := core.ClassOf(err); marked || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, marked %v", name, err, marked)
		}
	}
}

// A body without end costs neither time nor memory.
func TestAnswersOfGigabytes(t *testing.T) {
	t.Parallel()
	const block = "secret-less text "
	var written atomic.Int64
	status := http.StatusOK
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		for range 1 << 30 / len(block) {
			n, err := io.WriteString(w, block)
			if written.Add(int64(n)); err != nil {
				return
			}
		}
	})
	p := newPublisher(t, to(server.URL))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	noError(t, p.Publish(t.Context(), delivery(t)))
	status = http.StatusInternalServerError
	err := p.Publish(t.Context(), delivery(t))
	runtime.ReadMemStats(&after)
	refused, _ := errors.AsType[*httpbridge.StatusError](err)
	if refused == nil || len(refused.Body) != 200 || !strings.HasPrefix(refused.Body, block) {
		t.Errorf("err = %v", err)
	}
	if used := int64(after.TotalAlloc - before.TotalAlloc); used > 256<<20 {
		t.Errorf("%d bytes of memory for two answers", used)
	}
	if n := written.Load(); n >= 1<<30 {
		t.Errorf("%d bytes were read", n)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	var proto atomic.Value
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		proto.Store(r.Proto)
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	err := newPublisher(t, to(server.URL)).Publish(t.Context(), delivery(t))
	if class, _ := core.ClassOf(err); class != core.ClassUnavailable || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an authority that nobody knows: %v, %v", err, class)
	}
	cfg := to(server.URL)
	cfg.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
	cfg.TLS.RootCAs.AddCert(server.Certificate())
	if err := newPublisher(t, cfg).Publish(t.Context(), delivery(t)); err != nil || proto.Load() != "HTTP/2.0" {
		t.Errorf("%v by %v", err, proto.Load())
	}
	cfg.TLS.InsecureSkipVerify = true
	if _, err := httpbridge.NewPublisher(cfg); !errors.Is(err, httpbridge.ErrUnsafeConfig) {
		t.Errorf("InsecureSkipVerify: %v", err)
	}
}

// A connection of HTTP/2 that has fallen silent, as behind a firewall that has forgotten it, is
// replaced by another one.
func TestASilentConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	var opened, lost atomic.Int32 // connections; the first lost of them lose all bytes
	way := raw(t, func(c *net.TCPConn) {
		number := opened.Add(1)
		s, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		defer s.Close()
		carry := func(to, from net.Conn) {
			defer to.Close()
			b := make([]byte, 64<<10)
			for {
				n, err := from.Read(b)
				if err != nil {
					return
				}
				if number > lost.Load() {
					_, _ = to.Write(b[:n])
				}
			}
		}
		go carry(s, c)
		carry(c, s)
	})
	cfg := to("https" + strings.TrimPrefix(way, "http"))
	cfg.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
	cfg.TLS.RootCAs.AddCert(server.Certificate())
	cfg.Timeout = 2 * time.Second
	p := newPublisher(t, cfg)
	publish := func() (err error) {
		for since := time.Now(); time.Since(since) < time.Minute; { // a busy machine may miss a limit
			if err = p.Publish(t.Context(), delivery(t)); err == nil {
				break
			}
		}
		return err
	}
	must(t, publish())
	lost.Store(opened.Load())
	if err := publish(); err != nil || opened.Load() == lost.Load() {
		t.Errorf("after a minute of requests: %v, %d connections of %d are lost", err, lost.Load(), opened.Load())
	}
	server.CloseClientConnections() // the client may keep one for a while
}

// A name may have led to a public address when it was checked, and lead to loopback now. The
// address of the connection counts.
func TestPrivateAddressesAreRefusedAtTheConnection(t *testing.T) {
	t.Parallel()
	server := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") })
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	must(t, err)
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0"} {
		cfg := to("http://" + host + ":" + port)
		cfg.AllowHTTP = true
		p, err := httpbridge.NewPublisher(cfg)
		must(t, err)
		err = p.Publish(t.Context(), delivery(t))
		var dns *net.DNSError
		if class, _ := core.ClassOf(err); class != core.ClassUnavailable ||
			!errors.Is(err, httpbridge.ErrAddress) && !errors.As(err, &dns) {
			t.Errorf("%s: %v, %v", host, err, class)
		}
	}
}

// No error text has a path, a query, a secret, or a header of the endpoint, whatever the endpoint
// says.
func TestErrorsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	echo := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, r.Header.Get("Authorization"), " ", strings.TrimPrefix(vectorSecret, "whsec_"))
	}
	notFound := func(w http.ResponseWriter, r *http.Request) {
		_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		http.Error(w, "Cannot POST "+r.URL.RequestURI()+", "+r.URL.Path+" "+r.URL.Query().Get("t")+" by "+token,
			http.StatusNotFound)
	}
	for _, at := range []string{
		serve(t, echo).URL, serve(t, notFound).URL, nowhere, "http://no-such-host.invalid",
	} {
		p := newPublisher(t, httpbridge.Config{Endpoints: map[string]httpbridge.Endpoint{"orders": {
			URL: at + "/hooks/p4th/a%20bl4nk?token=qu3ry&t=in%2Fqu3st", Secrets: []string{vectorSecret},
			Headers: map[string]string{"Authorization": "Bearer h34der"},
		}}})
		err := p.Publish(t.Context(), delivery(t))
		if err == nil {
			t.Fatal("published")
		}
		for _, secret := range []string{
			"p4th", "bl4nk", "qu3ry", "qu3st", "h34der", strings.TrimPrefix(vectorSecret, "whsec_"),
		} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s is in %q", secret, err)
			}
		}
		if !strings.Contains(err.Error(), at) {
			t.Errorf("the endpoint is not named in %q", err)
		}
	}

	// Errors of http.ProxyFromEnvironment have the address with its password.
	cfg := to(nowhere)
	cfg.Proxy = func(*http.Request) (*url.URL, error) {
		return nil, errors.New("invalid proxy address http://u:pr0xy@host: bad port")
	}
	err := newPublisher(t, cfg).Publish(t.Context(), delivery(t))
	if class, _ := core.ClassOf(err); class != core.ClassUnavailable || strings.Contains(err.Error(), "pr0xy") {
		t.Errorf("a proxy: %v, %v", err, class)
	}
}

// A process opens no more connections to a host than it may.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	var open, most atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		time.Sleep(5 * time.Millisecond)
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			if n := open.Add(1); n > most.Load() {
				most.Store(n)
			}
		case http.StateClosed:
			open.Add(-1)
		default:
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	cfg := to(server.URL)
	cfg.MaxConnsPerHost = 2
	p := newPublisher(t, cfg)
	var wg sync.WaitGroup
	for range 20 {
		d := delivery(t)
		wg.Go(func() {
			noError(t, p.Publish(t.Context(), d))
		})
	}
	wg.Wait()
	if n := most.Load(); n > 2 {
		t.Errorf("%d connections at once", n)
	}
}
