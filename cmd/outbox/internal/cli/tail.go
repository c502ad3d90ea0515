package cli

import (
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// tailPage is how many rows a query of tail reads.
const tailPage = 1000

// tailRows reads rows in the order of their ids, from one id to another.
var tailRows = map[core.Dialect]string{
	core.Postgres: `SELECT id, event_id, topic, event_type, COALESCE(tenant_id, ''), COALESCE(partition_key, ''),
 status,
 COALESCE(claimed_by, ''), {created} FROM {event} WHERE id > $1::uuid AND id < $2::uuid ORDER BY id LIMIT {limit}`,
	core.MySQL: `SELECT id, event_id, topic, event_type, COALESCE(tenant_id, ''), COALESCE(partition_key, ''), status,
 COALESCE(claimed_by, ''), {created} FROM {event} FORCE INDEX (PRIMARY) WHERE id > ? AND id < ? ORDER BY id
 LIMIT {limit}`,
	core.SQLite: `SELECT id, event_id, topic, event_type, COALESCE(tenant_id, ''), COALESCE(partition_key, ''), status,
 COALESCE(claimed_by, ''), {created} FROM {event} WHERE id > ? AND id < ? ORDER BY id LIMIT {limit}`,
}

// tailEvent is an event as tail prints it.
type tailEvent struct {
	ID        core.RowID `json:"id"`
	EventID   string     `json:"event_id"`
	Topic     string     `json:"topic"`
	Type      string     `json:"type"`
	Tenant    string     `json:"tenant_id,omitempty"`
	Key       string     `json:"key,omitempty"`
	Status    ops.Status `json:"status"`
	CreatedAt time.Time  `json:"created_at"`
	logState

	claimedBy string
}

// tail is one run of `outbox tail`.
type tail struct {
	topic, eventType, tenant, key string
	since, interval, overlap      time.Duration
	limit                         int

	query   string
	seen    map[core.RowID]bool // those of the overlap
	printed int
}

func (a *app) tailCommand() *cobra.Command {
	var t tail
	c := &cobra.Command{
		Use:   "tail",
		Short: "Print new events as they appear, until Ctrl-C",
		Long: `tail prints events when they are in the table: after the commit of the transaction that published
them. It asks every --interval for the rows of the last --overlap, in the order of their ids, and
prints each row once. An id has the time at which the event was published, so an event whose
transaction was open for longer than --overlap is not printed, and a longer overlap reads more rows.

These are not printed: an event that was published and deleted between two questions, as with
DeleteOnSuccess; and an event whose id does not begin with the time, such as a UUID of version 4.
The payload is left out: outbox show --payload has it. --json prints one object a line. --timeout
applies to each question.`,
		Example: "  outbox tail --topic orders\n  outbox tail --since 10m --json | jq .event_id",
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
	f.Var((*selector)(&t.topic), "topic", "only events of this topic")
	f.Var((*selector)(&t.eventType), "type", "only events of this type")
	f.Var((*selector)(&t.tenant), "tenant", "only events of this tenant")
	f.Var((*selector)(&t.key), "key", "only events of this key")
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
	db, err := a.open(opening)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if _, err := a.outbox(db, core.BlockKey); err != nil { // checks the names
		return err
	}
	t.query = strings.NewReplacer("{event}", db.quote(a.schema, a.prefixOf()+"event"),
		"{created}", db.micros("created_at"), "{limit}", "1000").Replace(tailRows[db.dialect])
	t.seen = map[core.RowID]bool{}
	ask := func(back time.Duration, show bool) (done bool, err error) {
		ctx, cancel := a.limited(c)
		defer cancel()
		return a.tailOnce(ctx, db, &t, back, show)
	}
	if _, err := ask(t.overlap, false); err != nil {
		return db.withTables(opening, kinds[0], a.schema, a.prefix, err)
	}
	if ob, err := a.outbox(db, core.BlockKey); err == nil {
		if api, err := ops.New(ob); err == nil {
			a.hintUnseen(opening, api, ops.Filter{Topic: t.topic, Type: t.eventType, TenantID: t.tenant})
		}
	}
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

// tailOnce reads the rows of the last time, and prints those that were not seen before.
func (a *app) tailOnce(ctx context.Context, db *database, t *tail, back time.Duration, show bool) (bool, error) {
	now, err := db.now(ctx)
	if err != nil {
		return false, err
	}
	from, to := idAt(now.Add(-back)), idAt(now.Add(time.Hour))
	inside := map[core.RowID]bool{}
	for {
		page, err := t.read(ctx, db, from, to)
		if err == nil {
			err = a.addLogStates(ctx, db, page)
		}
		if err != nil {
			return false, err
		}
		for _, e := range page {
			from = e.ID
			inside[e.ID] = true
			if t.seen[e.ID] {
				continue
			}
			t.seen[e.ID] = true // also if a later page cannot be read
			if !show || !t.match(e) {
				continue
			}
			if err := a.printTail(e); err != nil {
				return false, err
			}
			if t.printed++; t.printed == t.limit {
				return true, nil
			}
		}
		if len(page) < tailPage {
			t.seen = inside
			return false, nil
		}
	}
}

func (t *tail) read(ctx context.Context, db *database, from, to core.RowID) (page []tailEvent, err error) {
	args := []any{from[:], to[:]}
	if db.dialect == core.Postgres {
		args = []any{from.String(), to.String()}
	}
	err = db.each(ctx, t.query, args, func(rows *sql.Rows) error {
		var e tailEvent
		var id any
		var created int64
		if err := rows.Scan(&id, &e.EventID, &e.Topic, &e.Type, &e.Tenant, &e.Key, &e.Status, &e.claimedBy,
			&created); err != nil {
			return err
		}
		if e.ID, err = rowID(id); err != nil {
			return err
		}
		e.CreatedAt = time.UnixMicro(created).UTC()
		page = append(page, e)
		return nil
	})
	return page, err
}

// addLogStates adds what is known about events that a reader of the log publishes.
func (a *app) addLogStates(ctx context.Context, db *database, page []tailEvent) error {
	states, err := db.logStates(ctx, a.schema, a.prefixOf(), converted(page, func(e tailEvent) ops.Event {
		return ops.Event{ID: e.ID, Status: e.Status, ClaimedBy: e.claimedBy}
	}))
	for i := range states {
		page[i].logState = states[i]
	}
	return err
}

func (t *tail) match(e tailEvent) bool {
	is := func(want, is string) bool { return want == "" || want == is }
	return is(t.topic, e.Topic) && is(t.eventType, e.Type) && is(t.tenant, e.Tenant) && is(t.key, e.Key)
}

func (a *app) printTail(e tailEvent) error {
	if a.json {
		return json.NewEncoder(a.Out).Encode(e)
	}
	a.sayf("%s  %s  %-10s  %s  %s  %s\n", moment(e.CreatedAt), e.ID, e.status(e.Status), e.Topic, e.Type,
		orDash(short(e.Key)))
	return nil
}

// idAt is the smallest id of that time.
func idAt(t time.Time) (id core.RowID) {
	binary.BigEndian.PutUint64(id[:], uint64(max(t.UnixMilli(), 0))<<16)
	return id
}

// rowID reads an id as a driver returns it: a text from PostgreSQL, and bytes from others.
func rowID(v any) (id core.RowID, err error) {
	switch v := v.(type) {
	case string:
		return core.ParseRowID(v)
	case []byte:
		if len(v) == len(id) {
			copy(id[:], v)
			return id, nil
		}
		return core.ParseRowID(string(v))
	case [16]byte:
		return v, nil
	}
	return id, exit(ExitFailed, "an id is of type %T", v)
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

// bind writes the parameters of a statement, which are question marks, as the database has them.
func (db *database) bind(query string) string {
	if db.dialect != core.Postgres {
		return query
	}
	var b strings.Builder
	n := byte('0')
	for _, r := range query {
		if r == '?' {
			n++
			b.WriteByte('$')
			b.WriteByte(n)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
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

// orNil returns the time, or nil.
func (m nullMicros) orNil() *time.Time {
	if m.IsZero() {
		return nil
	}
	return &m.Time
}
