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

	"github.com/ormoutbox/ormoutbox/core"
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

func TestVerify(t *testing.T) {
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
		"without its version": {
			change("webhook-signature", strings.TrimPrefix(vectorSignature, "v1,")), vectorBody, only,
			false,
		},
	} {
		err := httpbridge.Verify(tc.h, []byte(tc.body), tc.secrets...)
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
	if err := httpbridge.Verify(forged, []byte("5"), vectorSecret); !errors.Is(err, httpbridge.ErrSignature) {
		t.Errorf("an old request with its dots moved: %v", err)
	}
	if err := httpbridge.Verify(signed(now, vectorSecret), []byte(vectorBody), "x"); err == nil ||
		errors.Is(err, httpbridge.ErrSignature) {
		t.Errorf("a secret that is none: %v", err)
	}
}

// A request that somebody has seen cannot be sent again as another event: neither its metadata nor
// their absence makes it one.
func TestMetadataAreSigned(t *testing.T) {
	t.Parallel()
	var got []received
	var mu sync.Mutex
	cfg := to(serve(t, keep(t, &got, &mu)).URL)
	cfg.Endpoints["orders"] = httpbridge.Endpoint{
		URL: cfg.Endpoints["orders"].URL, Secrets: []string{otherSecret, vectorSecret},
	}
	d := delivery(t)
	must(t, newPublisher(t, cfg).Publish(t.Context(), d))
	h, body := got[0].header, got[0].body
	for _, secret := range []string{otherSecret, vectorSecret} {
		if err := httpbridge.Verify(h, body, secret); err != nil {
			t.Errorf("as it was sent: %v", err)
		}
	}
	forge := func(change func(http.Header)) http.Header {
		h := h.Clone()
		change(h)
		return h
	}
	other := strings.Replace(h.Get("Message-Metadata"), d.ID, core.NewEventID(), 1)
	tenant := strings.Replace(h.Get("Message-Metadata"), "acme", "evil", 1)
	v1 := strings.Join(strings.Fields(h.Get("Webhook-Signature"))[:2], " ")
	for name, forged := range map[string]http.Header{
		"another event":  forge(func(h http.Header) { h.Set("Message-Metadata", other) }),
		"another tenant": forge(func(h http.Header) { h.Set("Message-Metadata", tenant) }),
		"no metadata":    forge(func(h http.Header) { h.Set("Message-Metadata", "") }),
		"without its signature": forge(func(h http.Header) {
			h.Set("Message-Metadata", other)
			h.Set("Webhook-Signature", v1)
		}),
	} {
		if err := httpbridge.Verify(forged, body, vectorSecret); !errors.Is(err, httpbridge.ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The signature of metadata does not sign a longer body.
	longer := forge(func(h http.Header) {
		h.Set("Webhook-Signature", strings.ReplaceAll(h.Get("Webhook-Signature"), "v1m,", "v1,"))
		h.Del("Message-Metadata")
	})
	text := append([]byte(h.Get("Message-Metadata")+"\n"), body...)
	if err := httpbridge.Verify(longer, text, vectorSecret); !errors.Is(err, httpbridge.ErrSignature) {
		t.Errorf("a longer body: %v", err)
	}

	// Another library does not know that the metadata are signed.
	if _, err := httpbridge.Metadata(forge(func(h http.Header) { h.Set("Message-Metadata", other) })); err == nil {
		t.Error("an event_id beside the webhook-id")
	}
	// Without metadata, the request is like those of other senders. It is the same event.
	md, err := httpbridge.Metadata(forge(func(h http.Header) { h.Del("Message-Metadata"); h.Set("Ce-Id", "2") }))
	if err != nil || md[core.HeaderEventID] != d.ID {
		t.Errorf("%q, %v", md, err)
	}
}
