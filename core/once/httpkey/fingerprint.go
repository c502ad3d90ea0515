package httpkey

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core/once"
)

// fingerprint is the SHA-256 of method, path, query, media type and body.
func fingerprint(r *http.Request, body []byte) once.Fingerprint {
	return once.FingerprintOf([]byte(r.Method), []byte(r.URL.EscapedPath()), []byte(sortedQuery(r.URL.RawQuery)),
		[]byte(mediaType(r.Header.Get("Content-Type"))), body)
}

// sortedQuery sorts the query by name and keeps the order of several values of one name. A query
// that cannot be parsed stays unchanged.
func sortedQuery(raw string) string {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return raw
	}
	return q.Encode()
}

// mediaType removes the parameters, because the boundary of a form differs in each request.
func mediaType(contentType string) string {
	t, _, err := mime.ParseMediaType(contentType)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return strings.ToLower(strings.TrimSpace(contentType))
	}
	return t
}

// canonicalForm is the default of Config.Canonical. It returns the parts of a multipart body without
// the boundary, sorted by the names of their fields. Any other body, and one that is not as its
// Content-Type says, stays unchanged.
func canonicalForm(r *http.Request, body []byte) []byte {
	t, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || !strings.HasPrefix(t, "multipart/") || params["boundary"] == "" {
		return body
	}
	type part struct {
		name string
		sum  once.Fingerprint
	}
	var parts []part
	for reader := multipart.NewReader(bytes.NewReader(body), params["boundary"]); ; {
		p, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return body
		}
		content, err := io.ReadAll(p)
		if err != nil {
			return body
		}
		var header bytes.Buffer
		_ = http.Header(p.Header).Write(&header) // sorted by name
		parts = append(parts, part{p.FormName(), once.FingerprintOf(header.Bytes(), content)})
	}
	slices.SortStableFunc(parts, func(a, b part) int { return strings.Compare(a.name, b.name) })
	canonical := []byte("parts:")
	for _, p := range parts {
		canonical = append(canonical, p.sum[:]...)
	}
	return canonical
}

// CanonicalJSON is for Config.Canonical. Two bodies are the same if they are the same JSON value,
// in any order of members and with any white space. Numbers are compared as text: 1 and 1.0 differ.
// A body that is not JSON, by its Content-Type or by its content, is compared as without Canonical.
func CanonicalJSON(r *http.Request, body []byte) []byte {
	if t := mediaType(r.Header.Get("Content-Type")); t != "application/json" && !strings.HasSuffix(t, "+json") {
		return canonicalForm(r, body)
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
