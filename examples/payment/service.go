package main

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

// Payment is a payment that was taken.
type Payment struct {
	ID       int64  `json:"payment"`
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

// TableName names the table for GORM.
func (Payment) TableName() string { return "example_payments" }

// newHandler is the service: one endpoint.
func newHandler(ctx context.Context, db *gorm.DB) (http.Handler, error) {
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	store, err := sqlonce.New(pool, sqlonce.Config{Prefix: "example_"})
	if err != nil {
		return nil, err
	}
	if err := store.Migrate(ctx); err != nil { // in production apply what sqlonce.Migrations returns
		return nil, err
	}
	keys, err := httpkey.New(httpkey.Config{
		Keys:       once.Config{Store: store, Wait: 10 * time.Second},
		Transactor: gormoutbox.Transactor(db), // key, payment and response commit together
		Scope:      customer,
	})
	if err != nil {
		return nil, err
	}
	// A server also runs keys.Run(ctx), which deletes keys after their time to live.
	mux := http.NewServeMux()
	mux.Handle("POST /payments", keys.Wrap(http.HandlerFunc(takePayment)))
	return mux, nil
}

// customer returns the client of the request. A real service takes it from its authentication,
// because no client may get the response of another one.
func customer(r *http.Request) string { return r.Header.Get("X-Customer") }

// takePayment does not use keys. It only has to work in the transaction of its request.
func takePayment(w http.ResponseWriter, r *http.Request) {
	tx, err := gormoutbox.FromContext(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	var order struct{ Cents int }
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
		http.Error(w, "not a payment", http.StatusBadRequest)
		return
	}
	p := Payment{Customer: customer(r), Cents: order.Cents}
	if err := tx.Create(&p).Error; err != nil {
		if !httpkey.Retry(r.Context(), err) { // after a deadlock the handler is run again
			http.Error(w, "not now", http.StatusInternalServerError)
		}
		return
	}
	if p.Cents <= 0 {
		http.Error(w, "card declined", http.StatusPaymentRequired) // rolls the row back; the answer is kept
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(p) // into memory
}
