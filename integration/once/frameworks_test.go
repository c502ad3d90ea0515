package once_test

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// onceEcho is middleware of echo. It has errors written before the transaction ends.
func onceEcho(keys *httpkey.Middleware) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			outer := c.Response()
			defer c.SetResponse(outer)
			c.Request().Pattern = c.Path()
			keys.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				c.SetResponse(echo.NewResponse(w, c.Echo()))
				if err := next(c); err != nil {
					c.Error(err)
				}
			})).ServeHTTP(outer, c.Request())
			return nil
		}
	}
}

// onceGin makes a handler of gin idempotent. Middleware of gin cannot, because it can run the
// handlers behind it only once.
func onceGin(engine *gin.Engine, keys *httpkey.Middleware, h gin.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) {
		outer, before := c.Writer, len(c.Errors)
		defer func() { c.Writer = outer }()
		c.Request.Pattern = c.FullPath()
		keys.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.Request, c.Errors = r, c.Errors[:before]
			c.Writer = gin.CreateTestContextOnly(w, engine).Writer // gin's writer on top of w
			if h(c); len(c.Errors) == before {
				c.Writer.WriteHeaderNow() // gin's implicit 200
			}
		})).ServeHTTP(outer, c.Request)
	}
}

// declined is the handler of a payment that the bank refuses after it has been booked.
const declined = "card declined"

// frameworks are the services, each with the same three endpoints: one that pays, one that is
// declined by an error of the framework, and one that leaves its error to middleware outside.
var frameworks = map[string]func(p *httpPayments, keys *httpkey.Middleware) http.Handler{
	"chi": func(p *httpPayments, keys *httpkey.Middleware) http.Handler {
		r := chi.NewRouter()
		once := r.With(keys.Wrap)
		once.Post("/pay/{id}", p.ServeHTTP)
		once.Post("/declined/{id}", func(w http.ResponseWriter, r *http.Request) {
			_ = p.insert(r.Context(), "declined")
			http.Error(w, declined, http.StatusPaymentRequired)
		})
		once.Post("/silent/{id}", func(_ http.ResponseWriter, r *http.Request) { _ = p.insert(r.Context(), "silent") })
		return r
	},
	"echo": func(p *httpPayments, keys *httpkey.Middleware) http.Handler {
		e := echo.New()
		e.POST("/pay/:id", func(c echo.Context) error {
			p.ServeHTTP(c.Response(), c.Request())
			return nil
		}, onceEcho(keys))
		e.POST("/declined/:id", func(c echo.Context) error {
			_ = p.insert(c.Request().Context(), "declined")
			return echo.NewHTTPError(http.StatusPaymentRequired, declined)
		}, onceEcho(keys))
		e.POST("/silent/:id", func(c echo.Context) error { // echo's own way to use middleware of net/http
			_ = p.insert(c.Request().Context(), "silent")
			return echo.NewHTTPError(http.StatusPaymentRequired, declined)
		}, echo.WrapMiddleware(keys.Wrap))
		return e
	},
	"gin": func(p *httpPayments, keys *httpkey.Middleware) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		e := gin.New()
		e.POST("/pay/:id", onceGin(e, keys, func(c *gin.Context) { p.ServeHTTP(c.Writer, c.Request) }))
		e.POST("/declined/:id", onceGin(e, keys, func(c *gin.Context) {
			_ = p.insert(c.Request.Context(), "declined")
			c.AbortWithStatusJSON(http.StatusPaymentRequired, declined)
		}))
		e.POST("/silent/:id", func(c *gin.Context) { // the bridge that people write
			keys.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				c.Request = r
				c.Next()
			})).ServeHTTP(c.Writer, c.Request)
		}, func(c *gin.Context) {
			_ = p.insert(c.Request.Context(), "silent")
			c.JSON(http.StatusPaymentRequired, declined)
		})
		return e
	},
}

// ServeHTTP pays, with the handler of the test.
func (p *httpPayments) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.runs.Add(1)
	p.handler(w, r)
}

// A service of each framework gets the answer that its handler gave, and its work counts as that
// answer says. A response that does not come through the middleware is an error.
func TestHTTPKeyFrameworks(t *testing.T) {
	t.Parallel()
	for name, service := range frameworks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachHTTPPayments(t, func(t *testing.T, p *httpPayments) {
				var told []httpkey.Info
				h := service(p, p.keys(t, func(c *httpkey.Config) {
					c.Observer = func(i httpkey.Info) { told = append(told, i) }
				}))
				send := func(path, key string) *httptest.ResponseRecorder {
					r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}"))
					r.Header.Set("Idempotency-Key", key)
					r.Header.Set("X-User", "ada")
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					return w
				}
				for n := range 2 {
					wantPaid(t, send("/pay/7", "pay"), http.StatusCreated, "run 1", n == 1)
				}
				p.wantPayments(t, 1)
				equalText(t, told[0].Key.Scope, "http/POST /pay/{}")
				for n := range 2 {
					w := send("/declined/7", "declined")
					if w.Code != http.StatusPaymentRequired || !strings.Contains(w.Body.String(), declined) ||
						(w.Header().Get("Idempotency-Replayed") == "true") != (n == 1) {
						t.Errorf("declined: %d %s %v", w.Code, w.Body, w.Header())
					}
				}
				work := 1
				if !p.tx { // nothing rolls back what the handler did on its own
					work++
				}
				p.wantPayments(t, work)
				for range 2 {
					w := send("/silent/7", "silent")
					if last := told[len(told)-1]; w.Header().Get("Idempotency-Replayed") != "" ||
						!errors.Is(last.Err, httpkey.ErrNoResponse) {
						t.Errorf("written elsewhere: %d %s, told %v", w.Code, w.Body, last.Err)
					}
				}
				if p.tx {
					p.wantPayments(t, 1)
				}
			})
		})
	}
}

// A handler behind each framework runs again when its transaction failed because of others.
func TestHTTPKeyFrameworksRunAgain(t *testing.T) {
	t.Parallel()
	for name, service := range frameworks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachHTTPPayments(t, func(t *testing.T, p *httpPayments) {
				if !p.tx {
					t.Log("a lease runs nothing again")
					return
				}
				p.handler = func(w http.ResponseWriter, r *http.Request) {
					if p.runs.Load() == 1 {
						httpkey.Retry(r.Context(), core.ErrTxAborted)
						return
					}
					p.pay(w, r)
				}
				h := service(p, p.keys(t, nil))
				r := httptest.NewRequest(http.MethodPost, "/pay/7", strings.NewReader("{}"))
				r.Header.Set("Idempotency-Key", "k")
				r.Header.Set("X-User", "ada")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				wantPaid(t, w, http.StatusCreated, "run 2", false)
				p.wantPayments(t, 1)
			})
		})
	}
}

// The page shows what is tested here.
func TestHTTPKeyFrameworksAreOnThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/http-idempotency.md")
	fixture.NoError(t, err)
	source, err := os.ReadFile("frameworks_test.go")
	fixture.NoError(t, err)
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "frameworks_test.go", source, 0)
	fixture.NoError(t, err)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || !strings.HasPrefix(f.Name.Name, "once") {
			continue
		}
		text := source[fset.Position(f.Pos()).Offset:fset.Position(f.End()).Offset]
		if !bytes.Contains(page, text) {
			t.Errorf("docs/http-idempotency.md does not have %s as it is here", f.Name.Name)
		}
	}
}

func equalText(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
