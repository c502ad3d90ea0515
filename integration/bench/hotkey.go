package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/gorm"
)

// hotKeyLoad is how many goroutines use one key at once.
const hotKeyLoad = 8

// numberedSchema is the schema that people write by hand for events in order. A row counts the
// events of its key and is locked until the commit. The second row has the number.
const numberedSchema = `
CREATE TABLE bench_counter (
    key  text   NOT NULL PRIMARY KEY,
    last bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE bench_numbered (LIKE bench_outbox INCLUDING ALL);
ALTER TABLE bench_numbered ADD COLUMN seq bigint NOT NULL;
CREATE UNIQUE INDEX bench_numbered_key ON bench_numbered (key, seq);
`

// Rows of this section.
const (
	hotKeyHand  = "+ second model row, a counter row of one key"
	hotKeyOurs  = "+ outbox, ordered, one key"
	hotKeyRelay = "+ outbox, ordered, one key, relay in this process"
	hotKeyMany  = "+ outbox, ordered, many keys"
)

var hotKeyColumns = []Column{
	{"tx/s", Count},
	{"÷ counter row", Ratio},
	{"p50 µs", Count},
	{"p99 µs", Count},
	{"CPU µs/tx", Count},
	{"WAL B/tx", Count},
	{"fast path", Percent},
}

// gormNumberedRow is a second model row with a number.
type gormNumberedRow struct {
	Row gormSecondRow `gorm:"embedded"`
	Seq int64
}

func (gormNumberedRow) TableName() string { return "bench_numbered" }

// NumberedRow inserts an order, takes the next number of a key from its counter row, which stays
// locked until the commit, and inserts the second row with that number.
func (c *gormClient) NumberedRow(ctx context.Context, row secondRow) error {
	return c.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&gormOrder{Customer: "ada", Amount: 4200}).Error; err != nil {
			return err
		}
		var seq int64
		err := tx.Raw(`INSERT INTO bench_counter AS c (key, last) VALUES (?, 1)
ON CONFLICT (key) DO UPDATE SET last = c.last + 1 RETURNING last`, row.Key).Scan(&seq).Error
		if err != nil {
			return err
		}
		return tx.Create(&gormNumberedRow{Seq: seq, Row: gormSecondRow{
			ID: row.ID, Topic: row.Topic, Type: row.Type, Key: row.Key, Payload: row.Payload, AvailableAt: row.At,
			CreatedAt: row.At,
		}}).Error
	})
}

func runHotKey(ctx context.Context, e *env, s *Section) (err error) {
	s.note("%d goroutines run transactions with an order and an ordered event, all with one key. The hand-written way "+
		"has a counter row for the key, which the transaction changes and so locks until its commit, and its number "+
		"in the second row. Both ways serialize the transactions of the key: only one at a time is between that "+
		"statement and its commit.", hotKeyLoad)
	s.note("The second table is at the distance of section network, where the lock is held for round trips. Its CPU " +
		"includes the proxy.")
	if err := e.exec(ctx, numberedSchema); err != nil {
		return err
	}
	if err := e.measureHotKey(ctx, s, e.db, "near_", ""); err != nil {
		return err
	}
	cfg, err := pgx.ParseConfig(e.dsn)
	if err != nil {
		return err
	}
	if e.distant, err = e.openDistance(cfg); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, e.distant.close())
		e.distant = nil
	}()
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	return e.measureHotKey(ctx, s, db, "far_", fmt.Sprintf(", %s farther away each way", networkDelay))
}

// measureHotKey measures through one pool.
func (e *env) measureHotKey(ctx context.Context, s *Section, db *sql.DB, prefix, where string) (err error) {
	const key = "order/hot"
	open := orm{name: "GORM", open: openGORM}
	plain, err := openGORM(ctx, db, nil)
	if err != nil {
		return err
	}
	var producers []producer
	add := func(row string, sess *session, tx func(ctx context.Context) error) {
		if p := (producer{orm: open.name, row: row, sess: sess, tx: tx}); e.opts.selects(p.name()) {
			producers = append(producers, p)
		}
	}
	add(hotKeyHand, nil, func(ctx context.Context) error {
		return plain.(*gormClient).NumberedRow(ctx, newSecondRow(key, newPayload(0)))
	})
	cold, err := e.openSession(ctx, open, db, "hotkey_"+prefix, false)
	if err != nil {
		return err
	}
	hot, err := e.openSession(ctx, open, db, "hotkey_relay_"+prefix, true)
	defer func() { err = errors.Join(err, hot.close()) }()
	if err != nil {
		return err
	}
	add(hotKeyOurs, cold, func(ctx context.Context) error { return cold.Publish(ctx, cold.event(key)) })
	add(hotKeyRelay, hot, func(ctx context.Context) error { return hot.Publish(ctx, hot.event(key)) })
	add(hotKeyMany, cold, func(ctx context.Context) error { return cold.Publish(ctx, cold.event(e.randomKey())) })

	e.checkpoint(ctx)
	t := s.table(fmt.Sprintf("one key, %d at once%s", hotKeyLoad, where), hotKeyColumns...)
	if err := e.interleaveProducers(ctx, s, producers, hotKeyLoad, func(producer) *Table { return t }); err != nil {
		return err
	}
	t.divide("÷ counter row", "tx/s", func(*Row) *Row { return t.find(open.name + " " + hotKeyHand) })
	t.summarize()
	s.atLeast(t.value(open.name+" "+hotKeyOurs, "÷ counter row"), 1, "one key%s: at least 1.00 × the counter row",
		where)
	return nil
}
