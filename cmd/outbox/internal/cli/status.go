package cli

import (
	"context"
	"database/sql"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// maxCounted is how many events a count of status reads at most.
const maxCounted = 100_000

// topicState counts the events of a topic.
type topicState struct {
	Topic      string  `json:"topic"`
	Pending    int64   `json:"pending"`  // not yet published
	Due        int64   `json:"due"`      // pending, due, and leased by nobody
	Leased     int64   `json:"leased"`   // pending, and a process holds it
	Retrying   int64   `json:"retrying"` // pending, and refused before
	Dead       int64   `json:"dead"`
	OldestSecs float64 `json:"oldest_seconds"` // age of the oldest pending event
	Relayed    *bool   `json:"relayed"`        // a relay that is alive takes the topic; null: not known
}

// relayRow is a relay as status prints it.
type relayRow struct {
	Node     string    `json:"node"`
	Program  string    `json:"program"` // its main module and the version or the revision of that
	Version  string    `json:"version"` // of ormoutbox
	Alive    bool      `json:"alive"`
	SeenSecs float64   `json:"seen_seconds_ago"`
	Started  time.Time `json:"started_at"`
	// AllTopics: it takes every topic but those of effects, and Topics in addition.
	AllTopics bool     `json:"all_topics"`
	Topics    []string `json:"topics"`
	// What its memory knew at its last heartbeat.
	Stopped   []stoppedRow `json:"stopped"`
	Stuck     int          `json:"stuck"`      // publishes that have not returned
	HotFull   bool         `json:"hot_full"`   // the fast path has no room
	PollError string       `json:"poll_error"` // why its polls fail; empty: they do not
}

// outboxState is what status prints.
type outboxState struct {
	Database    string       `json:"database"`
	Pending     int64        `json:"pending"`
	Dead        int64        `json:"dead"`
	BlockedKeys int64        `json:"blocked_keys"`
	OldestSecs  float64      `json:"oldest_seconds"`
	Capped      bool         `json:"capped"` // there may be more than was counted
	Topics      []topicState `json:"topics"`
	Relays      []relayRow   `json:"relays"` // null: not known
	Pauses      []pauseRow   `json:"pauses"` // null: not known
	Rates       []rateRow    `json:"rates"`  // null: not known
	// ByLog: events that a program such as Debezium reads from the log of the database. They are
	// counted nowhere else. Null: there are none among the newest.
	ByLog *logEvents `json:"by_log,omitempty"`
	// Slots are the replication slots by which a reader of the log gets the events.
	Slots []slotRow `json:"slots,omitempty"`

	noSlot bool // events are for a reader of the log, and this PostgreSQL has no slot for one
}

// countTopics reads at most maxCounted events in the order of an index, in each of three parts:
// open ones without a key, open and dead ones with a key, and dead ones without a key.
var countTopics = map[core.Dialect]string{
	core.Postgres: `SELECT part, topic, count(*), count(*) FILTER (WHERE status <> 3),
 count(*) FILTER (WHERE status <> 3 AND available_at <= now() AND NOT COALESCE(lease_until > now(), false)),
 count(*) FILTER (WHERE status <> 3 AND lease_until > now()), count(*) FILTER (WHERE status = 2),
 count(*) FILTER (WHERE status = 3),
 COALESCE(extract(epoch FROM now() - min(created_at) FILTER (WHERE status <> 3)), 0)::float8
FROM (
 (SELECT 1 AS part, topic, status, available_at, lease_until, created_at FROM {event}
  WHERE status IN (0,2) AND lane IS NULL ORDER BY topic, available_at LIMIT {limit})
 UNION ALL
 (SELECT 2, topic, status, available_at, lease_until, created_at FROM {event}
  WHERE status IN (0,2,3) AND lane IS NOT NULL ORDER BY lane, key_seq LIMIT {limit})
 UNION ALL
 (SELECT 3, topic, status, available_at, lease_until, created_at FROM {event}
  WHERE status = 3 AND lane IS NULL ORDER BY id LIMIT {limit})
) e GROUP BY part, topic`,
	core.MySQL: `SELECT part, topic, COUNT(*), SUM(status <> 3),
 SUM(status <> 3 AND available_at <= UTC_TIMESTAMP(6) AND NOT COALESCE(lease_until > UTC_TIMESTAMP(6), 0)),
 SUM(status <> 3 AND COALESCE(lease_until > UTC_TIMESTAMP(6), 0)), SUM(status = 2), SUM(status = 3),
 COALESCE(TIMESTAMPDIFF(MICROSECOND, MIN(CASE WHEN status <> 3 THEN created_at END), UTC_TIMESTAMP(6)), 0) / 1e6
FROM (
 (SELECT 1 AS part, topic, status, available_at, lease_until, created_at FROM {event}
  WHERE open_lane IS NULL AND key_seq IS NULL AND ready_topic IS NOT NULL
  ORDER BY ready_topic, available_at LIMIT {limit})
 UNION ALL
 (SELECT 2, topic, status, available_at, lease_until, created_at FROM {event}
  WHERE open_lane IS NOT NULL ORDER BY open_lane, key_seq LIMIT {limit})
 UNION ALL
 (SELECT 3, topic, status, available_at, lease_until, created_at FROM {event}
  WHERE dead = 1 AND lane IS NULL ORDER BY id LIMIT {limit})
) e GROUP BY part, topic`,
	core.SQLite: `SELECT part, topic, COUNT(*), SUM(status <> 3),
 SUM(status <> 3 AND available_at <= {now} AND NOT COALESCE(lease_until > {now}, 0)),
 SUM(status <> 3 AND COALESCE(lease_until > {now}, 0)), SUM(status = 2), SUM(status = 3),
 COALESCE({now} - MIN(CASE WHEN status <> 3 THEN created_at END), 0) / 1e6
FROM (
 SELECT * FROM (SELECT 1 AS part, topic, status, available_at, lease_until, created_at FROM {event}
  WHERE status IN (0,2) AND lane IS NULL ORDER BY topic, available_at LIMIT {limit})
 UNION ALL
 SELECT * FROM (SELECT 2, topic, status, available_at, lease_until, created_at FROM {event}
  WHERE status IN (0,2,3) AND lane IS NOT NULL ORDER BY lane, key_seq LIMIT {limit})
 UNION ALL
 SELECT * FROM (SELECT 3, topic, status, available_at, lease_until, created_at FROM {event}
  WHERE status = 3 AND lane IS NULL ORDER BY id LIMIT {limit})
) GROUP BY part, topic`,
}

// sqliteNow is the time in microseconds, as the tables have it.
const sqliteNow = "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"

// topicStates counts the events of each topic. capped says that a part had more events than were
// read.
func (db *database) topicStates(ctx context.Context, schema, prefix string) (all []topicState, capped bool, err error) {
	text := strings.NewReplacer("{event}", db.quote(schema, prefix+"event"), "{limit}", strconv.Itoa(maxCounted),
		"{now}", sqliteNow).Replace(countTopics[db.dialect])
	byTopic, parts := map[string]*topicState{}, map[int]int64{}
	err = db.each(ctx, text, nil, func(rows *sql.Rows) error {
		var part int
		var n int64
		var s topicState
		if err := rows.Scan(&part, &s.Topic, &n, &s.Pending, &s.Due, &s.Leased, &s.Retrying, &s.Dead,
			&s.OldestSecs); err != nil {
			return err
		}
		parts[part] += n
		capped = capped || parts[part] >= maxCounted
		t := byTopic[s.Topic]
		if t == nil {
			t = &topicState{Topic: s.Topic}
			byTopic[s.Topic] = t
		}
		t.Pending, t.Due, t.Leased = t.Pending+s.Pending, t.Due+s.Due, t.Leased+s.Leased
		t.Retrying, t.Dead, t.OldestSecs = t.Retrying+s.Retrying, t.Dead+s.Dead, max(t.OldestSecs, s.OldestSecs, 0)
		return nil
	})
	all = []topicState{}
	for _, t := range byTopic {
		all = append(all, *t)
	}
	slices.SortFunc(all, func(a, b topicState) int { return strings.Compare(a.Topic, b.Topic) })
	return all, capped, err
}

// outbox opens the outbox of a database. It does not relay.
func (a *app) outbox(db *database, policy core.DeadPolicy) (*core.Outbox, error) {
	repo, err := sqloutbox.New(db.DB, sqloutbox.Config{Dialect: db.dialect, Schema: a.schema, Prefix: a.prefix})
	if err != nil {
		return nil, usage("%w", err)
	}
	return core.New(core.Config{Repository: repo, DeadPolicy: policy})
}

// prefixOf is the prefix of the tables of the outbox.
func (a *app) prefixOf() string {
	if a.prefix == "" {
		return sqloutbox.DefaultPrefix
	}
	return a.prefix
}

// state looks at the outbox.
func (a *app) state(ctx context.Context, db *database, ob *core.Outbox) (s outboxState, err error) {
	b, err := ob.Backlog(ctx)
	if err != nil {
		return s, err
	}
	s = outboxState{
		Database: db.name, Pending: b.Pending, Dead: b.Dead, BlockedKeys: b.BlockedKeys,
		OldestSecs: b.OldestAge.Seconds(), Capped: b.Pending >= b.Limit || b.Dead >= b.Limit,
	}
	var capped bool
	if s.Topics, capped, err = db.topicStates(ctx, a.schema, a.prefixOf()); err != nil {
		return s, err
	}
	s.Capped = s.Capped || capped
	if s.ByLog, err = db.byLog(ctx, a.schema, a.prefixOf()); err != nil {
		return s, err
	}
	slots, err := db.readers(ctx, a.schema, a.prefixOf(), s.ByLog)
	if err != nil {
		return s, err
	}
	if len(slots) > 0 {
		s.Slots = converted(slots, slotRowOf)
	}
	s.noSlot = s.ByLog != nil && db.pgx != nil && len(slots) == 0
	if pauses, err := ob.Pauses(ctx); err == nil { // else a right on the table is missing
		s.Pauses = converted(pauses, pauseRowOf)
	}
	if rates, err := ob.Rates(ctx); err == nil {
		s.Rates = converted(rates, rateRowOf)
	}
	relays, err := ob.Relays(ctx)
	if err != nil { // a right on the table is missing
		return s, nil //nolint:nilerr // then it is not known, and everything else is
	}
	s.Relays = []relayRow{}
	for _, r := range relays {
		s.Relays = append(s.Relays, relayRowOf(r))
	}
	for i := range s.Topics {
		relayed := slices.ContainsFunc(relays, func(r core.RelayStatus) bool {
			return r.Alive() && r.Relays(s.Topics[i].Topic)
		})
		s.Topics[i].Relayed = &relayed
	}
	return s, nil
}

func relayRowOf(r core.RelayStatus) relayRow {
	row := relayRow{
		Node: r.Node, Program: r.Program, Version: r.Version, Alive: r.Alive(), SeenSecs: r.Age.Seconds(),
		Started: r.StartedAt.UTC(), AllTopics: r.AllTopics, Topics: r.Topics,
		Stopped: converted(r.Stopped, stoppedRowOf), Stuck: r.Stuck, HotFull: r.HotFull,
	}
	if r.PollErr != nil {
		row.PollError = r.PollErr.Error()
	}
	return row
}

// problems says what a relay that is alive says of itself.
func (r *relayRow) problems() (texts []string) {
	if !r.Alive {
		return nil
	}
	for _, d := range r.Stopped {
		texts = append(texts, d.text(r.Node))
	}
	if r.Stuck > 0 {
		texts = append(texts, stuckText(r.Node, r.Stuck))
	}
	if r.PollError != "" {
		texts = append(texts, fmt.Sprintf("relay %s cannot poll: %s", short(r.Node), within(400, r.PollError)))
	}
	return texts
}

func (a *app) statusCommand() *cobra.Command {
	var maxDead int64
	var maxAge time.Duration
	c := &cobra.Command{
		Use:   "status",
		Short: "Count what waits, what is leased, what is retried and what is dead, by topic",
		Long: `status counts the open and the dead events of each topic, lists the relays, and says which
destination a relay has stopped and what is paused or limited. Events that walrelay or Debezium reads from the log
of the database are not counted: their rows do not say which of them are published. On PostgreSQL it
says how far their reader is, and how many of the newest walrelay has not confirmed yet. What a relay
says of itself is as of its last heartbeat, at most 12 s ago. At most 100,000 of each kind are counted;
a plus behind a number says that there may be more.

  pending   not yet published
  due       pending, its time has come, and no process holds it; it may wait for its key
  leased    pending, and a process holds it
  retrying  pending, and refused before
  dead      given up
  oldest    age of the oldest pending event
  relayed   a relay that is alive takes events of the topic

With --max-dead or --max-age it ends with exit code 3 when there are more dead events, or older ones.`,
		Example: "  outbox status\n  outbox status --json --max-dead 0 --max-age 5m",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var s outboxState
			if err := a.withOutbox(c, func(ctx context.Context, db *database, ob *core.Outbox) (err error) {
				s, err = a.state(ctx, db, ob)
				return err
			}); err != nil {
				return err
			}
			if err := a.print(s, func() { a.printState(s) }); err != nil {
				return err
			}
			oldest := seconds(s.OldestSecs)
			switch {
			case maxDead >= 0 && s.Dead > maxDead:
				return exit(ExitUnhealthy, "%d events are dead, more than %d", s.Dead, maxDead)
			case maxAge > 0 && oldest > maxAge:
				return exit(ExitUnhealthy, "the oldest event has waited for %s, longer than %s", age(oldest), maxAge)
			}
			return nil
		},
	}
	c.Flags().Int64Var(&maxDead, "max-dead", -1, "exit code 3 if more events are dead; -1: any number")
	c.Flags().Var((*span)(&maxAge), "max-age", "exit code 3 if an event has waited longer; 0: any time")
	return c
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (a *app) printState(s outboxState) {
	more := ""
	if s.Capped {
		more = "+"
	}
	num := func(n int64) string { return strconv.FormatInt(n, 10) + more }
	dead := func(n int64) string {
		if n == 0 {
			return "0"
		}
		return a.paint(red, num(n))
	}
	a.sayf("%s\n", s.Database)
	a.sayf("pending %s, oldest %s, dead %s, blocked keys %s\n\n", num(s.Pending), age(seconds(s.OldestSecs)),
		dead(s.Dead), num(s.BlockedKeys))
	t := &table{}
	t.add("TOPIC", "PENDING", "DUE", "LEASED", "RETRYING", "DEAD", "OLDEST", "RELAYED")
	for _, topic := range s.Topics {
		relayed := "-"
		if topic.Relayed != nil {
			relayed = map[bool]string{true: "yes", false: a.paint(red, "no")}[*topic.Relayed]
		}
		t.add(topic.Topic, num(topic.Pending), num(topic.Due), num(topic.Leased), num(topic.Retrying), dead(topic.Dead),
			age(seconds(topic.OldestSecs)), relayed)
	}
	switch {
	case len(s.Topics) > 0:
		t.write(a.Out)
	case s.ByLog != nil || len(s.Slots) > 0: // events that the reader of the log has not published are in the log
		a.sayf("no event waits in the table, and none is dead\n")
	default:
		a.sayf("no event waits, and none is dead\n")
	}
	for _, r := range s.Relays {
		for _, text := range r.problems() {
			a.sayf("%s\n", a.paint(red, text))
		}
		if r.Alive && r.HotFull {
			a.sayf("%s\n", a.paint(yellow, "the fast path of relay "+short(r.Node)+" is full: new events wait for its "+
				"poller"))
		}
	}
	if s.ByLog != nil && !slices.ContainsFunc(s.Slots, func(r slotRow) bool { return r.LeftOver }) {
		a.sayf("%s\n", s.ByLog)
		failed := func(r slotRow) bool { return r.found.Level == levelFailure }
		if s.ByLog.Unconfirmed.late() && !slices.ContainsFunc(s.Slots, failed) {
			a.sayf("%s\n", a.paint(yellow, whyLate))
		}
	}
	if s.noSlot {
		a.sayf("%s\n", a.paint(red, "nobody reads the log: this database has no logical replication slot; `outbox "+
			"doctor` says what to do"))
	}
	for _, r := range s.Slots {
		text := r.found.Found
		switch r.found.Level {
		case levelFailure:
			text = a.paint(red, text)
		case levelWarning:
			text = a.paint(yellow, text)
		}
		a.sayf("%s\n", text)
	}
	for _, p := range s.Pauses {
		a.sayf("%s\n", a.paint(yellow, p.text()))
	}
	for _, r := range s.Rates {
		a.sayf("%s\n", a.paint(yellow, fmt.Sprintf("destination %s gets %s, set by %s at %s: %s", r.Topic, r.limits(),
			short(r.Actor), moment(r.Since), short(r.Reason))))
	}
	switch {
	case s.Relays == nil:
	case len(s.Relays) == 0 && s.ByLog != nil && s.Pending == 0: // none is needed
	case len(s.Relays) == 0:
		a.sayf("\n%s\n", a.paint(red, "no relay has told that it is alive"))
	default:
		a.sayf("\n")
		r := &table{}
		r.add("RELAY", "PROGRAM", "VERSION", "ALIVE", "SEEN", "TOPICS")
		for _, relay := range s.Relays {
			topics := strings.Join(relay.Topics, ",")
			if relay.AllTopics {
				topics = "all"
			}
			alive := map[bool]string{true: "yes", false: a.paint(red, "no")}[relay.Alive]
			program := relay.Program
			if program != "" { // shop v1.2.3
				program = path.Base(program)
			}
			r.add(relay.Node, orDash(short(program)), orDash(relay.Version), alive,
				age(seconds(relay.SeenSecs))+" ago", topics)
		}
		r.write(a.Out)
	}
	if s.Dead > 0 {
		a.note("outbox groups says why events are dead, and outbox keys what waits for them")
	}
}
