package sqloutbox

import (
	"context"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

var _ core.RateStore = (*Repository)(nil)

// rateStatements are the statements about rates of destinations. They are rows of the table of
// pauses.
type rateStatements struct {
	set, remove, rates string
}

// rateTopic begins the column target of a rate. The topic follows.
const rateTopic = "rate:"

const (
	rateHead   = "INSERT INTO {pause} (target, paused_at, per_second, in_flight, actor, reason)\nVALUES "
	rateUpsert = "\nON CONFLICT (target) DO UPDATE SET (paused_at, per_second, in_flight, actor, reason) = " +
		"(excluded.paused_at, excluded.per_second, excluded.in_flight, excluded.actor, excluded.reason)"

	postgresSetRate = rateHead + "($1::text, {now}, $2::double precision, $3::integer, $4::text, $5::text)" + rateUpsert
	sqliteSetRate   = rateHead + "(?, {now}, ?, ?, ?, ?)" + rateUpsert
	mysqlSetRate    = rateHead + "(?, {now}, ?, ?, ?, ?)\n" +
		"ON DUPLICATE KEY UPDATE paused_at = VALUES(paused_at), per_second = VALUES(per_second), " +
		"in_flight = VALUES(in_flight), actor = VALUES(actor), reason = VALUES(reason)"

	selectRates = "SELECT target, COALESCE(per_second, 0), COALESCE(in_flight, 0), {us:paused_at}, actor, reason\n" +
		"FROM {pause} WHERE target LIKE '" + rateTopic + "%' ORDER BY target LIMIT " + pausesShown
)

func newRateStatements(n names) rateStatements {
	set := byDialect[string]{postgres: postgresSetRate, mysql: mysqlSetRate, sqlite: sqliteSetRate}.of(n)
	return rateStatements{
		set:    n.expand(set),
		remove: n.expand("DELETE FROM {pause} WHERE target = " + n.dialect.params.mark(1, "text")),
		rates:  n.expand(selectRates),
	}
}

// SetRate implements core.RateStore.
func (r *Repository) SetRate(ctx context.Context, req core.RateRequest) error {
	who := core.AdminRequest{Actor: req.Actor, Reason: req.Reason}
	if err := checkAdmin(who); err != nil {
		return err
	}
	return noTables(r.inTx(ctx, "set rate", func(q sqlkit.Querier) (err error) {
		if req.PerSecond == 0 && req.InFlight == 0 {
			_, err = q.Exec(ctx, r.rates.remove, r.target(rateTopic+req.Topic))
		} else {
			_, err = q.Exec(ctx, r.rates.set, r.target(rateTopic+req.Topic), req.PerSecond, int64(req.InFlight),
				req.Actor, req.Reason)
		}
		if err != nil {
			return err
		}
		return r.database.auditWhole(ctx, q, core.AuditRate, req.Topic, who)
	}))
}

// Rates implements core.RateStore.
func (r *Repository) Rates(ctx context.Context) (all []core.Rate, err error) {
	err = r.single(ctx, "rates", func(q sqlkit.Querier) error {
		all = nil
		return sqlkit.EachRow(ctx, q, r.rates.rates, nil, func(res core.Rows) error {
			var rate core.Rate
			var target string
			var since int64
			err := res.Scan(&target, &rate.PerSecond, &rate.InFlight, &since, &rate.Actor, &rate.Reason)
			rate.Topic = strings.TrimPrefix(strings.TrimSuffix(target, r.names.dialect.blankEnd), rateTopic)
			rate.Since = time.UnixMicro(since).UTC()
			all = append(all, rate)
			return err
		})
	})
	return all, noTables(err)
}
