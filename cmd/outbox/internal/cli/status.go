package cli

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
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
	// AllTopics: it takes every topic except for effects, and Topics in addition.
	AllTopics bool     `json:"all_topics"`
	Topics    []string `json:"topics"`
	// From its memory at its last heartbeat.
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
	besideState

	noSlot bool // events are for a reader of the log, and this PostgreSQL has no slot for one
}

func topicStateOf(d ops.Destination) topicState {
	return topicState{
		Topic: d.Topic, Pending: d.Pending, Due: d.Due, Leased: d.Leased, Retrying: d.Retrying, Dead: d.Dead,
		OldestSecs: d.Oldest.Seconds(),
	}
}

// prefixOf is the prefix of the tables of the outbox.
func (a *app) prefixOf() string {
	if a.prefix == "" {
		return sqloutbox.DefaultPrefix
	}
	return a.prefix
}

// state looks at the outbox.
func (a *app) state(ctx context.Context, on *session) (s outboxState, err error) {
	db, ob := on.db, on.ob
	b, err := ob.Backlog(ctx)
	if err != nil {
		return s, err
	}
	s = outboxState{
		Database: db.name, Pending: b.Pending, Dead: b.Dead, BlockedKeys: b.BlockedKeys,
		OldestSecs: b.OldestAge.Seconds(), Capped: b.More,
	}
	destinations, capped, err := on.api.Destinations(ctx)
	if err != nil {
		return s, err
	}
	s.Topics, s.Capped = converted(destinations, topicStateOf), s.Capped || capped
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
	s.besideState = besideStateOf(ctx, on.api)
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

// problems reports the problems in a live relay's heartbeat.
func (r *relayRow) problems(say func(found, cause, fix string)) {
	if !r.Alive {
		return
	}
	for _, d := range r.Stopped {
		say(d.text(r.Node), "its events wait and spend no attempts, until the next probe succeeds",
			"repair the destination or the relay's credentials; the relay goes on by itself")
	}
	if r.Stuck > 0 {
		say(fmt.Sprintf("relay %s waits for %s that do not return", short(r.Node), plural(r.Stuck, "publisher call")),
			"the publisher ignores the end of its context",
			"take a goroutine dump of that process, restart it, and repair the publisher")
	}
	if r.PollError != "" {
		say(fmt.Sprintf("relay %s cannot poll: %s", short(r.Node), within(400, r.PollError)),
			"the database refuses its statements", "give its role the rights, or repair what the error names")
	}
}

func (a *app) statusCommand() *cobra.Command {
	var maxDead int64
	var maxAge time.Duration
	c := &cobra.Command{
		Use:   "status",
		Short: "Count what waits, what is leased, what is retried and what is dead, by topic",
		Long: `status counts open and dead events by topic, lists the relays, and says which destinations are stopped,
paused or limited, as of at most 12 s ago. It also prints consumers, effects and idempotency keys in
trouble, if their tables are in the same database without a prefix. Events for a reader of the log are
not counted: status says how far walrelay is.

  pending   not yet published
  due       pending, its time has come, and no process holds it; it may wait for its key
  leased    pending, and a process holds it
  retrying  pending, and refused before
  dead      given up
  oldest    age of the oldest pending event
  relayed   a living relay takes events of the topic`,
		Example: "  outbox status\n  outbox status --json --max-dead 0 --max-age 5m",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var s outboxState
			if err := a.withOutbox(c, func(ctx context.Context, on *session) (err error) {
				s, err = a.state(ctx, on)
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
	c.Flags().Int64Var(&maxDead, "max-dead", -1, "exit code 3 if more are dead; -1: any number")
	c.Flags().Var((*span)(&maxAge), "max-age", "exit code 3 if something waits for longer; 0: any time")
	return c
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (a *app) printState(s outboxState) {
	num := func(n int64) string { return counted(n, s.Capped) }
	dead := func(n int64) painted {
		if n == 0 {
			return "0"
		}
		return a.paint(red, num(n))
	}
	a.sayf("%s\n", s.Database)
	a.sayf("pending %s, oldest %s, dead %s, blocked keys %s\n\n", num(s.Pending), age(seconds(s.OldestSecs)),
		dead(s.Dead), num(s.BlockedKeys))
	t := newTable("TOPIC|PENDING|DUE|LEASED|RETRYING|DEAD|OLDEST|RELAYED")
	for _, topic := range s.Topics {
		relayed := painted("-")
		if topic.Relayed != nil {
			relayed = map[bool]painted{true: "yes", false: a.paint(red, "no")}[*topic.Relayed]
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
		r.problems(func(found, _, _ string) { a.sayf("%s\n", a.paint(red, found)) })
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
	warning := map[string]string{levelFailure: red, levelWarning: yellow}
	for _, r := range s.Slots {
		a.sayf("%s\n", a.paint(warning[r.found.Level], r.found.Found))
	}
	for _, p := range s.Pauses {
		a.sayf("%s\n", a.paint(yellow, p.text()))
	}
	for _, r := range s.Rates {
		a.sayf("%s\n", a.paint(yellow, fmt.Sprintf("destination %s gets %s, set by %s at %s: %s", r.Topic, r.limits(),
			short(r.Actor), moment(r.Since), short(r.Reason))))
	}
	a.printBeside(s.besideState)
	switch {
	case s.Relays == nil:
	case len(s.Relays) == 0 && s.ByLog != nil && s.Pending == 0: // none is needed
	case len(s.Relays) == 0:
		a.sayf("\n%s\n", a.paint(red, "no relay is running"))
	default:
		a.sayf("\n")
		r := newTable("RELAY|PROGRAM|VERSION|ALIVE|SEEN|TOPICS")
		for _, relay := range s.Relays {
			topics := strings.Join(relay.Topics, ",")
			if relay.AllTopics {
				topics = "all"
			}
			alive := map[bool]painted{true: "yes", false: a.paint(red, "no")}[relay.Alive]
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
