package brokers_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/httpbridge"
)

// waysAway are the ways in which a receiver behind TLS and HTTP/2 accepts nothing, and what the row
// of an event says then.
var waysAway = map[string]struct {
	begin func(r *securedReceiver)
	says  string
}{
	"hangs": {answering(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	}), "no answer from https://"},
	"redirects": {answering(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusPermanentRedirect)
	}), "redirects are not followed"},
	"throttles": {answering(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	}), "answered 429 Too Many Requests, try again after 1s"},
	"is overloaded": {answering(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no database", http.StatusServiceUnavailable)
	}), `answered 503 Service Unavailable: "no database`},
	"does not know the client": {answering(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}), "answered 401"},
	"resets each request": {answering(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}), "stream error"},
	"has an expired certificate": {func(r *securedReceiver) {
		r.present(r.ca.issue(r.t, time.Now().Add(-time.Hour), "127.0.0.1"))
	}, "certificate has expired"},
	"has the certificate of another": {func(r *securedReceiver) {
		r.present(r.ca.issue(r.t, time.Now().Add(time.Hour), "192.0.2.1"))
	}, "certificate is valid for 192.0.2.1, not 127.0.0.1"},
	"has a certificate of nobody": {func(r *securedReceiver) {
		r.present(newAuthority(r.t).issue(r.t, time.Now().Add(time.Hour), "127.0.0.1"))
	}, "certificate signed by unknown authority"},
	"does not trust the client's certificate": {func(r *securedReceiver) {
		r.clients.Store(newAuthority(r.t).pool())
		r.server.CloseClientConnections()
	}, "remote error: tls:"},
}

func answering(h http.HandlerFunc) func(*securedReceiver) {
	return func(r *securedReceiver) { r.answer.Store(&h) }
}

// While a receiver is away, its events wait, spend no attempt and say why. None is lost, and those
// of a key stay in order.
func TestReceiverOfWebhooksAway(t *testing.T) {
	t.Parallel()
	for name, way := range waysAway {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSecuredReceiver(t)
			topic := r.topic(t)
			o := newOutage(t, core.Config{
				Publisher: r.publisher(
					topic,
				),
				Relay: relay.Config{PublishTimeout: time.Second, Retry: eager, Breaker: soon},
			})
			o.publish(keyed(topic, 6)...)
			o.wantStatus(outboxtest.StatusDone, "the first events")
			o.forgetFailures()
			way.begin(r)
			for range 3 {
				o.publish(keyed(topic, 6)...)
			}
			o.awaitFailures(4)
			fixture.Await(t, "a row that says "+way.says, func() bool {
				return slices.ContainsFunc(o.repo.Rows(), func(row outboxtest.Row) bool {
					return strings.Contains(row.Error, way.says)
				})
			})
			r.back()
			o.wantStatus(outboxtest.StatusDone, "the receiver is back")
			for _, row := range o.repo.Rows() {
				fixture.Check(t, row.Attempts == 0, "an attempt was spent: %d, %s", row.Attempts, row.Error)
			}
			requireOnceEach(t, o.repo.Rows(), r.held(t, topic))
			fixture.Check(t, r.others.Load() == 0, "%d requests were not of HTTP/2, or not signed", r.others.Load())
		})
	}
}

// requireOnceEach checks that a broker has the event of each row, and that the first copies of each
// key are in order.
func requireOnceEach(t *testing.T, rows []outboxtest.Row, held []heldMessage) {
	t.Helper()
	have, last := map[core.RowID]bool{}, map[string]int64{}
	for _, h := range held {
		d, err := watermillbridge.EventFromMessage(h.Message)
		fixture.NoError(t, err)
		if have[d.RowID] {
			continue
		}
		have[d.RowID] = true
		fixture.Check(t, d.KeySeq > last[d.Key], "key %s: %d follows %d", d.Key, d.KeySeq, last[d.Key])
		last[d.Key] = d.KeySeq
	}
	for _, row := range rows {
		fixture.Check(t, have[row.ID], "event %s is done and not at the receiver", row.Event.ID)
	}
	fixture.Check(t, len(have) == len(rows), "%d events of %d rows arrived", len(have), len(rows))
}

// Run ends in time, whatever the receiver does, and without an error.
func TestRunEndsWhileAReceiverIsAway(t *testing.T) {
	t.Parallel()
	for name, way := range waysAway {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSecuredReceiver(t)
			topic := r.topic(t)
			failed := make(chan struct{}, 1000)
			repo := outboxtest.NewRepository()
			ob, err := core.New(core.Config{
				Repository: repo,
				Publisher:  r.publisher(topic),
				Relay:      relay.Config{Breaker: soon, ShutdownTimeout: 20 * time.Second},
				Observer:   &core.Observer{Published: func(core.PublishInfo) { failed <- struct{}{} }},
			})
			fixture.NoError(t, err)
			way.begin(r)
			fixture.NoError(t, repo.Transactor().RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
				_, err := ob.Publish(ctx, tx, keyed(topic, 6)...)
				return err
			}))
			stop := fixture.RunRelay(t, ob)
			fixture.Await(t, "the first request", func() bool { return r.arrived.Load() > 0 || len(failed) > 0 })
			began := time.Now()
			stop()
			fixture.Check(t, time.Since(began) < 20*time.Second, "Run ended after %s", time.Since(began))
			for _, row := range repo.Rows() {
				fixture.Check(t, row.Status == outboxtest.StatusNew && row.Attempts == 0 && row.LeaseUntil.IsZero(),
					"a row is %s after %d attempts, leased until %s", row.Status, row.Attempts, row.LeaseUntil)
			}
		})
	}
}

// securedReceiver is a receiver with certificates on both sides, HTTP/2 and signed requests.
type securedReceiver struct {
	*webhookBroker
	t       *testing.T
	ca      *authority
	server  *httptest.Server
	answer  atomic.Pointer[http.HandlerFunc] // nil: it takes requests
	shown   atomic.Pointer[tls.Certificate]
	clients atomic.Pointer[x509.CertPool]
	arrived atomic.Int64 // requests
	others  atomic.Int64 // those that are not of HTTP/2, or not signed
}

const receiverSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func newSecuredReceiver(t *testing.T) *securedReceiver {
	t.Helper()
	r := &securedReceiver{
		webhookBroker: &webhookBroker{requests: map[string][]heldMessage{}}, t: t, ca: newAuthority(t),
	}
	r.server = httptest.NewUnstartedServer(http.HandlerFunc(r.receive))
	r.server.EnableHTTP2 = true
	r.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.server.TLS = &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return &tls.Config{
				Certificates: []tls.Certificate{*r.shown.Load()}, ClientCAs: r.clients.Load(),
				ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
			}, nil
		},
	}
	r.back()
	r.server.StartTLS()
	t.Cleanup(r.server.Close)
	return r
}

func (r *securedReceiver) receive(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return
	}
	r.arrived.Add(1)
	if q.ProtoMajor != 2 || httpbridge.Verify(q.Header, body, receiverSecret) != nil {
		r.others.Add(1)
	}
	if answer := r.answer.Load(); answer != nil {
		(*answer)(w, q)
		return
	}
	q.Body = io.NopCloser(bytes.NewReader(body))
	r.ServeHTTP(w, q)
}

// present changes the certificate.
func (r *securedReceiver) present(c tls.Certificate) {
	r.shown.Store(&c)
	r.server.CloseClientConnections()
}

// back ends what a way began.
func (r *securedReceiver) back() {
	c := r.ca.issue(r.t, time.Now().Add(time.Hour), "127.0.0.1")
	r.answer.Store(nil)
	r.clients.Store(r.ca.pool())
	r.shown.Store(&c)
}

func (r *securedReceiver) publisher(topic string) *httpbridge.Publisher {
	p, err := httpbridge.NewPublisher(httpbridge.Config{
		Endpoints: map[string]httpbridge.Endpoint{
			topic: {URL: r.server.URL + "/" + topic, Secrets: []string{receiverSecret}},
		},
		TLS: &tls.Config{
			RootCAs:      r.ca.pool(),
			Certificates: []tls.Certificate{r.ca.issue(r.t, time.Now().Add(time.Hour), "127.0.0.1")},
		},
		AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	fixture.NoError(r.t, err)
	topics.CloseAtEnd(r.t, p)
	return p
}

// authority issues certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fixture.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	fixture.NoError(t, err)
	c, err := x509.ParseCertificate(der)
	fixture.NoError(t, err)
	return &authority{c, key}
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.certificate)
	return p
}

// issue makes a certificate for a server and a client.
func (a *authority) issue(t *testing.T, until time.Time, address string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fixture.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.ParseIP(address)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	fixture.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
