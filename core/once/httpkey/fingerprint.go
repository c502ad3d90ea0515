package httpkey

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/ormoutbox/ormoutbox/core/once"
)

// fingerprint is the SHA-256 of method, path, query, media type and body.
func fingerprint(r *http.Request, body []byte) once.Fingerprint {
	return once.FingerprintOf([]byte(r.Method), []byte(r.URL.EscapedPath()), []byte(sortedQuery(r.URL.RawQuery)),
		[]byte(mediaType(r.Header.Get("Content-Type"))), body)
}

// sortedQuery sorts by name and keeps the order of several values of one name. What cannot be
// parsed stays as it is.
func sortedQuery(raw string) string {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return raw
	}
	return q.Encode()
}

// mediaType drops parameters: the boundary of a form says nothing by itself.
func mediaType(contentType string) string {
	t, _, err := mime.ParseMediaType(contentType)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return strings.ToLower(strings.TrimSpace(contentType))
	}
	return t
}

// CanonicalJSON is for Config.Canonical: two bodies are the same if they are the same JSON value,
// whatever the order of members and the blanks between them. Numbers are compared as they are
// written: 1 and 1.0 differ. Bodies that are not JSON, by their Content-Type or in fact, stay as
// they are.
func CanonicalJSON(r *http.Request, body []byte) []byte {
	if t := mediaType(r.Header.Get("Content-Type")); t != "application/json" && !strings.HasSuffix(t, "+json") {
		return body
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return body
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return body
	}
	canonical, err := json.Marshal(v)
	if err != nil {
		return body
	}
	return canonical
}
