package httpkey_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
)

// A Scope may read the body. The body is still compared, and the handler still gets it.
func TestScopeReadsTheBody(t *testing.T) {
	for name, scope := range map[string]func(r *http.Request) string{
		"form": func(r *http.Request) string { return r.PostFormValue("user") },
		"all": func(r *http.Request) string {
			b, _ := io.ReadAll(r.Body)
			return fmt.Sprint(len(b))
		},
	} {
		t.Run(name, func(t *testing.T) {
			forms(t, func(t *testing.T, tx bool) {
				a := newAPI(t, tx, func(c *httpkey.Config) { c.Scope = scope })
				a.handler = func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.PostFormValue("cents")) }
				pay := func(cents string) *httptest.ResponseRecorder {
					return a.do(formRequest("application/x-www-form-urlencoded",
						url.Values{"user": {"ada"}, "cents": {cents}}.Encode()))
				}
				wantResponse(t, pay("100"), http.StatusOK, "100", false)
				wantProblem(t, pay("900"), http.StatusUnprocessableEntity, "idempotency-key-reused")
				wantResponse(t, pay("100"), http.StatusOK, "100", true)
			})
		})
	}
}

func formRequest(contentType, body string) *http.Request {
	return requestWith(func(r *http.Request) {
		r.Header.Set("Content-Type", contentType)
		setBody(r, body)
	})
}

func upload(t *testing.T, name, text string) *http.Request {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", name)
	must(t, err)
	_, _ = io.WriteString(part, text)
	_ = form.WriteField("user", "ada")
	form.Close()
	return formRequest(form.FormDataContentType(), body.String())
}

// A middleware outside may parse the body as a form, for a CSRF token for example. Differences
// between two requests are still found.
func TestFormParsedOutside(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	forms(t, func(t *testing.T, tx bool) {
		a := newAPI(t, tx, nil)
		inner := a.server
		a.server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = r.ParseMultipartForm(1) // parses both kinds, files into files
			inner.ServeHTTP(w, r)
		})
		tries := 0
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.PostFormValue("cents"))
			if r.MultipartForm != nil { // each run of the handler gets the files
				f, err := r.MultipartForm.File["file"][0].Open()
				if err != nil {
					t.Error(err)
					return
				}
				defer f.Close()
				_, _ = io.Copy(w, f)
			}
			if tries++; tries == 1 {
				httpkey.Retry(r.Context(), core.ErrTxAborted)
			}
		}
		key := func(r *http.Request, key string) *http.Request {
			r.Header.Set("Idempotency-Key", key)
			return r
		}
		const urlencoded = "application/x-www-form-urlencoded"
		wantResponse(t, a.do(key(formRequest(urlencoded, "cents=100&user=ada"), "a")), http.StatusOK, "100", false)
		wantProblem(t, a.do(key(formRequest(urlencoded, "cents=900&user=ada"), "a")), http.StatusUnprocessableEntity,
			"idempotency-key-reused")
		wantResponse(t, a.do(key(formRequest(urlencoded, "cents=100&user=ada"), "a")), http.StatusOK, "100", true)

		tries = 0
		wantResponse(t, a.do(key(upload(t, "a.txt", "one"), "b")), http.StatusOK, "one", false)
		for _, other := range []*http.Request{
			upload(t, "a.txt", "two"), upload(t, "b.txt", "one"),
			upload(t, "a.txt", ""),
		} {
			wantProblem(t, a.do(key(other, "b")), http.StatusUnprocessableEntity, "idempotency-key-reused")
		}
		wantResponse(t, a.do(key(upload(t, "a.txt", "one"), "b")), http.StatusOK, "one", true) // with another boundary
	})
}

// A body that a handler outside has read cannot be compared. The request is refused, because the
// stored answer may belong to another request.
func TestBodyReadOutside(t *testing.T) {
	forms(t, func(t *testing.T, tx bool) {
		a := newAPI(t, tx, nil)
		inner, back := a.server, false
		a.server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			if back {
				r.Body = io.NopCloser(bytes.NewReader(b))
			}
			inner.ServeHTTP(w, r)
		})
		wantProblem(t, a.do(request()), http.StatusInternalServerError, "idempotency-request-consumed")
		if info := a.wantAnswer(httpkey.UnreadableBody); !errors.Is(info.Err, httpkey.ErrConsumed) {
			t.Errorf("told %v", info.Err)
		}
		a.wantRuns(0, 0)
		back = true
		wantResponse(t, a.do(request()), http.StatusCreated, "run 1", false)
	})
}
