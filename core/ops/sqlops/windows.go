package sqlops

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// windowTarget begins the column target of a window, which is a row of the table of pauses. A hash
// of topic and consumer follows, because both together can be longer than the column. The row ended
// in 1970: relays of every version pass over pauses that have ended.
const windowTarget = "window:"

// windowStatements are the statements about windows.
type windowStatements struct {
	declare, withdraw, windows string
}

const (
	windowHead   = "INSERT INTO {pause} (target, paused_at, ends_at, actor, reason)\nVALUES "
	windowUpsert = "\nON CONFLICT (target) DO UPDATE SET (paused_at, actor, reason) = " +
		"(excluded.paused_at, excluded.actor, excluded.reason)"

	postgresWindow = windowHead + "($1::text, {now}, timestamptz 'epoch', $2::text, $3::text)" + windowUpsert
	sqliteWindow   = windowHead + "(?, {now}, 0, ?, ?)" + windowUpsert
	mysqlWindow    = windowHead + "(?, {now}, TIMESTAMP'1970-01-01 00:00:00', ?, ?)\n" +
		"ON DUPLICATE KEY UPDATE paused_at = VALUES(paused_at), actor = VALUES(actor), reason = VALUES(reason)"

	selectWindows = "SELECT target, {us:paused_at}, actor, reason FROM {pause} " +
		"WHERE target LIKE '" + windowTarget + "%' ORDER BY target LIMIT 1000"
)

func newWindowStatements(t outboxsql.Tables, p *outboxsql.Params) windowStatements {
	declare := outboxsql.ByDialect[string]{Postgres: postgresWindow, MySQL: mysqlWindow, SQLite: sqliteWindow}
	return windowStatements{
		declare:  t.Expand(declare.Of(t.Dialect)),
		withdraw: t.Expand("DELETE FROM {pause} WHERE target = " + p.Mark(1, "text")),
		windows:  t.Expand(selectWindows),
	}
}

func windowOf(topic, consumer string) string {
	sum := sha256.Sum256([]byte(topic + "\x00" + consumer))
	return windowTarget + hex.EncodeToString(sum[:16])
}

// storedWindow is the content of the column reason in the row of a window.
type storedWindow struct {
	Topic    string        `json:"topic"`
	Consumer string        `json:"consumer"`
	Keep     time.Duration `json:"keep"`
	Reason   string        `json:"reason"`
}

// DeclareWindow implements ops.Store.
func (st *Store) DeclareWindow(ctx context.Context, req ops.WindowRequest) error {
	who := core.AdminRequest{Actor: req.Actor, Reason: req.Reason}
	if err := outboxsql.CheckWho(who); err != nil {
		return err
	}
	who.Reason = req.AuditReason()
	body, err := json.Marshal(storedWindow{req.Topic, req.Consumer, req.Keep, req.Reason})
	if err != nil {
		return fmt.Errorf("sqlops: declare a window: %w", err)
	}
	return st.tables.InTx(ctx, "declare a window", func(q sqlkit.Querier) error {
		target := windowOf(req.Topic, req.Consumer)
		if _, err := q.Exec(ctx, st.windows.declare, target, req.Actor, string(body)); err != nil {
			return err
		}
		return st.tables.AuditWhole(ctx, q, ops.AuditDeclareWindow, req.Topic, who)
	})
}

// WithdrawWindow implements ops.Store.
func (st *Store) WithdrawWindow(ctx context.Context, req ops.WindowRequest) (withdrawn bool, err error) {
	who := core.AdminRequest{Actor: req.Actor, Reason: req.Reason}
	if err := outboxsql.CheckWho(who); err != nil {
		return false, err
	}
	who.Reason = req.AuditReason()
	err = st.tables.InTx(ctx, "withdraw a window", func(q sqlkit.Querier) error {
		n, err := q.Exec(ctx, st.windows.withdraw, windowOf(req.Topic, req.Consumer))
		if withdrawn = n > 0; err != nil || !withdrawn {
			return err
		}
		return st.tables.AuditWhole(ctx, q, ops.AuditWithdrawWindow, req.Topic, who)
	})
	return withdrawn && err == nil, err
}

// Windows implements ops.Store.
func (st *Store) Windows(ctx context.Context) ([]ops.Window, error) {
	all, err := sqlkit.AskRows(ctx, st.tables.Single, "windows", st.windows.windows, nil, scanWindow)
	slices.SortFunc(all, func(a, b ops.Window) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Consumer, b.Consumer))
	})
	return all, err
}

func scanWindow(res core.Rows) (w ops.Window, err error) {
	var target, body string
	var since int64
	if err := res.Scan(&target, &since, &w.Actor, &body); err != nil {
		return w, err
	}
	var stored storedWindow
	if err := json.Unmarshal([]byte(body), &stored); err != nil {
		return w, fmt.Errorf("window %s: %w", target, err)
	}
	w.Topic, w.Consumer, w.Keep, w.Reason = stored.Topic, stored.Consumer, stored.Keep, stored.Reason
	w.Since = time.UnixMicro(since).UTC()
	return w, nil
}
