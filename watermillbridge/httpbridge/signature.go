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
	HeaderWebhookID        = "Webhook-Id"
	HeaderWebhookTimestamp = "Webhook-Timestamp"
	HeaderWebhookSignature = "Webhook-Signature"
	HeaderIdempotencyKey   = "Idempotency-Key"
)

// ErrSignature: a request is not signed with one of the secrets, or is too old. Answer with 401,
// and do not handle it.
var ErrSignature = errors.New("httpbridge: the signature is not valid")

const (
	secretPrefix = "whsec_"
	// versionMetadata marks signatures that cover Message-Metadata too. Standard Webhooks does not
	// know this version, and its libraries ignore it.
	versionMetadata = "v1m"
	// tolerance is how far the clocks of sender and receiver may differ. Standard Webhooks leaves
	// it to the receiver; its libraries take five minutes.
	tolerance = 5 * time.Minute
)

// Sign returns the value of webhook-signature for a message, with one signature for each secret.
// Publisher calls it; call it to test a receiver. An error names a secret by its position.
func Sign(id string, at time.Time, body []byte, secrets ...string) (string, error) {
	var all strings.Builder
	for i, secret := range secrets {
		key, err := decodeSecret(secret)
		if err != nil {
			return "", fmt.Errorf("httpbridge: secret %d %w", i, err)
		}
		if i > 0 {
			all.WriteByte(' ')
		}
		all.WriteString("v1,")
		all.WriteString(base64.StdEncoding.EncodeToString(mac(key, id, strconv.FormatInt(at.Unix(), 10), body)))
	}
	return all.String(), nil
}

// signMetadata returns the signatures of a request with Message-Metadata, which stand behind those
// of Sign in webhook-signature. The signatures of Standard Webhooks do not cover headers, so
// anybody who has seen a request could send it again with the id of another event.
func signMetadata(id string, at time.Time, metadata string, body []byte, secrets ...string) (string, error) {
	var all strings.Builder
	for i, secret := range secrets {
		key, err := decodeSecret(secret)
		if err != nil {
			return "", fmt.Errorf("httpbridge: secret %d %w", i, err)
		}
		all.WriteString(" " + versionMetadata + ",")
		sum := macMetadata(key, id, strconv.FormatInt(at.Unix(), 10), metadata, body)
		all.WriteString(base64.StdEncoding.EncodeToString(sum))
	}
	return all.String(), nil
}

// macMetadata uses a key that is derived from the secret, so that its result is never the signature
// of another body.
func macMetadata(key []byte, id, stamp, metadata string, body []byte) []byte {
	derived := hmac.New(sha256.New, key)
	derived.Write([]byte(headerMetadata))
	all := make([]byte, 0, len(metadata)+1+len(body))
	all = append(append(append(all, metadata...), '\n'), body...) // a header has no line feed
	return mac(derived.Sum(nil), id, stamp, all)
}

// Verify checks a received request: one of its signatures is by one of the secrets, and it was sent
// less than five minutes ago. Message-Metadata, if the request has it, must be signed too. body is
// the whole body as it was received. The error wraps ErrSignature, unless a secret is invalid.
// After Verify, the receiver deduplicates by webhook-id, as the inbox does, because a copy of the
// request is still valid for five minutes.
func Verify(h http.Header, body []byte, secrets ...string) error {
	id, stamp := h.Get(HeaderWebhookID), h.Get(HeaderWebhookTimestamp)
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if id == "" || err != nil {
		return fmt.Errorf("%w: webhook-id or webhook-timestamp is missing", ErrSignature)
	}
	if strings.Contains(id, ".") { // the place of the dots that are signed would be open
		return fmt.Errorf("%w: webhook-id has a dot", ErrSignature)
	}
	if age := time.Since(time.Unix(seconds, 0)); age > tolerance || age < -tolerance {
		return fmt.Errorf("%w: it was sent %s ago, more than %s", ErrSignature, age.Round(time.Second), tolerance)
	}
	for i, secret := range secrets {
		key, err := decodeSecret(secret)
		if err != nil {
			return fmt.Errorf("httpbridge: secret %d %w", i, err)
		}
		if !signed(h, "v1", mac(key, id, stamp, body)) {
			continue
		}
		if metadata := h.Get(headerMetadata); len(h.Values(headerMetadata)) > 0 &&
			!signed(h, versionMetadata, macMetadata(key, id, stamp, metadata, body)) {
			return fmt.Errorf("%w: Message-Metadata is not signed, or was changed", ErrSignature)
		}
		return nil
	}
	return fmt.Errorf("%w: no signature of the message is by a known secret", ErrSignature)
}

// signed reports whether a request has a signature.
func signed(h http.Header, version string, want []byte) bool {
	for signature := range strings.FieldsSeq(h.Get(HeaderWebhookSignature)) {
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
