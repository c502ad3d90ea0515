package sqloutbox

import (
	"context"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// pauseStatements are the statements about pauses.
type pauseStatements struct {
	pause, resume, settings, clock string
}

const (
	pauseHead   = "INSERT INTO {pause} (target, paused_at, ends_at, actor, reason)\nVALUES "
	pauseHolds  = "(ends_at IS NULL OR ends_at > {now})"
	pauseUpsert = "\nON CONFLICT (target) DO UPDATE SET (paused_at, ends_at, actor, reason) = " +
		"(excluded.paused_at, excluded.ends_at, excluded.actor, excluded.reason)"

	postgresPause = pauseHead + "($1::text, {now}, timestamptz 'epoch' + $2::bigint * interval '1 microsecond', " +
		"$3::text, $4::text)" + pauseUpsert
	sqlitePause = pauseHead + "(?, {now}, ?, ?, ?)" + pauseUpsert
	mysqlPause  = pauseHead + "(?, {now}, TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND, ?, ?)\n" +
		"ON DUPLICATE KEY UPDATE paused_at = VALUES(paused_at), ends_at = VALUES(ends_at), " +
		"actor = VALUES(actor), reason = VALUES(reason)"

	// The order is the order of core.Settings.
	selectSettings = "SELECT target, {us:paused_at}, {us:ends_at}, COALESCE(per_second, 0), COALESCE(in_flight, 0),\n" +
		"  actor, reason, {clock}\nFROM {pause} WHERE target LIKE '" + rateTopic + "%' OR " + pauseHolds +
		"\nORDER BY CASE WHEN target LIKE '" + rateTopic + "%' THEN 0 WHEN target LIKE '" + pauseTenant +
		"%' THEN 2 ELSE 1 END, target LIMIT " + settingsShown
)

func newPauseStatements(n names) pauseStatements {
	pause := outboxsql.ByDialect[string]{Postgres: postgresPause, MySQL: mysqlPause, SQLite: sqlitePause}.Of(n.dialect)
	target := n.params().Mark(1, "text")
	return pauseStatements{
		pause:    n.expand(pause),
		resume:   n.expand("DELETE FROM {pause} WHERE target = " + target + " AND " + pauseHolds),
		settings: n.expand(selectSettings),
		clock:    n.expand("SELECT {clock}"),
	}
}

// pauseAudited is the topic of the audit row of a pause.
func pauseAudited(topic, tenant string) string {
	if tenant != "" {
		return core.AuditTenant + tenant
	}
	return topic
}

// pauses are the pauses of a Repository.
type pauses component[pauseStatements]

// Pause implements core.Repository.
func (r *pauses) Pause(ctx context.Context, p core.PauseRequest) error {
	who := core.AdminRequest{Actor: p.Actor, Reason: p.Reason}
	if err := outboxsql.CheckWho(who); err != nil {
		return err
	}
	var until any
	if !p.Until.IsZero() {
		until = p.Until.UnixMicro()
	}
	return r.pool.inTx(ctx, "pause", func(q sqlkit.Querier) error {
		if until != nil {
			var now int64
			if _, err := sqlkit.FirstRow(ctx, q, r.sql.clock, nil, &now); err != nil {
				return err
			}
			if now >= p.Until.UnixMicro() {
				return &core.FieldError{
					Err: core.ErrInvalidRequest, Format: "{Until} is over: the clock of the database is at %s",
					Args: []any{time.UnixMicro(now).UTC().Format(time.RFC3339)},
				}
			}
		}
		target := r.names.target(pauseTarget(p.All, p.Topic, p.Tenant))
		if _, err := q.Exec(ctx, r.sql.pause, target, until, p.Actor, p.Reason); err != nil {
			return err
		}
		return r.database.auditWhole(ctx, q, core.AuditPause, pauseAudited(p.Topic, p.Tenant), who)
	})
}

// Resume implements core.Repository.
func (r *pauses) Resume(ctx context.Context, p core.ResumeRequest) (resumed bool, err error) {
	who := core.AdminRequest{Actor: p.Actor, Reason: p.Reason}
	if err := outboxsql.CheckWho(who); err != nil {
		return false, err
	}
	err = r.pool.inTx(ctx, "resume", func(q sqlkit.Querier) error {
		n, err := q.Exec(ctx, r.sql.resume, r.names.target(pauseTarget(p.All, p.Topic, p.Tenant)))
		if resumed = n > 0; err != nil || !resumed {
			return err
		}
		return r.database.auditWhole(ctx, q, core.AuditResume, pauseAudited(p.Topic, p.Tenant), who)
	})
	return resumed && err == nil, err
}

// Settings implements core.Repository.
func (r *pauses) Settings(ctx context.Context) (set core.Settings, err error) {
	err = r.pool.single(ctx, "settings", func(q sqlkit.Querier) error {
		set = core.Settings{}
		return sqlkit.EachRow(ctx, q, r.sql.settings, nil, func(res core.Rows) error { return r.setting(res, &set) })
	})
	return set, err
}

// setting adds a row to the settings.
func (r *pauses) setting(res core.Rows, set *core.Settings) error {
	var p core.Pause
	var rate core.Rate
	var target string
	var since, now int64
	var until *int64
	err := res.Scan(&target, &since, &until, &rate.PerSecond, &rate.InFlight, &p.Actor, &p.Reason, &now)
	if err != nil {
		return err
	}
	p.Since = time.UnixMicro(since).UTC()
	target = r.names.targeted(target)
	kind, name, _ := strings.Cut(target, ":")
	switch kind + ":" {
	case rateTopic:
		rate.Topic, rate.Since, rate.Actor, rate.Reason = name, p.Since, p.Actor, p.Reason
		set.Rates = append(set.Rates, rate)
		return nil
	case pauseTopic:
		p.Topic = name
	case pauseTenant:
		p.Tenant = name
	default:
		if p.All = target == pauseAll; !p.All { // of a later version
			return nil
		}
	}
	if until != nil {
		p.Until = time.UnixMicro(*until).UTC()
		p.Left = max(0, time.Duration(*until-now)*time.Microsecond)
	}
	set.Pauses = append(set.Pauses, p)
	return nil
}

// Values of the column target.
const (
	pauseAll    = "all"
	pauseTopic  = "topic:"  // and the topic
	pauseTenant = "tenant:" // and the tenant
	rateTopic   = "rate:"   // and the topic: a rate of it
)

// settingsShown is more than operators can set: 1000 pauses and 1000 rates.
const settingsShown = "2000"

func pauseTarget(all bool, topic, tenant string) string {
	switch {
	case all:
		return pauseAll
	case tenant != "":
		return pauseTenant + tenant
	}
	return pauseTopic + topic
}

// blankEnd is written behind a text that ends with a blank, because comparisons of texts ignore
// blanks at the end on MariaDB and MySQL. No topic and no tenant has a control character.
var blankEnd = outboxsql.ByDialect[string]{MySQL: "\x1f"}

// target is the value of the column target.
func (n names) target(text string) string {
	if strings.HasSuffix(text, " ") {
		return text + blankEnd.Of(n.dialect)
	}
	return text
}

// targeted is the text of a value of the column target.
func (n names) targeted(value string) string {
	return strings.TrimSuffix(value, blankEnd.Of(n.dialect))
}
