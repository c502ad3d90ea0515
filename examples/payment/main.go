// Command payment is an endpoint that takes payments once, however often a client sends them:
// net/http, GORM and the header Idempotency-Key.
//
//	go run ./examples/payment                                       # SQLite in a temporary folder
//	# PostgreSQL; replaces example_payments, empties example_idempotency_key
//	DATABASE_URL=postgres://user@host/db go run ./examples/payment
//
// service.go has the endpoint. This file has the database, the server, and a client that repeats
// its requests.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/ormoutbox/ormoutbox/examples/internal/demo"
)

func main() { demo.Main("payment", run) }

func run(ctx context.Context, out io.Writer, dsn string) error {
	dialector := postgres.Open(dsn)
	if !strings.HasPrefix(dsn, "postgres") {
		dialector = sqlite.Dialector{
			DriverName: "sqlite",
			DSN:        dsn + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate",
		}
	}
	db, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return err
	}
	pool, err := db.DB()
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := errors.Join(db.Migrator().DropTable(&Payment{}), db.AutoMigrate(&Payment{})); err != nil {
		return err
	}
	handler, err := newHandler(ctx, db)
	if err != nil {
		return err
	}
	if err := db.Exec("DELETE FROM example_idempotency_key").Error; err != nil { // the keys of an earlier run
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	err = shop(ctx, out, "http://"+listener.Addr().String())
	var payments []Payment
	err = errors.Join(err, db.Order("id").Find(&payments).Error)
	fmt.Fprintln(out, len(payments), "payments in the table")
	return errors.Join(err, server.Shutdown(ctx), ignoreClosed(<-served))
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// shop sends payments in all the ways in which clients do.
func shop(ctx context.Context, out io.Writer, url string) error {
	type scene struct{ what, customer, key, body string }
	show := func(s scene) error {
		answer, err := pay(ctx, url, s.customer, s.key, s.body)
		fmt.Fprintf(out, "%-28s %s\n", s.what+":", answer)
		return err
	}
	for _, s := range []scene{
		{"first", "ada", "k1", `{"cents":4200}`},
		{"sent again", "ada", "k1", `{"cents":4200}`},
		{"same key, another amount", "ada", "k1", `{"cents":9900}`},
		{"same key, another customer", "bob", "k1", `{"cents":4200}`},
		{"no key", "ada", "", `{"cents":4200}`},
		{"declined", "ada", "k2", `{"cents":0}`},
		{"declined, sent again", "ada", "k2", `{"cents":0}`},
	} {
		if err := show(s); err != nil {
			return err
		}
	}

	const impatient = 10
	answers := make(chan string, impatient)
	for range impatient {
		go func() {
			answer, err := pay(ctx, url, "ada", "k3", `{"cents":100}`)
			if err != nil {
				answer = err.Error()
			}
			answers <- strings.TrimSuffix(answer, " (replayed)")
		}()
	}
	count := map[string]int{}
	for range impatient {
		count[<-answers]++
	}
	for answer, n := range count {
		fmt.Fprintf(out, "%-28s %d x %s\n", "ten at once:", n, answer)
	}
	return nil
}

// pay sends one payment and returns the answer as text.
func pay(ctx context.Context, url, customer, key, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/payments", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Customer", customer)
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	answer := fmt.Sprint(resp.StatusCode, " ", strings.TrimSpace(string(text)))
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") {
		answer = fmt.Sprint(resp.StatusCode, " problem: ", problemTitle(text))
	}
	if resp.Header.Get("Idempotency-Replayed") == "true" {
		answer += " (replayed)"
	}
	return answer, err
}

func problemTitle(body []byte) string {
	var p struct{ Title string }
	if err := json.Unmarshal(body, &p); err != nil {
		return err.Error()
	}
	return p.Title
}
