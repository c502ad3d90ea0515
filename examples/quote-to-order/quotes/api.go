package quotes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

// creditLimit is what a customer may order at once.
const creditLimit = 1_000_000

var errCredit = errors.New("the customer's credit is not enough")

// newAPI returns the endpoints. A request with the Idempotency-Key of an earlier one gets its
// response, and does nothing. The key, the changes of the handler and its events commit together.
func newAPI(db *gorm.DB, service *Service, store once.Store) (http.Handler, *httpkey.Middleware, error) {
	keys, err := httpkey.New(httpkey.Config{
		Keys: once.Config{Store: store}, Transactor: gormoutbox.Transactor(db), Scope: tenant,
	})
	if err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /quotes", keys.Wrap(answer(func(ctx context.Context, r *http.Request) (*Quote, error) {
		q := &Quote{TenantID: tenant(r)}
		if err := json.NewDecoder(r.Body).Decode(q); err != nil {
			return nil, fmt.Errorf("%w: %w", errBadRequest, err)
		}
		return q, service.Draft(ctx, q)
	})))
	mux.Handle("POST /quotes/{id}/accept", keys.Wrap(answer(func(ctx context.Context, r *http.Request) (*Quote, error) {
		q, err := service.Accept(ctx, tenant(r), r.PathValue("id"))
		if err != nil {
			return nil, err
		}
		return q, reserveCredit(q) // an error rolls back the quote and its event
	})))
	return mux, keys, nil
}

// tenant is the client of the request. A real service takes it from its authentication.
func tenant(r *http.Request) string { return r.Header.Get("X-Tenant") }

func reserveCredit(q *Quote) error {
	left := int64(creditLimit)
	for _, l := range q.Lines {
		if l.Cents > left/int64(l.Quantity) { // a product could be larger than any number
			return errCredit
		}
		left -= int64(l.Quantity) * l.Cents
	}
	return nil
}

var errBadRequest = errors.New("bad request")

// answer writes the result of fn as JSON. The middleware rolls back the changes of a handler that
// answers with 4xx or 5xx.
func answer(fn func(ctx context.Context, r *http.Request) (*Quote, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, err := fn(r.Context(), r)
		switch {
		case errors.Is(err, errBadRequest), errors.Is(err, ErrInvalid):
			http.Error(w, err.Error(), http.StatusBadRequest)
		case errors.Is(err, ErrNotFound):
			http.Error(w, err.Error(), http.StatusNotFound)
		case errors.Is(err, errCredit):
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		case err != nil && httpkey.Retry(r.Context(), err):
			// Another transaction was in the way: the middleware runs this handler again.
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		default:
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(q)
		}
	})
}
