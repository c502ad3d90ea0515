package sqlonce

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
	"github.com/ormoutbox/ormoutbox/core/once"
)

var _ once.Desk = (*Store)(nil)

// maxLook is how many keys ListKeys looks at for a page.
const maxLook = 10_000

// Beside is for package sqlops: it returns a Store for the table next to an outbox's.
func Beside(r sqlstore.Runner, cfg Config) (*Store, error) {
	s, err := sqlstore.Beside(r, tables, sqlstore.Config(cfg))
	if err != nil {
		return nil, err
	}
	return &Store{db: s, sql: newStatements(s.Names)}, nil
}

// keyStatus is the number of a status: 3 for an abandoned key.
const keyStatus = "CASE WHEN status = 1 AND lease_until < {now} THEN 3 ELSE status END"

var keyStatuses = []once.KeyStatus{once.KeyFailed, once.KeyHeld, once.KeyDone, once.KeyAbandoned}

// deskStatements has the statements for an operator's queries.
type deskStatements struct {
	sum         string
	from, named string // of ListKeys; deskEnd ends them, and their parameters are ?
	last        string
}

const (
	deskColumns = "SELECT scope, tenant, id, " + keyStatus + ", attempts, {us:created_at}, " +
		"COALESCE({us:lease_until},0), COALESCE({us:done_at},0), {us:expires_at} FROM "
	deskBehind = "FROM {key} WHERE expires_at <= {at} AND ({us:expires_at}, scope, tenant, id) < (?, ?, ?, ?) " +
		"ORDER BY expires_at DESC, scope DESC, tenant DESC, id DESC LIMIT "
	deskEnd = " ORDER BY expires_at DESC, scope DESC, tenant DESC, id DESC LIMIT ?"
)

func newDeskStatements(n sqlstore.Names) deskStatements {
	return deskStatements{
		sum: n.Statement("SELECT scope, state, COUNT(*), MIN(remaining) FROM (SELECT scope, " + keyStatus + " AS " +
			"state, COALESCE({left:lease_until},0) AS remaining FROM {key} ORDER BY expires_at DESC LIMIT ?) k GROUP " +
			"BY scope, state"),
		from: n.Expand(deskColumns + "(SELECT scope, tenant, id, status, attempts, created_at, lease_until, done_at, " +
			"expires_at " + deskBehind + "?) k WHERE 1 = 1"),
		named: n.Expand(deskColumns + "{key} WHERE scope = ? AND expires_at <= {at} AND ({us:expires_at}, scope, " +
			"tenant, id) < (?, ?, ?, ?)"),
		last: n.Statement("SELECT {us:expires_at}, scope, tenant, id " + deskBehind + "1 OFFSET ?"),
	}
}

// Backlog implements once.Desk.
func (s *Store) Backlog(ctx context.Context, limit int) (all []once.Backlog, err error) {
	if limit < 1 {
		return nil, fmt.Errorf("%w: limit %d is less than 1", once.ErrInvalidRequest, limit)
	}
	type count struct {
		scope     string
		status, n int
		left      int64
	}
	counts, err := sqlstore.List(ctx, s.db, "count keys", s.sql.desk.sum, []any{limit},
		func(rows core.Rows) (c count, err error) {
			err = rows.Scan(&c.scope, &c.status, &c.n, &c.left)
			return c, err
		})
	if err != nil {
		return nil, err
	}
	total := 0
	for _, c := range counts {
		total += c.n
		i := slices.IndexFunc(all, func(b once.Backlog) bool { return b.Scope == c.scope })
		if i < 0 {
			i, all = len(all), append(all, once.Backlog{Scope: c.scope})
		}
		b := &all[i]
		switch keyStatuses[c.status] {
		case once.KeyHeld:
			b.Held += c.n
		case once.KeyAbandoned:
			b.Abandoned += c.n
			b.Oldest = max(0, -time.Duration(c.left)*time.Microsecond)
		case once.KeyFailed:
			b.Failed += c.n
		default:
			b.Done += c.n
		}
	}
	for i := range all {
		all[i].More = total >= limit
	}
	slices.SortFunc(all, func(a, b once.Backlog) int { return cmp.Compare(a.Scope, b.Scope) })
	return all, nil
}

// place is where a page ends.
type place struct {
	Expires int64  `json:"x"` // in microseconds
	Scope   string `json:"s"`
	Tenant  string `json:"t"`
	ID      string `json:"i"`
}

// first is before every key: the year 9999.
var first = place{Expires: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).UnixMicro()}

func (p place) String() string { return sqlstore.Cursor(p) }

func parsePlace(after string) (p place, err error) {
	if after == "" {
		return first, nil
	}
	if err := sqlstore.ReadCursor(after, &p); err != nil || p.Scope == "" {
		return p, fmt.Errorf("%w: KeyQuery.After is not the Next of a page", once.ErrInvalidRequest)
	}
	return p, nil
}

// ListKeys implements once.Desk.
func (s *Store) ListKeys(ctx context.Context, q once.KeyQuery) (page once.KeyPage, err error) {
	const what = "list keys"
	from, err := parsePlace(q.After)
	if err != nil {
		return page, err
	}
	status := slices.Index(keyStatuses, q.Status)
	if status < 0 && q.Status != "" {
		return page, fmt.Errorf("%w: there are no keys that are %q", once.ErrInvalidRequest, string(q.Status))
	}
	limit := min(cmp.Or(max(q.Limit, 0), 100), 1000)
	behind := []any{from.Expires, from.Expires, from.Scope, from.Tenant, from.ID}
	named := q.Scope != "" && q.ID != "" // the primary key finds them
	picks := q.Scope+q.Tenant+q.ID+string(q.Status) != ""
	look := limit + 1 // MySQL reads as many as that
	if picks {
		look = maxLook
	}
	text, args := s.sql.desk.from, append(slices.Clone(behind), look)
	if named {
		text, args = s.sql.desk.named, append([]any{q.Scope}, behind...)
	}
	for _, c := range []struct{ column, value string }{{"scope", q.Scope}, {"tenant", q.Tenant}, {"id", q.ID}} {
		if c.value != "" {
			text, args = text+" AND "+c.column+" = ?", append(args, c.value)
		}
	}
	if status >= 0 {
		text += s.db.Expand(fmt.Sprintf(" AND %s = %d", keyStatus, status))
	}
	text, args = s.db.Statement(text+deskEnd), append(args, limit+1)
	if page.Keys, err = sqlstore.List(ctx, s.db, what, text, args, scanStoredKey); err != nil {
		return page, err
	}
	if len(page.Keys) > limit {
		page.Keys = page.Keys[:limit]
		last := page.Keys[limit-1]
		page.Next = place{last.ExpiresAt.UnixMicro(), last.Key.Scope, last.Key.Tenant, last.Key.ID}.String()
		return page, nil
	}
	if named || !picks {
		return page, nil
	}
	// Is this the end, or only the end of the examined keys?
	end, err := sqlstore.List(ctx, s.db, what, s.sql.desk.last, append(behind, maxLook-1),
		func(rows core.Rows) (p place, err error) {
			err = rows.Scan(&p.Expires, &p.Scope, &p.Tenant, &p.ID)
			return p, err
		})
	if err == nil && len(end) > 0 {
		page.Next, page.Truncated = end[0].String(), true
	}
	return page, err
}

func scanStoredKey(rows core.Rows) (k once.StoredKey, err error) {
	var status int
	var created, lease, done, expires int64
	if err = rows.Scan(&k.Key.Scope, &k.Key.Tenant, &k.Key.ID, &status, &k.Attempts, &created, &lease, &done,
		&expires); err != nil {
		return k, err
	}
	k.Status = keyStatuses[status]
	k.CreatedAt, k.ExpiresAt = time.UnixMicro(created).UTC(), time.UnixMicro(expires).UTC()
	if lease != 0 {
		k.LeaseUntil = time.UnixMicro(lease).UTC()
	}
	if done != 0 {
		k.DoneAt = time.UnixMicro(done).UTC()
	}
	return k, nil
}
