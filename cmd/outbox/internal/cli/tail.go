package cli

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// tail is one run of `outbox tail`.
type tail struct {
	topic, eventType, tenant, key string
	since, interval, overlap      time.Duration
	limit                         int

	*session
	seen    map[core.RowID]bool // rows of the overlap
	printed int
}

func (a *app) tailCommand() *cobra.Command {
	var t tail
	c := &cobra.Command{
		Use:   "tail",
		Short: "Print new events as they appear, until Ctrl-C",
		Long: `tail prints events after their commit, without payloads. It misses an event whose transaction was open
for longer than --overlap, whose id does not begin with the time (UUIDv4), or that DeleteOnSuccess has
deleted already. --timeout applies to each read.`,
		Example: "  outbox tail --since 10m --json | jq .event_id",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case t.interval < 10*time.Millisecond:
				return usage("--interval %s: it is 10ms or more", t.interval)
			case t.overlap < time.Second || t.overlap > time.Hour:
				return usage("--overlap %s: it is 1s to 1h", t.overlap)
			case t.since < 0 || t.limit < 0:
				return usage("--since and --limit are not negative")
			}
			return a.tail(c, t)
		},
	}
	f := c.Flags()
	f.StringVar(&t.topic, "topic", "", "only of this topic")
	f.StringVar(&t.eventType, "type", "", "only of this type")
	f.StringVar(&t.tenant, "tenant", "", "only of this tenant")
	f.StringVar(&t.key, "key", "", "only of this key")
	f.Var((*span)(&t.since), "since", "begin with the events of this last time")
	f.DurationVar(&t.interval, "interval", time.Second, "pause between two questions")
	f.DurationVar(&t.overlap, "overlap", 10*time.Second, "how long a transaction may take to commit")
	f.IntVar(&t.limit, "limit", 0, "end after this many events; 0: never")
	return c
}

// tail follows until Ctrl-C. Once it has begun, it outlives a database that is away.
func (a *app) tail(c *cobra.Command, t tail) error {
	opening, cancel := a.limited(c)
	defer cancel()
	db, err := a.open(opening, false, false)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if t.session, err = a.outbox(db, core.BlockKey); err != nil {
		return err
	}
	t.seen = map[core.RowID]bool{}
	ask := func(back time.Duration, show bool) (done bool, err error) {
		ctx, cancel := a.limited(c)
		defer cancel()
		return a.tailOnce(ctx, &t, back, show)
	}
	if _, err := ask(t.overlap, false); err != nil {
		return db.withTables(opening, kinds[0], a.schema, a.prefix, err)
	}
	a.hintUnseen(opening, t.api, ops.Filter{Topic: t.topic, Type: t.eventType, TenantID: t.tenant})
	if t.since > 0 {
		clear(t.seen)
		if done, err := ask(max(t.since, t.overlap), true); err != nil || done {
			return err
		}
	}
	tick := time.NewTicker(t.interval)
	defer tick.Stop()
	for failing := false; ; {
		select {
		case <-c.Context().Done():
			return nil
		case <-tick.C:
		}
		done, err := ask(t.overlap, true)
		if done || c.Context().Err() != nil {
			return nil
		}
		if err != nil && !failing {
			a.note("the database does not answer, and is asked again: %s", firstLine(err.Error()))
		}
		failing = err != nil
	}
}

// tailOnce reads the rows of the last time, and prints new ones.
func (a *app) tailOnce(ctx context.Context, t *tail, back time.Duration, show bool) (bool, error) {
	now, err := t.db.now(ctx)
	if err != nil {
		return false, err
	}
	found, err := t.read(ctx, idAt(now.Add(-back)), idAt(now.Add(time.Hour)))
	if err != nil {
		return false, err
	}
	events, err := a.listed(ctx, t.db, found)
	if err != nil {
		return false, err
	}
	before := t.seen
	t.seen = map[core.RowID]bool{}
	for _, e := range events {
		t.seen[e.ID] = true
		if before[e.ID] || !show || !t.match(e) {
			continue
		}
		if err := a.printTail(e); err != nil {
			return false, err
		}
		if t.printed++; t.printed == t.limit {
			return true, nil
		}
	}
	return false, nil
}

// read reads the rows from one id to another, in the order of their ids.
func (t *tail) read(ctx context.Context, from, to core.RowID) (all []ops.Event, err error) {
	for q := (ops.ListQuery{Newest: true, Limit: ops.MaxLimit}); ; {
		page, err := t.api.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, e := range page.Events {
			if bytes.Compare(e.ID[:], from[:]) <= 0 {
				page.Next = ""
				break
			}
			if bytes.Compare(e.ID[:], to[:]) < 0 {
				all = append(all, e)
			}
		}
		if q.After = page.Next; q.After == "" {
			slices.Reverse(all)
			return all, nil
		}
	}
}

func (t *tail) match(e listedEvent) bool {
	is := func(want, is string) bool { return want == "" || want == is }
	return is(t.topic, e.Topic) && is(t.eventType, e.Type) && is(t.tenant, e.TenantID) && is(t.key, e.Key)
}

func (a *app) printTail(e listedEvent) error {
	if a.json {
		return json.NewEncoder(a.Out).Encode(e)
	}
	a.sayf("%s  %s  %-10s  %s  %s  %s\n", moment(e.CreatedAt), e.ID, e.status(), e.Topic, e.Type, orDash(short(e.Key)))
	return nil
}

// idAt is the smallest id of that time.
func idAt(t time.Time) (id core.RowID) {
	binary.BigEndian.PutUint64(id[:], uint64(max(t.UnixMilli(), 0))<<16)
	return id
}

// now is the time of the database.
func (db *database) now(ctx context.Context) (time.Time, error) {
	query := map[core.Dialect]string{
		core.Postgres: "SELECT " + db.micros("clock_timestamp()"),
		core.MySQL:    "SELECT " + db.micros("UTC_TIMESTAMP(6)"),
		core.SQLite:   "SELECT " + sqliteNow,
	}[db.dialect]
	var us int64
	err := db.QueryRowContext(ctx, query).Scan(&us)
	return time.UnixMicro(us), err
}

// micros is the time of a column in microseconds since 1970.
func (db *database) micros(column string) string {
	switch db.dialect {
	case core.Postgres:
		return "(extract(epoch FROM " + column + ") * 1000000)::bigint"
	case core.MySQL:
		return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', " + column + ")"
	default:
		return column
	}
}

// where returns the flags of the person's schema and prefix, for a command that is printed.
func (a *app) where() string { return flagsOf(a.schema, a.prefix) }

// flagsOf returns the flags of a schema and a prefix.
func flagsOf(schema, prefix string) (flags string) {
	if schema != "" {
		flags += " --schema " + shellWord(schema)
	}
	if prefix != "" {
		flags += " --prefix " + shellWord(prefix)
	}
	return flags
}

var _ sql.Scanner = (*nullMicros)(nil)

// nullMicros is a time in microseconds, or none.
type nullMicros struct{ time.Time }

func (m *nullMicros) Scan(v any) error {
	var n sql.NullInt64
	if err := n.Scan(v); err != nil || !n.Valid {
		return err
	}
	m.Time = time.UnixMicro(n.Int64).UTC()
	return nil
}
