package httpkey

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core/once"
)

// errInvalidKey: the header has no acceptable key. The client gets the text.
var errInvalidKey = errors.New("httpkey: invalid key")

// parseKey reads the value of an Idempotency-Key header: 1 to 255 printable ASCII characters. They
// may be bare, as most clients send them, or a quoted string of RFC 8941 and RFC 9651, as the draft
// requires, whose parameters are ignored. Both forms name the same key. The error wraps
// errInvalidKey.
func parseKey(header string) (string, error) {
	key := strings.Trim(header, " \t")
	if strings.HasPrefix(key, `"`) {
		var err error
		if key, err = unquote(key); err != nil {
			return "", err
		}
	}
	switch {
	case key == "":
		return "", fmt.Errorf("%w: it is empty", errInvalidKey)
	case len(key) > once.MaxID:
		return "", fmt.Errorf("%w: it has %d characters, more than %d", errInvalidKey, len(key), once.MaxID)
	case strings.ContainsFunc(key, notPrintable):
		return "", fmt.Errorf("%w: only printable ASCII characters are allowed", errInvalidKey)
	}
	return key, nil
}

func notPrintable(r rune) bool { return r < ' ' || r > '~' }

// parameters follow an item of RFC 9651.
var parameters = regexp.MustCompile(`^(; *[a-z*][a-z0-9_.*-]*(=(` +
	`"([ !#-\[\]-~]|\\["\\])*"` + // string
	`|:[A-Za-z0-9+/=]*:` + // bytes
	`|\?[01]|@?-?[0-9.]+` + // boolean, date, number
	`|[A-Za-z*][!#$%&'*+.^_\x60|~0-9A-Za-z:/-]*` + // token
	`))?)*$`)

// unquote reads a quoted string. It refuses a text with anything but parameters after the closing
// quote.
func unquote(s string) (string, error) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			if !parameters.MatchString(s[i+1:]) {
				return "", fmt.Errorf("%w: something follows the closing quote; is it more than one key?",
					errInvalidKey)
			}
			return b.String(), nil
		case '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", fmt.Errorf(`%w: a backslash must be followed by \ or "`, errInvalidKey)
			}
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", fmt.Errorf("%w: the closing quote is missing", errInvalidKey)
}

// headerKey reads the one key of a request. missing: there is no such header.
func headerKey(values []string) (key string, missing bool, err error) {
	switch len(values) {
	case 0:
		return "", true, nil
	case 1:
		key, err = parseKey(values[0])
		return key, false, err
	}
	return "", false, fmt.Errorf("%w: there are %d of them", errInvalidKey, len(values))
}

// mux is an http.ServeMux.
type mux interface {
	Handler(r *http.Request) (h http.Handler, pattern string)
}

// route returns the endpoint of a request that next handles.
func (m *Middleware) route(r *http.Request, next http.Handler) string {
	if m.cfg.Route != nil {
		return m.cfg.Route(r)
	}
	if mux, ok := next.(mux); ok {
		if _, pattern := mux.Handler(r); pattern != "" {
			return pattern
		}
	}
	if r.Pattern != "" {
		return r.Pattern
	}
	return r.URL.EscapedPath()
}

// unnamed returns a route without the names of its wildcards, which may change while clients send
// their requests again: {} for {id}, {id:[0-9]+} and :id, {...} for {rest...} and *rest.
func unnamed(route string) string {
	segments := strings.Split(route, "/")
	for n, s := range segments {
		switch open, end := strings.Index(s, "{"), strings.LastIndex(s, "}"); {
		case strings.HasPrefix(s, ":"):
			segments[n] = "{}"
		case strings.HasPrefix(s, "*"), open >= 0 && strings.HasSuffix(s, "...}"):
			segments[n] = "{...}"
		case open >= 0 && end > open && s[open:end+1] != "{$}":
			segments[n] = s[:open] + "{}" + s[end+1:]
		}
	}
	return strings.Join(segments, "/")
}

// makeKey joins the parts of a key. A text that a once.Key cannot hold is replaced by its hash.
func makeKey(method, route, scope, id string) once.Key {
	// A pattern may begin with the method, which the scope has anyway: "http/POST /payments/{id}".
	route = strings.TrimPrefix(unnamed(route), method+" ")
	k := once.Key{Scope: scopePrefix + method + " " + route, Tenant: scope, ID: id}
	if unfit(k.Scope, once.MaxScope) {
		k.Scope = scopePrefix + digest(k.Scope)
	}
	if unfit(k.Tenant, once.MaxTenant) {
		k.Tenant = digest(k.Tenant)
	}
	return k
}

const (
	scopePrefix  = "http/"
	digestPrefix = "sha256:"
)

// unfit also finds a text that looks like a digest. So no client can choose a name that equals the
// digest of another name.
func unfit(s string, limit int) bool {
	return len(s) > limit || !utf8.ValidString(s) || strings.HasPrefix(s, digestPrefix) ||
		strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return digestPrefix + base64.RawURLEncoding.EncodeToString(sum[:])
}

// KeyOf returns the key under which the request of ctx is carried out. Use it for logs, and in the
// lease form to pass it on to the other side (Key.String is one text form). ok is false if no key
// protects the request.
func KeyOf(ctx context.Context) (key once.Key, ok bool) {
	if c := callOf(ctx); c != nil {
		return c.key, true
	}
	return once.Key{}, false
}

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

// canonicalForm is the default of [Config.Canonical]. It returns the parts of a multipart body
// without the boundary, sorted by the names of their fields. Any other body, and a body that does
// not match its Content-Type, stays unchanged.
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

// CanonicalJSON is for [Config.Canonical]. Two bodies are the same if they are the same JSON value,
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

// errConsumed: an outer handler has read the body, so it cannot be compared.
var errConsumed = errors.New("httpkey: the body was read before the middleware could: wrap outside of what reads it, " +
	"or have that set Request.Body to what it has read")

// readBody reads the whole body. The error is an *http.MaxBytesError if the body is larger than
// limit.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if r.ContentLength > limit { // a body of this length is refused anyway
		return nil, &http.MaxBytesError{Limit: limit}
	}
	return io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
}

func newBody(b []byte) io.ReadCloser {
	if len(b) == 0 {
		return http.NoBody
	}
	return io.NopCloser(bytes.NewReader(b))
}

// content returns a text to compare in place of a body that an outer handler has parsed as a form.
// The handler gets the form unchanged. It returns nil for a body that was not read.
func content(r *http.Request) ([]byte, error) {
	switch {
	case r.MultipartForm != nil:
		values := []byte(url.Values(r.MultipartForm.Value).Encode())
		h := sha256.New()
		for _, field := range slices.Sorted(maps.Keys(r.MultipartForm.File)) {
			for _, f := range r.MultipartForm.File[field] {
				opened, err := f.Open()
				if err != nil {
					return nil, err
				}
				// a hash never fails
				_, _ = io.WriteString(h, strconv.Quote(field)+strconv.Quote(f.Filename)+strconv.FormatInt(f.Size, 10)+
					":")
				_, err = io.Copy(h, opened)
				if err = errors.Join(err, opened.Close()); err != nil {
					return nil, err
				}
			}
		}
		return h.Sum(append(values, 0)), nil
	case len(r.PostForm) > 0:
		return []byte(r.PostForm.Encode()), nil
	case r.ContentLength != 0 && r.Body != nil && r.Body != http.NoBody: // -1: of unknown length
		return nil, errConsumed
	}
	return nil, nil
}
