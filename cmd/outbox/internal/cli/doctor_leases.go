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
// longer than its lease. A living process extends its lease, so that either says: here two
// processes may have done the same thing.
func (x *examination) leases(ctx context.Context) (all []finding, err error) {
	for _, look := range []func(context.Context) ([]finding, error){x.eventLeases, x.effectLeases, x.keyLeases} {
		found, err := look(ctx)
		if err != nil {
			return all, err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		all = append(all, fine("leases", "none of the newest rows lost one, and no work is known that takes longer"))
	}
	return all, nil
}

const takenOver = "the process that held them died, hung, or did not reach the database for longer than its lease; " +
	"another one took over, so that each may have been sent twice"

// eventLeases looks for events that were taken over from another relay.
func (x *examination) eventLeases(ctx context.Context) ([]finding, error) {
	lost, n, err := x.taken(ctx, x.db.quote(x.schema, x.prefix+"event"), "lost_claims")
	if err != nil || lost == 0 {
		return nil, err
	}
	return []finding{{
		Check: "leases", Level: levelWarning,
		Found: fmt.Sprintf("relays lost the lease of %d of the newest %d events", lost, n), Cause: takenOver,
		Fix: "if no process was killed then: look for pauses of the process and of the database; otherwise raise " +
			"HotLease and ClaimLease",
	}}, nil
}

// effectLeases looks for effects that were taken over from another worker.
func (x *examination) effectLeases(ctx context.Context) ([]finding, error) {
	name := x.effectsPrefix + "side_effect_command"
	there, err := x.db.hasTable(ctx, x.schema, name)
	if err != nil || !there {
		return nil, err
	}
	lost, n, err := x.taken(ctx, x.db.quote(x.schema, name), "lost_leases")
	if err != nil || lost == 0 {
		return nil, err
	}
	return []finding{{
		Check: "leases", Level: levelWarning,
		Found: fmt.Sprintf("workers lost the lease of %d of the newest %d effects", lost, n), Cause: takenOver,
		Fix: "if no process was killed then: raise Lease of the workers above the longest pause, and compare it with " +
			"the metric effect_execution_duration_seconds",
	}}, nil
}

// taken counts the rows whose counter is not zero among the newest ones of a table.
func (x *examination) taken(ctx context.Context, table, counter string) (lost, n int, err error) {
	err = x.db.QueryRowContext(ctx, "SELECT COALESCE(SUM(CASE WHEN "+counter+" <> 0 THEN 1 ELSE 0 END), 0), COUNT(*) "+
		"FROM (SELECT "+counter+" FROM "+table+" ORDER BY id DESC LIMIT "+strconv.Itoa(leaseSample)+") newest").
		Scan(&lost, &n)
	return lost, n, err
}

// keyLeases compares how long work under idempotency keys takes with its lease. The table has the
// duration of work that succeeded at its first attempt, and the lease of keys that are held now.
func (x *examination) keyLeases(ctx context.Context) (all []finding, err error) {
	there, err := x.db.hasTable(ctx, x.schema, x.keysPrefix+"idempotency_key")
	if err != nil || !there {
		return nil, err
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
		return nil, err
	}
	for _, scope := range slices.Sorted(maps.Keys(took)) {
		held := x.lease
		held = cmp.Or(held, lease[scope])
		slices.Sort(took[scope])
		p99 := took[scope][(len(took[scope])*99-1)/100]
		if held == 0 || p99 <= held {
			continue
		}
		all = append(all, finding{
			Check: "leases", Level: levelWarning,
			Found: fmt.Sprintf("work of %s takes %s (p99 of %d), and its lease is %s", short(scope), age(p99),
				len(took[scope]), age(held)),
			Cause: "a pause of the process or of the store that is longer than the lease lets another process do the " +
				"same work beside it",
			Fix: "make Lease longer than the work takes, or bound the work: its context with a timeout below Lease",
		})
	}
	return all, nil
}
