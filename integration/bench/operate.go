package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

const (
	operateRows   = 1_000_000 // rows of the table, at most
	operateTimes  = 20        // how often a question is asked in each round
	operateKeys   = 64
	operateTopics = 4

	operateAudited = 10 // one in so many rows has an audit row
)

// operateHand is the row that the others are compared with.
const operateHand = "hand-written: dead"

// operateAim is how long an operator may wait for an answer.
const operateAim = 50 * time.Millisecond

var operateColumns = []Column{
	{"p50 µs", Micros},
	{"÷ hand-written", Ratio},
	{"p99 µs", Micros},
}

// question is a question that an operator asks.
type question struct {
	name  string
	aimed bool // answered within operateAim
	ask   func(ctx context.Context) error
}

func runOperate(ctx context.Context, e *env, s *Section) (err error) {
	rows := min(operateRows, e.opts.History)
	s.note("%s rows of an outbox: of 100 rows 91 are done, 8 wait, and 1 is dead; 10 have a key, and 10 an audit "+
		"row. Each question is asked %d times in a round, through core/ops and database/sql.",
		thousands(float64(rows)), operateTimes)
	s.note("Hand-written is one SELECT of the first 100 dead rows without their payload, by the same index. A list " +
		"that no index serves reads at most 10,000 rows, and says that there may be more.")
	all, drop, err := e.wakeDatabases(ctx)
	defer func() { err = errors.Join(err, drop()) }()
	if err != nil {
		return err
	}
	for _, db := range all {
		if err := e.operate(ctx, s, db, rows); err != nil {
			return fmt.Errorf("%s: %w", db.name, err)
		}
	}
	return nil
}

// operate asks the questions of one database.
func (e *env) operate(ctx context.Context, s *Section, db wakeDatabase, rows int) (err error) {
	const prefix = "operate_"
	e.progress.show("operate: preparing %s rows on %s", thousands(float64(rows)), db.name)
	side, err := db.join(ctx, prefix, core.WakePolicy{Disable: true}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, side.pool.Close()) }()
	if err := db.fillOperate(ctx, side.pool, prefix, rows); err != nil {
		return err
	}
	api, err := ops.New(side.ob)
	if err != nil {
		return err
	}
	questions, err := operateQuestions(ctx, side.ob, api, side.pool, db.dial, prefix, rows)
	if err != nil {
		return err
	}
	var some []question
	t := s.table(fmt.Sprintf("%s, %s rows", db.name, thousands(float64(rows))), operateColumns...)
	for _, q := range questions {
		if e.opts.selects(q.name) {
			some = append(some, q)
			t.row(q.name, e.opts.Rounds)
		}
	}
	err = interleave(e.opts.Rounds, len(some), func(round, i int) error {
		e.progress.show("operate, round %d of %d: %s, %s", round+1, e.opts.Rounds, db.name, some[i].name)
		var took []time.Duration
		for range operateTimes {
			since := time.Now()
			if err := some[i].ask(ctx); err != nil {
				return fmt.Errorf("%s: %w", some[i].name, err)
			}
			took = append(took, time.Since(since))
		}
		t.set(t.Rows[i], round, "p50 µs", percentile(took, 50))
		t.set(t.Rows[i], round, "p99 µs", percentile(took, 99))
		return nil
	})
	if err != nil {
		return err
	}
	t.divide("÷ hand-written", "p50 µs", func(*Row) *Row { return t.find(operateHand) })
	t.summarize()
	for _, q := range some {
		if q.aimed {
			p99 := t.value(q.name, "p99 µs")
			s.aim(p99, float64(p99) <= float64(operateAim.Microseconds()), Micros.text(p99)+" µs",
				"%s: %s: p99 at most %s", db.name, q.name, operateAim)
		}
	}
	return nil
}

// operateQuestions returns the questions. Each checks its answer.
func operateQuestions(ctx context.Context, ob *core.Outbox, api *ops.API, pool *sql.DB, dial core.Dialect,
	prefix string, rows int,
) ([]question, error) {
	dead := ops.Filter{Statuses: []ops.Status{ops.StatusDead}}
	of := func(change func(f *ops.Filter)) ops.Filter {
		f := dead
		change(&f)
		return f
	}
	key := ops.Filter{Topic: operateTopic(2), Key: operateKey(2)}
	waiting := key
	waiting.Statuses = []ops.Status{ops.StatusNew, ops.StatusRetry, ops.StatusDead}
	page, err := api.List(ctx, ops.ListQuery{Filter: waiting, Limit: 1})
	if err != nil || len(page.Events) == 0 {
		return nil, errors.Join(err, errors.New("the table has no event of a key"))
	}
	id := page.Events[0].ID.String()
	list := func(q ops.ListQuery, least int) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			page, err := api.List(ctx, q)
			return enough(len(page.Events), least, err)
		}
	}
	first := min(ops.DefaultLimit, rows/100)
	return []question{
		{operateHand, false, func(ctx context.Context) error {
			return deadByHand(ctx, pool, prefix, operateWriters[dial].dead, first)
		}},
		{"list: dead", true, list(ops.ListQuery{Filter: dead}, first)},
		{"list: dead, newest first", true, list(ops.ListQuery{Filter: dead, Newest: true}, first)},
		{"list: dead of an error code", true, list(ops.ListQuery{
			Filter: of(func(f *ops.Filter) { f.ErrorCode = "permanent" }),
		}, first)},
		{"list: all, newest first", true, list(ops.ListQuery{Newest: true}, first)},
		{"list: open of a topic", true, list(ops.ListQuery{
			Filter: ops.Filter{Statuses: []ops.Status{ops.StatusNew}, Topic: operateTopic(1)},
		}, 1)},
		{"list: a key, open and dead", true, list(ops.ListQuery{Filter: waiting}, 1)},
		{"list: a key, done too", true, list(ops.ListQuery{Filter: key}, 1)},
		{"list: a type that no row has", true, list(ops.ListQuery{Filter: ops.Filter{Type: "no.such"}}, 0)},
		{"count: dead", true, func(ctx context.Context) error {
			n, err := api.Count(ctx, dead)
			return enough(n.N, min(ops.MaxCount, rows/100), err)
		}},
		{"show", true, func(ctx context.Context) error {
			d, err := api.Show(ctx, id)
			return enough(len(d), 1, err)
		}},
		{"explain", true, func(ctx context.Context) error {
			x, err := api.Explain(ctx, id)
			return enough(len(x), 1, err)
		}},
		{"audit: newest", true, func(ctx context.Context) error {
			page, err := ob.ListAudit(ctx, core.AuditQuery{Limit: ops.DefaultLimit})
			return enough(len(page), ops.DefaultLimit, err)
		}},
		{"backlog, as a scrape asks", false, func(ctx context.Context) error {
			b, err := ob.Backlog(ctx)
			return enough(int(b.Pending), rows*8/100, err)
		}},
		{"groups", false, func(ctx context.Context) error {
			g, err := api.Groups(ctx, ops.Filter{})
			return enough(len(g.Groups), 1, err)
		}},
		{"plan: all dead", false, func(ctx context.Context) error {
			p, err := api.PlanRedrive(ctx, ops.Filter{}, 0)
			return enough(len(p.IDs), min(ops.MaxPlan, rows/100), err)
		}},
	}, nil
}

func enough(got, least int, err error) error {
	if err == nil && got < least {
		err = fmt.Errorf("%d rows, want %d", got, least)
	}
	return err
}

// deadByHand runs the query that people write by hand.
func deadByHand(ctx context.Context, pool *sql.DB, prefix, dead string, limit int) error {
	//nolint:gosec // the prefix and the limit are those of this program
	rows, err := pool.QueryContext(ctx, fmt.Sprintf("SELECT id, event_id, event_type, topic, partition_key, attempts, "+
		"created_at, last_error_code, last_error FROM %sevent WHERE %s ORDER BY id LIMIT %d", prefix, dead, limit))
	if err != nil {
		return err
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var id, key, created, code, text any
		var event, typ, topic string
		var attempts int
		if err := rows.Scan(&id, &event, &typ, &topic, &key, &attempts, &created, &code, &text); err != nil {
			return err
		}
	}
	return enough(n, limit, rows.Err())
}

func operateTopic(n int) string { return fmt.Sprint("orders-", n) }
func operateKey(n int) string   { return fmt.Sprint("order-", n) }
