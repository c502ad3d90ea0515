package sqloutbox

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
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

var _ ops.WindowStore = (*Repository)(nil)

// windowTarget begins the column target of a window, which is a row of the table of pauses. A hash
// of topic and consumer follows, because both together can be longer than the column. The row ended
// in 1970: relays of every version pass over pauses that have ended.
const windowTarget = "window:"

// windowStatements are the statements about windows. The others are those of pauses and rates.
type windowStatements struct {
	windows string
}

const selectWindows = "SELECT target, {us:paused_at}, actor, reason FROM {pause} " +
	"WHERE target LIKE '" + windowTarget + "%' ORDER BY target LIMIT " + pausesShown

func newWindowStatements(n names) windowStatements {
	return windowStatements{windows: n.expand(selectWindows)}
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

// DeclareWindow implements ops.WindowStore.
func (r *Repository) DeclareWindow(ctx context.Context, req ops.WindowRequest) error {
	who := core.AdminRequest{Actor: req.Actor, Reason: req.Reason}
	if err := checkAdmin(who); err != nil {
		return err
	}
	who.Reason = req.AuditReason()
	body, err := json.Marshal(storedWindow{req.Topic, req.Consumer, req.Keep, req.Reason})
	if err != nil {
		return fmt.Errorf("sqloutbox: declare a window: %w", err)
	}
	return noTables(r.inTx(ctx, "declare a window", func(q sqlkit.Querier) error {
		target := windowOf(req.Topic, req.Consumer)
		if _, err := q.Exec(ctx, r.pauses.pause, target, int64(0), req.Actor, string(body)); err != nil {
			return err
		}
		return r.database.auditWhole(ctx, q, ops.AuditDeclareWindow, req.Topic, who)
	}))
}

// WithdrawWindow implements ops.WindowStore.
func (r *Repository) WithdrawWindow(ctx context.Context, req ops.WindowRequest) (withdrawn bool, err error) {
	who := core.AdminRequest{Actor: req.Actor, Reason: req.Reason}
	if err := checkAdmin(who); err != nil {
		return false, err
	}
	who.Reason = req.AuditReason()
	err = r.inTx(ctx, "withdraw a window", func(q sqlkit.Querier) error {
		n, err := q.Exec(ctx, r.rates.remove, windowOf(req.Topic, req.Consumer))
		if withdrawn = n > 0; err != nil || !withdrawn {
			return err
		}
		return r.database.auditWhole(ctx, q, ops.AuditWithdrawWindow, req.Topic, who)
	})
	return withdrawn && err == nil, noTables(err)
}

// Windows implements ops.WindowStore.
func (r *Repository) Windows(ctx context.Context) (all []ops.Window, err error) {
	err = r.single(ctx, "windows", func(q sqlkit.Querier) error {
		all = nil
		return sqlkit.EachRow(ctx, q, r.windows.windows, nil, func(res core.Rows) error {
			var target, actor, body string
			var since int64
			if err := res.Scan(&target, &since, &actor, &body); err != nil {
				return err
			}
			var w storedWindow
			if err := json.Unmarshal([]byte(body), &w); err != nil {
				return fmt.Errorf("window %s: %w", target, err)
			}
			all = append(all, ops.Window{
				Topic: w.Topic, Consumer: w.Consumer, Keep: w.Keep, Since: time.UnixMicro(since).UTC(),
				Actor: actor, Reason: w.Reason,
			})
			return nil
		})
	})
	slices.SortFunc(all, func(a, b ops.Window) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Consumer, b.Consumer))
	})
	return all, noTables(err)
}
