package httpbridge_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/watermillbridge/httpbridge"
)

// The values are the test vector of the libraries of Standard Webhooks.
const (
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTime      = 1614265330
	vectorBody      = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

var otherSecret = "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))

func TestSignatureOfTheSpecification(t *testing.T) {
	t.Parallel()
	at := time.Unix(vectorTime, 0)
	for name, secret := range map[string]string{
		"with its prefix": vectorSecret, "without": strings.TrimPrefix(vectorSecret, "whsec_"),
	} {
		if got, err := httpbridge.Sign(vectorID, at, []byte(vectorBody), secret); err != nil || got != vectorSignature {
			t.Errorf("%s: %q, %v, want %q", name, got, err, vectorSignature)
		}
	}
	both, err := httpbridge.Sign(vectorID, at, []byte(vectorBody), otherSecret, vectorSecret)
	if err != nil || !strings.HasSuffix(both, " "+vectorSignature) || strings.Count(both, "v1,") != 2 {
		t.Errorf("two secrets: %q, %v", both, err)
	}
	if none, err := httpbridge.Sign(vectorID, at, nil); none != "" || err != nil {
		t.Errorf("no secret: %q, %v", none, err)
	}
}

func TestSecretsThatAreNone(t *testing.T) {
	t.Parallel()
	for name, secret := range map[string]string{
		"not base64": "whsec_not-base64!", "short": "whsec_c2hvcnQ=", "empty": "", "a public key": "whpk_" + vectorBody,
		"long": "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65)),
	} {
		_, err := httpbridge.Sign(vectorID, time.Now(), nil, vectorSecret, secret)
		if err == nil || !strings.Contains(err.Error(), "secret 1") ||
			secret != "" && strings.Contains(err.Error(), strings.TrimPrefix(secret, "whsec_")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestVerifyStandard(t *testing.T) {
	t.Parallel()
	now := time.Now()
	signed := func(at time.Time, secrets ...string) http.Header {
		signature, err := httpbridge.Sign(vectorID, at, []byte(vectorBody), secrets...)
		must(t, err)
		h := http.Header{}
		h.Set("webhook-id", vectorID)
		h.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
		h.Set("webhook-signature", signature)
		return h
	}
	change := func(name, v string) http.Header {
		h := signed(now, vectorSecret)
		h.Set(name, v)
		return h
	}
	twice := func(name string) http.Header {
		h := signed(now, vectorSecret)
		h.Add(name, h.Get(name))
		return h
	}
	only := []string{vectorSecret}
	for name, tc := range map[string]struct {
		h       http.Header
		body    string
		secrets []string
		ok      bool
	}{
		"as it was sent":         {signed(now, vectorSecret), vectorBody, only, true},
		"sender rotates first":   {signed(now, otherSecret, vectorSecret), vectorBody, only, true},
		"receiver rotates first": {signed(now, vectorSecret), vectorBody, []string{otherSecret, vectorSecret}, true},
		"clock a little behind":  {signed(now.Add(4*time.Minute), vectorSecret), vectorBody, only, true},
		"other signatures beside": {
			change("webhook-signature", "v1a,xyz v1,!! v2 "+signed(now, vectorSecret).Get("webhook-signature")),
			vectorBody, only, true,
		},
		"another secret":      {signed(now, otherSecret), vectorBody, only, false},
		"no secret":           {signed(now, vectorSecret), vectorBody, nil, false},
		"another body":        {signed(now, vectorSecret), vectorBody + " ", only, false},
		"another id":          {change("webhook-id", "msg_2"), vectorBody, only, false},
		"no id":               {change("webhook-id", ""), vectorBody, only, false},
		"another time":        {change("webhook-timestamp", "1"), vectorBody, only, false},
		"a time that is none": {change("webhook-timestamp", "now"), vectorBody, only, false},
		"no signature":        {change("webhook-signature", ""), vectorBody, only, false},
		"old":                 {signed(now.Add(-6*time.Minute), vectorSecret), vectorBody, only, false},
		"of the future":       {signed(now.Add(6*time.Minute), vectorSecret), vectorBody, only, false},
		"an id twice":         {twice("webhook-id"), vectorBody, only, false},
		"a time twice":        {twice("webhook-timestamp"), vectorBody, only, false},
		"signatures twice":    {twice("webhook-signature"), vectorBody, only, false},
		"metadata":            {change("message-metadata", "{}"), vectorBody, only, false}, // Verify checks them
		"without its version": {
			change("webhook-signature", strings.TrimPrefix(vectorSignature, "v1,")), vectorBody, only,
			false,
		},
	} {
		err := httpbridge.VerifyStandard(tc.h, []byte(tc.body), tc.secrets...)
		if (err == nil) != tc.ok || err != nil && !errors.Is(err, httpbridge.ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}

	// Id, time and body are signed with dots between them. The time of an old request must not be
	// moved into its id, and the beginning of its body to the time.
	body := strconv.FormatInt(now.Unix(), 10) + ".5"
	old := strconv.FormatInt(now.Add(-time.Hour).Unix(), 10)
	signature, err := httpbridge.Sign(vectorID, now.Add(-time.Hour), []byte(body), vectorSecret)
	must(t, err)
	forged := change("webhook-signature", signature)
	forged.Set("webhook-id", vectorID+"."+old)
	if err := httpbridge.VerifyStandard(forged, []byte("5"), vectorSecret); !errors.Is(err, httpbridge.ErrSignature) {
		t.Errorf("an old request with its dots moved: %v", err)
	}
	if err := httpbridge.VerifyStandard(signed(now, vectorSecret), []byte(vectorBody), "x"); err == nil ||
		errors.Is(err, httpbridge.ErrSignature) {
		t.Errorf("a secret that is none: %v", err)
	}
}

// A request that somebody has seen cannot be sent again as another one: what a receiver reads is
// signed, must be there, and stands there once.
func TestWhatReceiversReadIsSigned(t *testing.T) {
	t.Parallel()
	var got []received
	var mu sync.Mutex
	server := serve(t, keep(t, &got, &mu))
	secrets := []string{otherSecret, vectorSecret}
	cfg := to(server.URL)
	cfg.Endpoints["orders"] = httpbridge.Endpoint{URL: server.URL, Secrets: secrets}
	p := newPublisher(t, cfg)
	must(t, p.Publish(t.Context(), delivery(t)))
	_, err := p.Send(t.Context(), httpbridge.Endpoint{URL: server.URL, Secrets: secrets},
		httpbridge.Request{ID: "9f86d081884c7d65", Body: []byte("{}"), ContentType: "text/plain"})
	must(t, err)
	for _, by := range []string{"Publish", "Send"} {
		r := got[0]
		got = got[1:]
		for _, secret := range secrets {
			if err := httpbridge.Verify(r.header, r.body, secret); err != nil {
				t.Errorf("%s: as it was sent: %v", by, err)
			}
		}
		for name, forge := range forgeries(r) {
			h := r.header.Clone()
			body := forge(h)
			if err := httpbridge.Verify(h, body, vectorSecret); !errors.Is(err, httpbridge.ErrSignature) {
				t.Errorf("%s: %s: %v", by, name, err)
			}
		}
	}
}

// forgeries are changes of a request. Each one returns the body of the changed request.
func forgeries(r received) map[string]func(http.Header) []byte {
	set := func(name, v string) func(http.Header) []byte {
		return func(h http.Header) []byte { h.Set(name, v); return r.body }
	}
	all := map[string]func(http.Header) []byte{
		"another body":        func(http.Header) []byte { return []byte("other") },
		"another event":       set("Message-Metadata", strings.Replace(r.header.Get("Message-Metadata"), "0", "1", 1)),
		"metadata of nothing": set("Message-Metadata", "{}"),
		"only the signatures of Standard Webhooks": set("Webhook-Signature",
			strings.Join(strings.Fields(r.header.Get("Webhook-Signature"))[:2], " ")),
		"without metadata and their signatures": func(h http.Header) []byte {
			h.Set("Webhook-Signature", strings.Join(strings.Fields(h.Get("Webhook-Signature"))[:2], " "))
			h.Del("Message-Metadata")
			h.Set("Ce-Type", "payment.refunded")
			return r.body
		},
		// The signature of headers does not sign a longer body.
		"a longer body": func(h http.Header) []byte {
			h.Set("Webhook-Signature", strings.ReplaceAll(h.Get("Webhook-Signature"), "v1m,", "v1,"))
			text := h.Get("Message-Metadata") + "\n" + h.Get("Idempotency-Key") + "\n" + h.Get("Message-Uuid") + "\n"
			h.Del("Message-Metadata")
			return append([]byte(text), r.body...)
		},
	}
	for _, name := range []string{
		"Message-Metadata", "Idempotency-Key", "Message-Uuid", "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature",
	} {
		v := r.header.Get(name)
		all["another "+name] = set(name, v+"0")
		all[name+" twice"] = func(h http.Header) []byte { h[name] = []string{v, v + "0"}; return r.body }
		if v != "" {
			all["no "+name] = func(h http.Header) []byte { h.Del(name); return r.body }
		}
	}
	return all
}
