package httpkey

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core/once"
)

// stored is the content of Result.Meta, as JSON. Result.Data is the body.
type stored struct {
	Status int `json:"status"`
	// Header has what the handler set. Added has the values that it added to those of middleware
	// outside.
	Header http.Header `json:"header,omitempty"`
	Added  http.Header `json:"added,omitempty"`
	// Raw has the headers with a value that is not UTF-8, byte for byte, in base64.
	Raw map[string][][]byte `json:"raw,omitempty"`
	// NotKept: the request was carried out, but its response was streamed or too large.
	NotKept bool `json:"not_kept,omitempty"`
}

// encode turns a response into a result. If the response cannot be kept, the result says only that
// a response existed.
func (r *recorder) encode(keep []string) once.Result {
	if !r.passed {
		s := stored{Status: r.status, Header: http.Header{}}
		for k, v := range r.sent {
			outer := r.outer[k]
			switch {
			case len(v) == 0 || !kept(k, keep) || slices.Equal(v, outer):
			case len(outer) > 0 && len(v) > len(outer) && slices.Equal(v[:len(outer)], outer) && valid(v):
				if s.Added == nil {
					s.Added = http.Header{}
				}
				s.Added[k] = v[len(outer):]
			default:
				s.keep(k, v)
			}
		}
		meta, err := json.Marshal(s)
		res := once.Result{Data: r.body, Meta: string(meta)}
		if ct := r.sent.Get("Content-Type"); (once.Result{ContentType: ct}).Validate(0) == nil {
			res.ContentType = ct // for people who read the table; Meta has the header too
		}
		if err == nil && res.Validate(r.limit) == nil {
			return res
		}
	}
	meta, _ := json.Marshal(stored{Status: r.status, NotKept: true}) // a number and a boolean: Marshal cannot fail
	return once.Result{Meta: string(meta)}
}

// kept reports whether a header is kept. Its name may have any spelling, because a handler can
// write it without Header.Set.
func kept(name string, keep []string) bool {
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	if slices.Contains(neverHeaders, canonical) {
		return false
	}
	for _, k := range keep {
		if prefix, ok := strings.CutSuffix(k, "*"); canonical == k || ok && hasPrefixFold(canonical, prefix) {
			return true
		}
	}
	return false
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

func (s *stored) keep(name string, values []string) {
	if valid(values) {
		s.Header[name] = values
		return
	}
	if s.Raw == nil {
		s.Raw = map[string][][]byte{}
	}
	for _, v := range values {
		s.Raw[name] = append(s.Raw[name], []byte(v))
	}
}

// valid reports whether JSON can hold the values.
func valid(values []string) bool {
	return !slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) })
}

var errForeign = errors.New("httpkey: what is stored under this key is not a response of this package")

func decode(res once.Result) (stored, error) {
	var s stored
	if err := json.Unmarshal([]byte(res.Meta), &s); err != nil {
		return s, fmt.Errorf("%w: %w", errForeign, err)
	}
	if !s.NotKept && (s.Status < 200 || s.Status > 999) {
		return s, fmt.Errorf("%w: status %d", errForeign, s.Status)
	}
	return s, nil
}

// replay answers with a stored response. Headers of middleware outside are about this response, and
// stay. Nor is there a Content-Length: such middleware may compress.
func (s stored) replay(w http.ResponseWriter, body []byte, replayedHeader string) {
	h := w.Header()
	for k, v := range s.Header {
		h[k] = slices.Clone(v)
	}
	for k, v := range s.Added {
		h[k] = append(h[k], v...)
	}
	for k, v := range s.Raw {
		h[k] = nil
		for _, b := range v {
			h[k] = append(h[k], string(b))
		}
	}
	h.Set(replayedHeader, "true")
	w.WriteHeader(s.Status)
	if len(body) > 0 && bodyAllowed(s.Status) {
		_, _ = w.Write(body) // the client may be gone
	}
}
