package httpbridge

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Names of the headers of Standard Webhooks, and of the key by which a receiver deduplicates.
const (
	headerWebhookID        = "Webhook-Id"
	headerWebhookTimestamp = "Webhook-Timestamp"
	headerWebhookSignature = "Webhook-Signature"
	headerIdempotencyKey   = "Idempotency-Key"
)

// ErrSignature: a request has no signature by one of the secrets, or is too old. Answer with 401,
// and do not handle it.
var ErrSignature = errors.New("httpbridge: the signature is not valid")

const (
	secretPrefix = "whsec_"
	// versionOwn marks signatures that cover signedHeaders too. Standard Webhooks does not know this
	// version, and its libraries ignore it. Its own signatures cover no headers, so anybody who has
	// seen a request could send it again as another event.
	versionOwn = "v1m"
	// tolerance is how far the clocks of sender and receiver may differ. Standard Webhooks leaves
	// it to the receiver; its libraries take five minutes.
	tolerance = 5 * time.Minute
)

// signedHeaders are the headers that versionOwn signs beside webhook-id and webhook-timestamp: all
// that receivers read.
var signedHeaders = [...]string{headerMetadata, headerIdempotencyKey, headerUUID}

// Sign returns the value of webhook-signature as Standard Webhooks has it, with one signature for
// each secret. Requests of a Publisher have these signatures, and signatures of their headers
// beside them, which Verify wants. An error names a secret by its position.
func Sign(id string, at time.Time, body []byte, secrets ...string) (string, error) {
	stamp := strconv.FormatInt(at.Unix(), 10)
	return signatures("v1", secrets, func(key []byte) []byte { return mac(key, id, stamp, body) })
}

// signRequest sets webhook-signature of a request whose other headers are set.
func signRequest(h http.Header, id string, at time.Time, body []byte, secrets []string) error {
	standard, err := Sign(id, at, body, secrets...)
	if err != nil {
		return err
	}
	own, err := signatures(versionOwn, secrets, func(key []byte) []byte { return macRequest(key, h, body) })
	h.Set(headerWebhookSignature, standard+" "+own)
	return err
}

func signatures(version string, secrets []string, sum func(key []byte) []byte) (string, error) {
	all := make([]string, 0, len(secrets))
	for i, secret := range secrets {
		key, err := decodeSecret(secret)
		if err != nil {
			return "", fmt.Errorf("httpbridge: secret %d %w", i, err)
		}
		all = append(all, version+","+base64.StdEncoding.EncodeToString(sum(key)))
	}
	return strings.Join(all, " "), nil
}

// macRequest uses a key that is derived from the secret, so that its result is never the signature
// of another body.
func macRequest(key []byte, h http.Header, body []byte) []byte {
	derived := hmac.New(sha256.New, key)
	derived.Write([]byte(headerMetadata))
	var all []byte
	for _, name := range signedHeaders {
		all = append(append(all, h.Get(name)...), '\n') // a header has no line feed
	}
	return mac(derived.Sum(nil), h.Get(headerWebhookID), h.Get(headerWebhookTimestamp), append(all, body...))
}

// Verify checks a received request of a Publisher: one of the secrets signed it, and it was sent
// less than five minutes ago. The signature covers the body, Message-Metadata, Idempotency-Key,
// Message-Uuid and the headers of Standard Webhooks: read no others. Metadata has the event's own
// headers. body is the whole body as it was received. The error wraps ErrSignature, unless a secret
// is invalid. After Verify, the receiver deduplicates by webhook-id, as the inbox does, because a
// copy of the request is still valid for five minutes.
func Verify(h http.Header, body []byte, secrets ...string) error {
	if h.Get(headerMetadata) == "" {
		return fmt.Errorf("%w: Message-Metadata is missing: it was taken out, or the sender is no httpbridge (see "+
			"VerifyStandard)", ErrSignature)
	}
	return verify(h, versionOwn, secrets, func(key []byte) []byte { return macRequest(key, h, body) })
}

// VerifyStandard checks a received request of another sender that follows Standard Webhooks, as
// Verify does. Its signature covers the body, webhook-id and webhook-timestamp: read no other
// header. Metadata returns the webhook-id alone. A request with Message-Metadata is refused: it
// comes from a Publisher, and Verify checks it.
func VerifyStandard(h http.Header, body []byte, secrets ...string) error {
	if len(h.Values(headerMetadata)) > 0 {
		return fmt.Errorf("%w: Message-Metadata is not signed by Standard Webhooks: see Verify", ErrSignature)
	}
	id, stamp := h.Get(headerWebhookID), h.Get(headerWebhookTimestamp)
	return verify(h, "v1", secrets, func(key []byte) []byte { return mac(key, id, stamp, body) })
}

// verify checks the headers that every signature covers, and that a secret matches one of the
// signatures.
func verify(h http.Header, version string, secrets []string, sum func(key []byte) []byte) error {
	if err := checkHeaders(h); err != nil {
		return err
	}
	for i, secret := range secrets {
		key, err := decodeSecret(secret)
		if err != nil {
			return fmt.Errorf("httpbridge: secret %d %w", i, err)
		}
		if signed(h, version, sum(key)) {
			return nil
		}
	}
	return fmt.Errorf("%w: no signature %s is by a known secret and of this request", ErrSignature, version)
}

// checkHeaders refuses requests that are old, or whose signature would leave something open.
func checkHeaders(h http.Header) error {
	if name := doubled(h); name != "" {
		return fmt.Errorf("%w: header %s stands twice", ErrSignature, name)
	}
	id := h.Get(headerWebhookID)
	seconds, err := strconv.ParseInt(h.Get(headerWebhookTimestamp), 10, 64)
	if id == "" || err != nil {
		return fmt.Errorf("%w: webhook-id or webhook-timestamp is missing", ErrSignature)
	}
	if strings.Contains(id, ".") { // the place of the dots that are signed would be open
		return fmt.Errorf("%w: webhook-id has a dot", ErrSignature)
	}
	if age := time.Since(time.Unix(seconds, 0)); age > tolerance || age < -tolerance {
		return fmt.Errorf("%w: it was sent %s ago, more than %s", ErrSignature, age.Round(time.Second), tolerance)
	}
	return nil
}

// doubled returns the name of a header that receivers read and that occurs twice. A receiver might
// read the value that was not checked.
func doubled(h http.Header) string {
	for _, name := range append(signedHeaders[:], headerWebhookID, headerWebhookTimestamp, headerWebhookSignature) {
		if len(h.Values(name)) > 1 {
			return name
		}
	}
	return ""
}

// signed reports whether a request has a signature.
func signed(h http.Header, version string, want []byte) bool {
	for signature := range strings.FieldsSeq(h.Get(headerWebhookSignature)) {
		v, text, _ := strings.Cut(signature, ",")
		got, err := base64.StdEncoding.DecodeString(text)
		if v == version && err == nil && hmac.Equal(got, want) {
			return true
		}
	}
	return false
}

func mac(key []byte, id, stamp string, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(id + "." + stamp + "."))
	h.Write(body)
	return h.Sum(nil)
}

// decodeSecret returns the key of a secret. The text of its error has no part of the secret.
func decodeSecret(secret string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil {
		return nil, errors.New("is not whsec_ and base64, as Standard Webhooks writes it")
	}
	if len(key) < 24 || len(key) > 64 {
		return nil, fmt.Errorf("has %d bytes: Standard Webhooks asks for 24 to 64", len(key))
	}
	return key, nil
}
