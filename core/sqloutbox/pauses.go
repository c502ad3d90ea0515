package sqloutbox

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

var _ core.PauseStore = (*Repository)(nil)

// pauseStatements are the statements about pauses.
type pauseStatements struct {
	pause, resume, pauses, clock string
}

// Values of the column target.
const (
	pauseAll    = "all"
	pauseTopic  = "topic:"  // and the topic
	pauseTenant = "tenant:" // and the tenant
)

const pausesShown = "1000"

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

	selectPauses = "SELECT target, {us:paused_at}, {us:ends_at}, actor, reason, {clock}\nFROM {pause} WHERE " +
		"target NOT LIKE '" + rateTopic + "%' AND " + pauseHolds +
		" ORDER BY CASE WHEN target LIKE '" + pauseTenant + "%' THEN 1 ELSE 0 END, target LIMIT " + pausesShown
)

func newPauseStatements(n names) pauseStatements {
	pause := byDialect[string]{postgres: postgresPause, mysql: mysqlPause, sqlite: sqlitePause}.of(n)
	target := n.dialect.params.mark(1, "text")
	return pauseStatements{
		pause:  n.expand(pause),
		resume: n.expand("DELETE FROM {pause} WHERE target = " + target + " AND " + pauseHolds),
		pauses: n.expand(selectPauses),
		clock:  n.expand("SELECT {clock}"),
	}
}

func pauseTarget(all bool, topic, tenant string) string {
	switch {
	case all:
		return pauseAll
	case tenant != "":
		return pauseTenant + tenant
	}
	return pauseTopic + topic
}

// mysqlBlankEnd is the blankEnd of MariaDB and MySQL. No topic and no tenant has a control
// character.
const mysqlBlankEnd = "\x1f"

// target is the value of the column target.
func (r *Repository) target(text string) string {
	if strings.HasSuffix(text, " ") {
		return text + r.names.dialect.blankEnd
	}
	return text
}

// pauseAudited is the topic of the audit row of a pause.
func pauseAudited(topic, tenant string) string {
	if tenant != "" {
		return core.AuditTenant + tenant
	}
	return topic
}

// Pause implements core.PauseStore.
func (r *Repository) Pause(ctx context.Context, p core.PauseRequest) error {
	who := core.AdminRequest{Actor: p.Actor, Reason: p.Reason}
	if err := checkAdmin(who); err != nil {
		return err
	}
	var until any
	if !p.Until.IsZero() {
		until = p.Until.UnixMicro()
	}
	return noTables(r.inTx(ctx, "pause", func(q sqlkit.Querier) error {
		if until != nil {
			var now int64
			if _, err := sqlkit.FirstRow(ctx, q, r.pauses.clock, nil, &now); err != nil {
				return err
			}
			if now >= p.Until.UnixMicro() {
				return fmt.Errorf("%w: Until is over: the clock of the database says %s", core.ErrInvalidRequest,
					time.UnixMicro(now).UTC().Format(time.RFC3339))
			}
		}
		target := r.target(pauseTarget(p.All, p.Topic, p.Tenant))
		if _, err := q.Exec(ctx, r.pauses.pause, target, until, p.Actor, p.Reason); err != nil {
			return err
		}
		return r.database.auditWhole(ctx, q, core.AuditPause, pauseAudited(p.Topic, p.Tenant), who)
	}))
}

// Resume implements core.PauseStore.
func (r *Repository) Resume(ctx context.Context, p core.ResumeRequest) (resumed bool, err error) {
	who := core.AdminRequest{Actor: p.Actor, Reason: p.Reason}
	if err := checkAdmin(who); err != nil {
		return false, err
	}
	err = r.inTx(ctx, "resume", func(q sqlkit.Querier) error {
		n, err := q.Exec(ctx, r.pauses.resume, r.target(pauseTarget(p.All, p.Topic, p.Tenant)))
		if resumed = n > 0; err != nil || !resumed {
			return err
		}
		return r.database.auditWhole(ctx, q, core.AuditResume, pauseAudited(p.Topic, p.Tenant), who)
	})
	return resumed && err == nil, noTables(err)
}

// Pauses implements core.PauseStore.
func (r *Repository) Pauses(ctx context.Context) (all []core.Pause, err error) {
	err = r.single(ctx, "pauses", func(q sqlkit.Querier) error {
		all = nil
		return sqlkit.EachRow(ctx, q, r.pauses.pauses, nil, func(res core.Rows) error {
			var p core.Pause
			var target string
			var since, now int64
			var until *int64
			err := res.Scan(&target, &since, &until, &p.Actor, &p.Reason, &now)
			if err != nil {
				return err
			}
			var topic, tenant bool
			target = strings.TrimSuffix(target, r.names.dialect.blankEnd)
			p.All = target == pauseAll
			if p.Topic, topic = strings.CutPrefix(target, pauseTopic); !topic {
				p.Topic = ""
			}
			if p.Tenant, tenant = strings.CutPrefix(target, pauseTenant); !tenant {
				p.Tenant = ""
			}
			if !p.All && !topic && !tenant { // of a later version
				return nil
			}
			p.Since = time.UnixMicro(since).UTC()
			if until != nil {
				p.Until = time.UnixMicro(*until).UTC()
				p.Left = max(0, time.Duration(*until-now)*time.Microsecond)
			}
			all = append(all, p)
			return nil
		})
	})
	return all, noTables(err)
}
