package httpkey_test

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

func TestConfigNamesEveryProblem(t *testing.T) {
	_, err := httpkey.New(httpkey.Config{
		Keys: once.Config{Lease: -1}, Methods: []string{"GET", "post", ""}, Header: "a b", ReplayedHeader: "é",
		MaxBody: -1, RetryAfter: -time.Second, KeepHeaders: []string{"set-cookie", "x:y", "*", "a*b"},
		ProblemType: "a b",
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"Store is missing", "Lease", "Keys.Store is missing", "Scope is missing", `"GET"`, `"post"`, `""`,
		`"a b" is not the name`, `"é"`, "MaxBody", "RetryAfter", "set-cookie must not be kept", `"x:y"`, `"*"`, `"a*b"`,
		`"a b" is not a URI`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing about %s in: %v", want, err)
		}
	}
}

// leaseOnly is a store without a transaction form.
type leaseOnly struct{ once.Store }

func TestConfigOfTransactionForm(t *testing.T) {
	repo := outboxtest.NewRepository()
	everybody := func(*http.Request) string { return "all" }
	for want, cfg := range map[string]httpkey.Config{
		"needs Keys.TxStore":    {Keys: once.Config{Store: leaseOnly{repo.OnceStore()}}},
		"FailOpen":              {Keys: once.Config{Store: repo.OnceStore()}, FailOpen: true},
		"":                      {Keys: once.Config{TxStore: repo.OnceStore()}},
		"Keys.Store is missing": {Keys: once.Config{TxStore: repo.OnceStore()}},
	} {
		cfg.Scope = everybody
		if want != "Keys.Store is missing" {
			cfg.Transactor = repo.Transactor()
		}
		err := cfg.Validate()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// The Link of every problem leads to a heading of the page, and every answer is in its table.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../docs/http-idempotency.md")
	must(t, err)
	for _, name := range httpkey.Problems() {
		if !strings.Contains(string(text), "\n### "+name+"\n") {
			t.Errorf("%s has no heading", name)
		}
	}
	if got, want := strings.Count(string(text), "\n### "), len(httpkey.Problems()); got != want {
		t.Errorf("%d problems are described, %d exist", got, want)
	}
	for _, o := range []string{
		"executed", "replayed", "in_flight", "mismatch", "missing_key", "invalid_key",
		"missing_scope", "unreadable_body", "body_too_large", "abandoned", "not_kept",
		"bypassed", "store_error", "client_gone",
	} {
		if !strings.Contains(string(text), "`"+o+"`") {
			t.Errorf("answer %s is not described", o)
		}
	}
}
