package httpkey

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// errConsumed: an outer handler has read the body, so it cannot be compared.
var errConsumed = errors.New("httpkey: the body was read before the middleware could: wrap outside of what reads " +
	"it, or have that set " +
	"Request.Body to what it has read")

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
