package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/outboxui"
)

// page is the operators' page of the shop, served by the parent.
type page struct {
	address string
	handler *outboxui.Handler
	server  *http.Server
}

func openPage(ctx context.Context, dir, listen string) (*page, error) {
	db, err := openOrders(ctx, dir)
	if err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: core.SQLite})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(repo.Migrate(ctx), addPast(ctx, pool, time.Now())); err != nil {
		return nil, err
	}
	outbox, err := core.New(core.Config{Repository: repo}) // it does not relay: the child does
	if err != nil {
		return nil, err
	}
	api, err := sqlops.New(outbox)
	if err != nil {
		return nil, err
	}
	p := &page{}
	p.handler, err = outboxui.New(outboxui.Config{
		Outboxes: []outboxui.Outbox{{Name: "shop", API: api, Database: "SQLite, " + shopFile +
			" of the demonstration"}},
		Environment: outboxui.Environment{Name: "demo", Colour: "violet"},
		Authorize: func(*http.Request) (string, outboxui.Rights, error) {
			return "ada", outboxui.See | outboxui.Reveal | outboxui.Act, nil // nothing here is real
		},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, err
	}
	p.address = fmt.Sprintf("http://%s/", listener.Addr())
	p.server = &http.Server{Handler: p.handler, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = p.server.Serve(listener) }()
	return p, nil
}

func (p *page) close() { _ = errors.Join(p.server.Close(), p.handler.Close()) }
