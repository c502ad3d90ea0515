package main

import (
	"context"
	"database/sql"
	"time"

	gormmysql "gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	gormsqlite "gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

type gormRow struct {
	ID        int64
	Code      int64
	Customer  string
	Amount    int64
	CreatedAt time.Time
}

func (gormRow) TableName() string { return "bench_row" }

func gormRows(codes []int64) []gormRow {
	rows := make([]gormRow, len(codes))
	for i, code := range codes {
		rows[i] = gormRow{Code: code, Customer: "ada", Amount: 4200}
	}
	return rows
}

func openRowsGORM(d *rowsDatabase, pool *sql.DB, cfg *rowsConfig, _ bool) (c rowsClient, err error) {
	dialector := postgres.New(postgres.Config{Conn: pool})
	switch d.dialect {
	case core.MySQL:
		dialector = gormmysql.New(gormmysql.Config{Conn: pool})
	case core.SQLite:
		dialector = gormsqlite.New(gormsqlite.Config{Conn: pool})
	case core.Postgres:
	}
	db, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
	if err == nil && cfg != nil {
		var ob *gormoutbox.Outbox
		ob, err = gormoutbox.New(db, gormoutbox.Config{Prefix: rowsPrefix, AutoCreate: true})
		if err == nil && cfg.on != nil {
			gormoutbox.On(ob, func(_ core.Op, row *gormRow) []core.Event { return cfg.on(row) })
		}
	}
	create := func(db *gorm.DB, codes []int64) error {
		rows := gormRows(codes)
		if len(rows) == 1 {
			return db.Create(&rows[0]).Error
		}
		return db.Create(&rows).Error
	}
	byCode := clause.OnConflict{
		Columns: []clause.Column{{Name: "code"}}, DoUpdates: clause.AssignmentColumns([]string{"amount"}),
	}
	return rowsClient{
		create: func(ctx context.Context, codes []int64) error { return create(db.WithContext(ctx), codes) },
		upsert: func(ctx context.Context, codes []int64) error {
			return create(db.WithContext(ctx).Clauses(byCode), codes)
		},
		updateKey: func(ctx context.Context, id, amount int64) error {
			return db.WithContext(ctx).Model(&gormRow{ID: id}).Update("amount", amount).Error
		},
		update: func(ctx context.Context, from, to, amount int64) error {
			return db.WithContext(ctx).Model(&gormRow{}).Where("code BETWEEN ? AND ?", from, to).
				Update("amount", amount).Error
		},
		remove: func(ctx context.Context, id int64) error { return db.WithContext(ctx).Delete(&gormRow{ID: id}).Error },
	}, err
}
