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
	"strings"
	"testing"
	"testing/iotest"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
)

// Two requests are the same if their method, path, query, media type and body are the same. Nothing
// else counts.
func TestFingerprint(t *testing.T) {
	forms(t, func(t *testing.T, tx bool) {
		for name, tc := range map[string]struct {
			change func(r *http.Request)
			same   bool
		}{
			"nothing":        {func(*http.Request) {}, true},
			"another header": {func(r *http.Request) { r.Header.Set("User-Agent", "x") }, true},
			"order of query": {func(r *http.Request) { r.URL.RawQuery = "b=2&a=1&a=3" }, true},
			"charset": {func(r *http.Request) {
				r.Header.Set("Content-Type", "Application/JSON; charset=utf-8")
			}, true},
			"body":              {func(r *http.Request) { setBody(r, `{"cents":101}`) }, false},
			"blanks in body":    {func(r *http.Request) { setBody(r, `{"cents": 100}`) }, false},
			"no body":           {func(r *http.Request) { setBody(r, "") }, false},
			"query":             {func(r *http.Request) { r.URL.RawQuery = "a=1&a=3&b=9" }, false},
			"order of values":   {func(r *http.Request) { r.URL.RawQuery = "a=3&a=1&b=2" }, false},
			"no query":          {func(r *http.Request) { r.URL.RawQuery = "" }, false},
			"broken query":      {func(r *http.Request) { r.URL.RawQuery = "a=%zz" }, false},
			"media type":        {func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, false},
			"no media type":     {func(r *http.Request) { r.Header.Del("Content-Type") }, false},
			"broken media type": {func(r *http.Request) { r.Header.Set("Content-Type", "a b") }, false},
			"path":              {func(r *http.Request) { r.URL.Path = "/payments/8" }, false},
		} {
			a := newAPI(t, tx, nil)
			make := func() *http.Request {
				return requestWith(func(r *http.Request) { r.URL.Path, r.URL.RawQuery = "/payments/7", "a=1&b=2&a=3" })
			}
			a.do(make())
			r := make()
			tc.change(r)
			w := a.do(r)
			if same := w.Code == http.StatusCreated; same != tc.same ||
				!same && w.Code != http.StatusUnprocessableEntity {
				t.Errorf("%s: answered %d %s", name, w.Code, w.Body)
			}
			a.wantRuns(1, 1)
		}
	})
}

func TestCanonicalJSON(t *testing.T) {
	a := newAPI(t, false, func(c *httpkey.Config) { c.Canonical = httpkey.CanonicalJSON })
	const first = `{"to":"bob","cents":100,"tags":["a","b"]}`
	a.do(requestWith(func(r *http.Request) { setBody(r, first) }))
	for body, want := range map[string]int{
		`{ "cents": 100, "tags": ["a", "b"], "to": "\u0062ob" }`: 201,
		`{"to":"bob","cents":100.0,"tags":["a","b"]}`:            422,
		`{"to":"bob","cents":100,"tags":["b","a"]}`:              422,
		`{"to":"bob","cents":100}`:                               422,
		first + `{}`:                                             422,
		first[1:]:                                                422,
		"":                                                       422,
	} {
		if w := a.do(requestWith(func(r *http.Request) { setBody(r, body) })); w.Code != want {
			t.Errorf("%s: answered %d, want %d", body, w.Code, want)
		}
	}
	const plain = "text/plain"
	for i, body := range []string{`{"a":1}`, `{"a": 1}`} {
		w := a.do(requestWith(func(r *http.Request) {
			r.Header.Set("Idempotency-Key", "text")
			r.Header.Set("Content-Type", plain)
			setBody(r, body)
		}))
		equal(t, w.Code, []int{201, 422}[i], "%s %s: answered", plain, body)
	}
}

// A body that is too large to be compared is refused, with a Content-Length or without one.
func TestBodyTooLarge(t *testing.T) {
	each(t, func(c *httpkey.Config) { c.MaxBody = 10 }, func(t *testing.T, a *api) {
		for _, told := range []bool{true, false} {
			r := requestWith(func(r *http.Request) { setBody(r, strings.Repeat("x", 11)) })
			if told {
				r.Body = io.NopCloser(iotest.ErrReader(errors.New("it was read for nothing")))
			} else {
				r.ContentLength = -1
			}
			wantProblem(t, a.do(r), http.StatusRequestEntityTooLarge, "idempotency-request-too-large")
			a.wantAnswer("body_too_large")
		}
		a.wantRuns(0, 0)
		a.do(requestWith(func(r *http.Request) { setBody(r, strings.Repeat("x", 10)) }))
		a.wantRuns(1, 1)
	})
}

func TestBodyUnreadable(t *testing.T) {
	a := newAPI(t, false, nil)
	broken := errors.New("broken")
	w := a.do(requestWith(func(r *http.Request) { r.Body = io.NopCloser(iotest.ErrReader(broken)) }))
	wantProblem(t, w, http.StatusBadRequest, "idempotency-request-unreadable")
	if info := a.wantAnswer("unreadable_body"); !errors.Is(info.Err, broken) {
		t.Errorf("told %v", info.Err)
	}
	a.wantRuns(0, 0)
}

// The handler gets the request unchanged: body, path values, headers. KeyOf returns the key.
func TestHandlerSeesTheRequest(t *testing.T) {
	each(t, nil, func(t *testing.T, a *api) {
		a.handler = func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			key, ok := httpkey.KeyOf(r.Context())
			fmt.Fprint(w, string(body), err, r.PathValue("id"), r.Pattern, r.Header.Get("X-User"), key, ok)
		}
		w := a.do(requestWith(func(r *http.Request) { r.URL.Path = "/payments/7" }))
		const want = `{"cents":100}<nil>7/payments/{id}adahttp/POST/payments/{}|ada|k1true`
		equal(t, strings.ReplaceAll(w.Body.String(), " ", ""), want, "what the handler saw")
		if _, ok := httpkey.KeyOf(t.Context()); ok {
			t.Error("a key without a request")
		}
	})
}

// Files of a form that the handler parsed are deleted after the handler.
func TestMultipart(t *testing.T) {
	a := newAPI(t, true, nil)
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, _ := form.CreateFormFile("file", "a.txt")
	part.Write(make([]byte, 100))
	form.Close()
	a.handler = func(_ http.ResponseWriter, r *http.Request) {
		t.Setenv("TMPDIR", t.TempDir())
		if err := r.ParseMultipartForm(1); err != nil { // into a file
			t.Error(err)
			return
		}
		opened, err := r.MultipartForm.File["file"][0].Open()
		if err != nil {
			t.Error(err)
			return
		}
		opened.Close()
		a.handler = func(http.ResponseWriter, *http.Request) {}
		form := r.MultipartForm
		t.Cleanup(func() {
			if f, err := form.File["file"][0].Open(); err == nil {
				f.Close()
				t.Error("the file is still there")
			}
		})
	}
	a.do(requestWith(func(r *http.Request) {
		setBody(r, body.String())
		r.Header.Set("Content-Type", form.FormDataContentType())
	}))
	a.wantRuns(1, 0)
}

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
	each(t, nil, func(t *testing.T, a *api) {
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
	each(t, nil, func(t *testing.T, a *api) {
		inner, back := a.server, false
		a.server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			if back {
				r.Body = io.NopCloser(bytes.NewReader(b))
			}
			inner.ServeHTTP(w, r)
		})
		wantProblem(t, a.do(request()), http.StatusInternalServerError, "idempotency-request-consumed")
		if info := a.wantAnswer("unreadable_body"); !errors.Is(info.Err, httpkey.ErrConsumed) {
			t.Errorf("told %v", info.Err)
		}
		a.wantRuns(0, 0)
		back = true
		wantResponse(t, a.do(request()), http.StatusCreated, "run 1", false)
	})
}

func TestParseKey(t *testing.T) {
	long := strings.Repeat("k", 255)
	for header, want := range map[string]string{
		"k1": "k1", `"k1"`: "k1", " \tk1\t ": "k1", ` "k1" `: "k1", "a b": "a b", `"a b"`: "a b", `" a"`: " a",
		`a"b`: `a"b`, `"a\"b"`: `a"b`, `a\b`: `a\b`, `"a\\b"`: `a\b`, "a,b": "a,b", "~!": "~!", long: long,
		`"` + long + `"`: long, "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d": "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d",
	} {
		if got, err := httpkey.ParseKey(header); err != nil || got != want {
			t.Errorf("ParseKey(%q) = %q, %v, want %q", header, got, err, want)
		}
	}
	for _, header := range []string{
		"", " ", `"`, `""`, `"a`, `"a\`, `"a\"`, `"a\n"`, `"a"b`, `"a","b"`, "a\x00", "a\x7f", "a\tb", "é",
		"a\xff", long + "k", `"` + long + `k"`,
	} {
		if got, err := httpkey.ParseKey(header); !errors.Is(err, httpkey.ErrInvalidKey) {
			t.Errorf("ParseKey(%q) = %q, %v", header, got, err)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, s := range []string{"k1", `"k1"`, `"a\"b\\"`, "", `"`, "a\x00", "é", `"a" `} {
		f.Add(s)
	}
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	f.Fuzz(func(t *testing.T, header string) {
		key, err := httpkey.ParseKey(header)
		if err != nil {
			if key != "" || !errors.Is(err, httpkey.ErrInvalidKey) {
				t.Fatalf("%q, %v", key, err)
			}
			return
		}
		if len(key) < 1 || len(key) > 255 || strings.ContainsFunc(key,
			func(r rune) bool { return r < 0x20 || r > 0x7e }) {
			t.Fatalf("%q is not a key", key)
		}
		// The quoted form of a key is the same key.
		if again, err := httpkey.ParseKey(`"` + quote.Replace(key) + `"`); err != nil || again != key {
			t.Fatalf("%q became %q, %v", key, again, err)
		}
		if !strings.HasPrefix(strings.Trim(header, " \t"), `"`) && key != strings.Trim(header, " \t") {
			t.Fatalf("bare %q became %q", header, key)
		}
	})
}
