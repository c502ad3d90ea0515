package cli

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// leaseSample is how many of the newest rows of a table doctor reads for signs of leases that are
// too short.
const leaseSample = 10_000

// leases looks for leases that ended while their holder still worked, and for work that takes
// longer than its lease. A living process extends its lease, so either case means that two
// processes may have done the same thing.
func (x *examination) leases(ctx context.Context) error {
	for _, look := range []func(context.Context) error{x.eventLeases, x.effectLeases, x.keyLeases} {
		if err := look(ctx); err != nil {
			return err
		}
	}
	x.otherwise("none of the newest rows lost one, and no work is known that takes longer")
	return nil
}

const takenOver = "the process that held them died, hung, or did not reach the database for longer than its lease; " +
	"another one took over, so that each may have been sent twice"

// eventLeases looks for events that were taken over from another relay.
func (x *examination) eventLeases(ctx context.Context) error {
	return x.taken(ctx, x.prefix+"event", "lost_claims", "relays lost the lease of %d of the newest %d events",
		"if no process was killed then: look for pauses of the process and of the database; otherwise raise "+
			"HotLease and ClaimLease")
}

// effectLeases looks for effects that were taken over from another worker.
func (x *examination) effectLeases(ctx context.Context) error {
	name := x.effectsPrefix + "side_effect_command"
	if there, err := x.db.hasTable(ctx, x.schema, name); err != nil || !there {
		return err
	}
	return x.taken(ctx, name, "lost_leases", "workers lost the lease of %d of the newest %d effects",
		"if no process was killed then: raise Lease of the workers above the longest pause, and compare it with "+
			"the metric effect_execution_duration_seconds")
}

// taken looks for rows whose counter is not zero among the newest ones of a table.
func (x *examination) taken(ctx context.Context, table, counter, found, fix string) error {
	var lost, n int
	err := x.db.QueryRowContext(ctx, "SELECT COALESCE(SUM(CASE WHEN "+counter+" <> 0 THEN 1 ELSE 0 END), 0), COUNT(*) "+
		"FROM (SELECT "+counter+" FROM "+x.db.quote(x.schema, table)+" ORDER BY id DESC LIMIT "+
		strconv.Itoa(leaseSample)+") newest").Scan(&lost, &n)
	if err != nil || lost == 0 {
		return err
	}
	x.warn(fmt.Sprintf(found, lost, n), takenOver, fix)
	return nil
}

// keyLeases compares how long work under idempotency keys takes with its lease. The table has the
// duration of work that succeeded at its first attempt, and the lease of keys that are held now.
func (x *examination) keyLeases(ctx context.Context) error {
	there, err := x.db.hasTable(ctx, x.schema, x.keysPrefix+"idempotency_key")
	if err != nil || !there {
		return err
	}
	micros := x.db.micros
	query := "SELECT scope, status, CASE WHEN status = 1 THEN " + micros("lease_until") + " - " + micros("updated_at") +
		" ELSE " + micros("done_at") + " - " + micros("created_at") + " END " +
		"FROM (SELECT scope, status, attempts, lease_until, updated_at, done_at, created_at FROM " +
		x.db.quote(x.schema, x.keysPrefix+"idempotency_key") + " ORDER BY expires_at DESC LIMIT " +
		strconv.Itoa(leaseSample) + ") newest WHERE status = 1 OR status = 2 AND attempts = 1"
	took, lease := map[string][]time.Duration{}, map[string]time.Duration{}
	err = x.db.each(ctx, query, nil, func(rows *sql.Rows) error {
		var scope string
		var status int
		var us int64
		if err := rows.Scan(&scope, &status, &us); err != nil {
			return err
		}
		d := time.Duration(us) * time.Microsecond
		switch {
		case status == 1:
			lease[scope] = max(lease[scope], d)
		case d > 0: // work inside a transaction has no lease, and takes no time by the clock of its database
			took[scope] = append(took[scope], d)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, scope := range slices.Sorted(maps.Keys(took)) {
		held := cmp.Or(x.lease, lease[scope])
		slices.Sort(took[scope])
		p99 := took[scope][(len(took[scope])*99-1)/100]
		if held == 0 || p99 <= held {
			continue
		}
		x.warn(fmt.Sprintf("work of %s takes %s (p99 of %d), and its lease is %s", short(scope), age(p99),
			len(took[scope]), age(held)),
			"a pause of the process or of the store that is longer than the lease lets another process do the "+
				"same work beside it",
			"make Lease longer than the work takes, or bound the work: its context with a timeout below Lease")
	}
	return nil
}
