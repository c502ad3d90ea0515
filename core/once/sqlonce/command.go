package sqlonce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// Commands is the table of effects in the world outside: what package command works with. Get it
// with Store.Commands. It implements once.EffectStore and is safe for use by several goroutines.
type Commands struct {
	s   *Store
	sql map[string]string
}

var _ once.EffectStore = (*Commands)(nil)

// Commands returns the table of effects of the Store.
func (s *Store) Commands() *Commands { return &Commands{s: s, sql: commandStatements(s.names)} }

// EnqueueTx implements once.EffectStore. A new effect costs one statement.
func (c *Commands) EnqueueTx(ctx context.Context, tx core.Tx,
	e once.Effect,
) (rec once.EffectRecord, added bool, err error) {
	const what = "command in transaction"
	problem := e.Validate()
	if p := textProblem(e.ID, 36, true); p != "" {
		problem = errors.Join(problem, fmt.Errorf("%w: id %s", once.ErrInvalidRequest, p))
	}
	if problem != nil {
		return rec, false, problem
	}
	if err := c.s.join(tx); err != nil {
		return rec, false, wrap(what, err)
	}
	rec, added, err = c.enqueue(ctx, tx, e)
	return rec, added, wrap(what, txError(err))
}

func (c *Commands) enqueue(ctx context.Context, tx core.Tx, e once.Effect) (once.EffectRecord, bool, error) {
	insert := "insert"
	if mariadb, err := c.s.guarded(ctx, tx); err != nil {
		return once.EffectRecord{}, false, err
	} else if mariadb {
		insert = "insert_mariadb"
	}
	args, err := effectArgs(e)
	if err != nil {
		return once.EffectRecord{}, false, err
	}
	for range vanished {
		switch n, err := tx.Exec(ctx, c.sql[insert], args...); {
		case err != nil:
			return once.EffectRecord{}, false, err
		case n == 1:
			return once.EffectRecord{Effect: e}, true, nil
		case n == 0 && c.s.dialect == core.MySQL:
			return once.EffectRecord{}, false, fmt.Errorf("%w: the database has ended it", core.ErrTxAborted)
		}
		r, found, err := c.read(ctx, tx, "see", e.Tenant, e.Channel, e.Key)
		if err != nil {
			return once.EffectRecord{}, false, err
		}
		if found {
			if fp := e.Fingerprint(); string(r.fingerprint) != string(fp[:]) {
				return once.EffectRecord{}, false,
					fmt.Errorf("%w: effect %q of channel %q", once.ErrFingerprintMismatch, e.Key, e.Channel)
			}
			return r.EffectRecord, false, nil
		}
	}
	return once.EffectRecord{}, false, fmt.Errorf("%w: %w", core.ErrTxAborted, errVanished)
}

func effectArgs(e once.Effect) ([]any, error) {
	var headers any
	if len(e.Headers) > 0 {
		b, err := json.Marshal(e.Headers)
		if err != nil {
			return nil, err
		}
		headers = string(b)
	}
	fp, payload := e.Fingerprint(), e.Payload
	if payload == nil {
		payload = []byte{}
	}
	return []any{
		e.ID, e.Tenant, e.Channel, e.Key, fp[:], payload, orNil(e.ContentType), headers, orNil(e.EventID),
		orNil(e.CorrelationID), orNil(e.BusinessKey), micros(e.Delay),
	}, nil
}

// commandRecord is a row of the table.
type commandRecord struct {
	once.EffectRecord
	fingerprint []byte
	fence       int64
	owner       string
	left        time.Duration // of the lease
}

func (r *commandRecord) scan(rows core.Rows) error {
	var headers []byte
	var left, created, updated, done int64
	err := rows.Scan(&r.ID, &r.Tenant, &r.Channel, &r.Key, &r.fingerprint, &r.Payload, &r.ContentType, &headers,
		&r.EventID, &r.CorrelationID,
		&r.BusinessKey, &r.ExternalRef, &r.Status, &r.Attempts, &r.LostLeases, &r.fence, &r.owner, &left, &r.ErrorCode,
		&r.Error, &created, &updated, &done)
	if err != nil {
		return err
	}
	if len(headers) > 0 {
		if err := json.Unmarshal(headers, &r.Headers); err != nil {
			return fmt.Errorf("headers of effect %s: %w", r.ID, err)
		}
	}
	r.left = time.Duration(left) * time.Microsecond
	r.CreatedAt, r.UpdatedAt = time.UnixMicro(created).UTC(), time.UnixMicro(updated).UTC()
	if done != 0 {
		r.DoneAt = time.UnixMicro(done).UTC()
	}
	return nil
}

func (c *Commands) read(ctx context.Context, q sqlkit.Querier, name string,
	args ...any,
) (r commandRecord, found bool, err error) {
	err = sqlkit.EachRow(ctx, q, c.sql[name], args, func(rows core.Rows) error {
		found = true
		return r.scan(rows)
	})
	return r, found, err
}

// get is read in a transaction of its own. ErrNoEffect: there is no such row.
func (c *Commands) get(ctx context.Context, what, name string, args ...any) (r commandRecord, err error) {
	err = c.s.single(ctx, what, func(q sqlkit.Querier) error {
		var found bool
		r, found, err = c.read(ctx, q, name, args...)
		if err == nil && !found {
			err = once.ErrNoEffect
		}
		return err
	})
	return r, err
}

// Find implements once.EffectStore.
func (c *Commands) Find(ctx context.Context, tenant, channel, key string) (once.EffectRecord, error) {
	r, err := c.get(ctx, "find command", "look", tenant, channel, key)
	return r.EffectRecord, err
}

// List implements once.EffectStore.
func (c *Commands) List(ctx context.Context, q once.EffectQuery) (list []once.EffectRecord, err error) {
	if q.Status > once.EffectParked {
		return nil, fmt.Errorf("%w: unknown %s", once.ErrInvalidRequest, q.Status)
	}
	limit := q.Limit
	if limit <= 0 {
		limit = 100
	}
	// The status is part of the text, where partial indexes look for it.
	text, args := c.sql["list"]+strconv.Itoa(int(q.Status)), []any{}
	for _, part := range []struct{ text, arg string }{
		{" AND channel = ?", q.Channel},
		{" AND tenant_id = ?", q.Tenant},
		{" AND id > ?", q.After},
	} {
		if part.arg != "" {
			text, args = text+part.text, append(args, part.arg)
		}
	}
	text, args = c.s.names.statement(text+" ORDER BY id LIMIT ?"), append(args, min(limit, 1000))
	err = c.s.single(ctx, "list commands", func(qr sqlkit.Querier) error {
		list = nil
		return sqlkit.EachRow(ctx, qr, text, args, func(rows core.Rows) error {
			var r commandRecord
			err := r.scan(rows)
			list = append(list, r.EffectRecord)
			return err
		})
	})
	return list, err
}

// ReleaseTx implements once.EffectStore.
func (c *Commands) ReleaseTx(ctx context.Context, tx core.Tx, id,
	note string,
) (rec once.EffectRecord, released bool, err error) {
	const what = "release command in transaction"
	if err := c.s.join(tx); err != nil {
		return rec, false, wrap(what, err)
	}
	n, err := tx.Exec(ctx, c.sql["release"], column(note, 2048), id, micros(2*once.MaxLease))
	if err != nil {
		return rec, false, wrap(what, txError(err))
	}
	r, found, err := c.read(ctx, tx, "get_tx", id)
	if err == nil && !found {
		err = once.ErrNoEffect
	}
	return r.EffectRecord, n == 1 && found, wrap(what, txError(err))
}

// Cleanup implements once.EffectStore.
func (c *Commands) Cleanup(ctx context.Context, keep time.Duration, limit int) (deleted int, err error) {
	const what = "clean up commands"
	if limit <= 0 {
		return 0, nil
	}
	if c.s.dialect != core.MySQL {
		err = c.s.single(ctx, what, func(q sqlkit.Querier) error {
			n, err := q.Exec(ctx, c.sql["cleanup"], micros(keep), int64(limit))
			deleted = int(n)
			return err
		})
		return deleted, err
	}
	err = c.s.inTx(ctx, what, func(q sqlkit.Querier) error { // as Store.cleanupMySQL works
		deleted = 0
		var ids []any
		err := sqlkit.EachRow(ctx, q, c.sql["old"], []any{micros(keep), int64(limit)}, func(rows core.Rows) error {
			var id string
			err := rows.Scan(&id)
			ids = append(ids, id)
			return err
		})
		if err != nil {
			return err
		}
		for start := 0; start < len(ids); start += deleteChunk {
			chunk := ids[start:min(start+deleteChunk, len(ids))]
			text := "DELETE FROM {command} WHERE id IN (?" + strings.Repeat(", ?", len(chunk)-1) + ")"
			n, err := q.Exec(ctx, c.s.names.statement(text), chunk...)
			if err != nil {
				return err
			}
			deleted += int(n)
		}
		return nil
	})
	return deleted, err
}
