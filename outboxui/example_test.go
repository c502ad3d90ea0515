package outboxui_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/outboxui"
)

// The page under a prefix of a service. Here the table is in memory; with a database, sqlops.New
// gives the API.
func ExampleNew() {
	table := outboxtest.NewRepository()
	ob, err := core.New(core.Config{Repository: table})
	if err != nil {
		panic(err)
	}
	api, err := ops.New(ob, table)
	if err != nil {
		panic(err)
	}
	page, err := outboxui.New(outboxui.Config{
		Outboxes:    []outboxui.Outbox{{Name: "shop", API: api, Database: "in memory"}},
		Environment: outboxui.Environment{Name: "production", Colour: "violet"},
		Authorize: func(r *http.Request) (actor string, rights outboxui.Rights, err error) {
			return r.Header.Get("X-User"), outboxui.See, nil // of a proxy that has signed the person in
		},
	})
	if err != nil {
		panic(err)
	}
	defer func() { _ = page.Close() }()
	mux := http.NewServeMux()
	mux.Handle("/admin/outbox/", http.StripPrefix("/admin/outbox", page))

	for _, user := range []string{"ada", ""} {
		r := httptest.NewRequest(http.MethodGet, "/admin/outbox/shop/", nil)
		r.Header.Set("X-User", user)
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, r)
		fmt.Println(answer.Code)
	}
	// Output:
	// 200
	// 403
}
