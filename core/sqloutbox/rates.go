package sqloutbox

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// rateStatements are the statements about rates of destinations. They are rows of the table of
// pauses.
type rateStatements struct {
	set, remove string
}

const (
	rateHead   = "INSERT INTO {pause} (target, paused_at, per_second, in_flight, actor, reason)\nVALUES "
	rateUpsert = "\nON CONFLICT (target) DO UPDATE SET (paused_at, per_second, in_flight, actor, reason) = " +
		"(excluded.paused_at, excluded.per_second, excluded.in_flight, excluded.actor, excluded.reason)"

	postgresSetRate = rateHead + "($1::text, {now}, $2::double precision, $3::integer, $4::text, $5::text)" + rateUpsert
	sqliteSetRate   = rateHead + "(?, {now}, ?, ?, ?, ?)" + rateUpsert
	mysqlSetRate    = rateHead + "(?, {now}, ?, ?, ?, ?)\n" +
		"ON DUPLICATE KEY UPDATE paused_at = VALUES(paused_at), per_second = VALUES(per_second), " +
		"in_flight = VALUES(in_flight), actor = VALUES(actor), reason = VALUES(reason)"
)

func newRateStatements(n names) rateStatements {
	set := outboxsql.ByDialect[string]{Postgres: postgresSetRate, MySQL: mysqlSetRate, SQLite: sqliteSetRate}
	return rateStatements{
		set:    n.expand(set.Of(n.dialect)),
		remove: n.expand("DELETE FROM {pause} WHERE target = " + n.params().Mark(1, "text")),
	}
}

// rates are the rates of a Repository.
type rates component[rateStatements]

// SetRate implements core.Repository.
func (r *rates) SetRate(ctx context.Context, req core.RateRequest) error {
	who := core.AdminRequest{Actor: req.Actor, Reason: req.Reason}
	if err := outboxsql.CheckWho(who); err != nil {
		return err
	}
	return r.pool.inTx(ctx, "set rate", func(q sqlkit.Querier) (err error) {
		if req.PerSecond == 0 && req.InFlight == 0 {
			_, err = q.Exec(ctx, r.sql.remove, r.names.target(rateTopic+req.Topic))
		} else {
			_, err = q.Exec(ctx, r.sql.set, r.names.target(rateTopic+req.Topic), req.PerSecond, int64(req.InFlight),
				req.Actor, req.Reason)
		}
		if err != nil {
			return err
		}
		return r.database.auditWhole(ctx, q, core.AuditRate, req.Topic, who)
	})
}
