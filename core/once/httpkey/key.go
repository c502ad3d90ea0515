package httpkey

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core/once"
)

// ErrInvalidKey: the header has no acceptable key. The text says why, and may be shown to the
// client.
var ErrInvalidKey = errors.New("httpkey: invalid key")

// ParseKey reads the value of an Idempotency-Key header: 1 to 255 printable ASCII characters. They
// may be bare, as most clients send them, or a quoted string of RFC 8941 and RFC 9651, as the draft
// requires, whose parameters are ignored. Both forms name the same key. The error wraps
// ErrInvalidKey.
func ParseKey(header string) (string, error) {
	key := strings.Trim(header, " \t")
	if strings.HasPrefix(key, `"`) {
		var err error
		if key, err = unquote(key); err != nil {
			return "", err
		}
	}
	switch {
	case key == "":
		return "", fmt.Errorf("%w: it is empty", ErrInvalidKey)
	case len(key) > once.MaxID:
		return "", fmt.Errorf("%w: it has %d characters, more than %d", ErrInvalidKey, len(key), once.MaxID)
	case strings.ContainsFunc(key, notPrintable):
		return "", fmt.Errorf("%w: only printable ASCII characters are allowed", ErrInvalidKey)
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
					ErrInvalidKey)
			}
			return b.String(), nil
		case '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", fmt.Errorf(`%w: a backslash must be followed by \ or "`, ErrInvalidKey)
			}
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", fmt.Errorf("%w: the closing quote is missing", ErrInvalidKey)
}

// headerKey reads the one key of a request. missing: there is no such header.
func headerKey(values []string) (key string, missing bool, err error) {
	switch len(values) {
	case 0:
		return "", true, nil
	case 1:
		key, err = ParseKey(values[0])
		return key, false, err
	}
	return "", false, fmt.Errorf("%w: there are %d of them", ErrInvalidKey, len(values))
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
