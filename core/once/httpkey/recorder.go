package httpkey

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core/once"
)

// ErrResponseTooLarge is returned by Write in the transaction form if the body is larger than
// Config.Keys.MaxResult.
var ErrResponseTooLarge = errors.New("httpkey: response too large to be kept")

// recorder holds a response back until the middleware decides whether to send and keep it. In the
// lease form it lets the response through if the handler flushes, hijacks, or writes more than can
// be kept. Such a response is not kept. In the transaction form nothing goes through before the
// commit.
type recorder struct {
	w       http.ResponseWriter
	limit   int
	through func() // called when the response begins to go through; nil: it must not go through

	outer  http.Header // the header before the handler
	header http.Header // the header that the handler changes
	sent   http.Header // the header at the time of the status
	status int
	body   []byte

	passed   bool
	hijacked bool
	tooLarge bool
}

func newRecorder(w http.ResponseWriter, limit int, through func()) *recorder {
	return &recorder{w: w, limit: limit, through: through, outer: w.Header().Clone(), header: w.Header().Clone()}
}

func (r *recorder) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{} // Clone of a nil header is nil
	}
	return r.header
}

func (r *recorder) WriteHeader(status int) {
	informational := status >= 100 && status < 200 && status != http.StatusSwitchingProtocols
	if r.status != 0 || r.hijacked || informational {
		return
	}
	r.status, r.sent = status, r.Header().Clone()
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.hijacked {
		return 0, http.ErrHijacked
	}
	r.WriteHeader(http.StatusOK)
	switch {
	case r.passed:
		return r.w.Write(p)
	case !bodyAllowed(r.status):
		return 0, http.ErrBodyNotAllowed
	case len(p) <= r.limit-len(r.body):
		r.body = append(r.body, p...)
		return len(p), nil
	case r.through == nil:
		r.tooLarge = true
		return 0, ErrResponseTooLarge
	}
	if err := r.pass(); err != nil {
		return 0, err
	}
	return r.w.Write(p)
}

// pass sends the recorded part, and lets the rest through.
func (r *recorder) pass() error {
	r.WriteHeader(http.StatusOK)
	if r.passed {
		return nil
	}
	r.passed = true
	r.through()
	setHeader(r.w.Header(), r.sent)
	r.w.WriteHeader(r.status)
	if len(r.body) == 0 {
		return nil
	}
	_, err := r.w.Write(r.body)
	r.body = nil
	return err
}

// Flush implements http.Flusher.
func (r *recorder) Flush() { _ = r.FlushError() }

// FlushError is called by http.ResponseController. In the transaction form it does nothing.
func (r *recorder) FlushError() error {
	if r.hijacked {
		return http.ErrHijacked
	}
	if r.through == nil {
		return nil
	}
	if err := r.pass(); err != nil {
		return err
	}
	return http.NewResponseController(r.w).Flush()
}

// Hijack implements http.Hijacker.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if r.through == nil {
		return nil, nil, http.ErrNotSupported
	}
	conn, rw, err := http.NewResponseController(r.w).Hijack()
	if err == nil {
		r.hijacked = true
		if !r.passed {
			r.through()
		}
		r.passed = true
	}
	return conn, rw, err
}

// Unwrap is for http.ResponseController: deadlines and full duplex.
func (r *recorder) Unwrap() http.ResponseWriter { return r.w }

// finish is called after the handler, to send the response if it was not streamed.
func (r *recorder) finish() {
	if r.hijacked {
		return
	}
	trailers := r.trailers()
	if !r.passed {
		setHeader(r.w.Header(), r.sent)
		r.w.WriteHeader(r.status)
		if len(r.body) > 0 {
			_, _ = r.w.Write(r.body) // the client may be gone
		}
	}
	maps.Copy(r.w.Header(), trailers)
}

// trailers returns the trailers that the handler has set, in either way of package http.
func (r *recorder) trailers() http.Header {
	t := http.Header{}
	for k, v := range r.header {
		if strings.HasPrefix(k, http.TrailerPrefix) {
			t[k] = v
		}
	}
	for _, names := range r.sent.Values("Trailer") {
		for name := range strings.SplitSeq(names, ",") {
			k := http.CanonicalHeaderKey(strings.TrimSpace(name))
			if v, ok := r.header[k]; ok {
				t[k] = v
			}
		}
	}
	return t
}

// setHeader makes h equal to want.
func setHeader(h, want http.Header) {
	clear(h)
	maps.Copy(h, want)
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// stored is the content of Result.Meta, as JSON. Result.Data is the body.
type stored struct {
	Status int `json:"status"`
	// Header has the values that the handler set, and Added the values that it added to outer
	// middleware's.
	Header http.Header `json:"header,omitempty"`
	Added  http.Header `json:"added,omitempty"`
	// Raw has the headers with a value that is not UTF-8, byte for byte, in base64.
	Raw map[string][][]byte `json:"raw,omitempty"`
	// NotKept: the request was carried out, but its response was streamed or too large.
	NotKept bool `json:"not_kept,omitempty"`
}

// encode turns a response into a result. If the response cannot be kept, the result records only
// that a response existed.
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
