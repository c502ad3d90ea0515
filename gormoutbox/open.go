package gormoutbox

import (
	"context"
	"errors"

	"gorm.io/gorm"
)

// Open opens a database as gorm.Open does, and makes its outbox with New. Every transaction that is
// begun on the *gorm.DB is tracked.
//
//	db, ob, err := gormoutbox.Open(ctx, postgres.Open(dsn), gormoutbox.Config{Publisher: publisher, AutoCreate: true})
//	if err != nil { ... }
//	go ob.Run(ctx)
//
// gorm.Open connects to the database. AutoCreate needs a connection too, and waits for the database
// until ctx ends, at most a minute. Open returns an error for a wrong configuration, an unsupported
// dialect and a failed migration. After an error it leaves nothing open.
func Open(
	ctx context.Context, dialector gorm.Dialector, cfg Config, options ...gorm.Option,
) (*gorm.DB, *Outbox, error) {
	if dialector == nil {
		return nil, nil, errors.New("outbox: the gorm.Dialector is nil: give postgres.Open(dsn), say")
	}
	db, err := gorm.Open(dialector, options...)
	if err != nil {
		return nil, nil, err
	}
	ob, err := newOutbox(ctx, db, cfg)
	if err != nil {
		if pool, none := db.DB(); none == nil {
			err = errors.Join(err, pool.Close())
		}
		return nil, nil, err
	}
	return db, ob, nil
}
