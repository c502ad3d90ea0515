package cli

import (
	"context"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// explained is the explanation of an event, with the state of its publication if a reader of the
// log publishes it.
type explained struct {
	ops.Explanation
	logState
}

// explainLog adds what PostgreSQL and walrelay know about events that a program reads from the log.
func (db *database) explainLog(ctx context.Context, schema, prefix string, list []ops.Explanation,
) (all []explained, err error) {
	states, err := db.logStates(ctx, schema, prefix,
		converted(list, func(x ops.Explanation) ops.Event { return x.Event }))
	if err != nil {
		return nil, err
	}
	var slots []slot
	for i, x := range list {
		state := states[i]
		switch {
		case state.Log == "":
		case state.Log == logPublished:
			x.Text = "It was inserted at " + x.Event.CreatedAt.UTC().Format("2006-01-02 15:04:05 MST") + ", and " +
				state.words() + ": table " + prefix + "log says so."
			x.Fix = ""
		case db.pgx != nil:
			if slots == nil {
				if slots, err = db.readers(ctx, schema, prefix, &logEvents{}); err != nil {
					return nil, err
				}
			}
			inWords(&x, state, slots, prefix)
		}
		all = append(all, explained{x, state})
	}
	return all, nil
}

// inWords adds the state of the readers to the explanation of an event that may not be published
// yet.
func inWords(x *ops.Explanation, state logState, slots []slot, prefix string) {
	if state.Log == logUnconfirmed {
		x.Text += " By table " + prefix + "log, " + state.words() + ": it writes down every ten seconds how far it is."
	}
	if len(slots) == 0 {
		x.Text += " Nobody reads the log of this database: it has no logical replication slot."
	}
	healthy := true
	for _, s := range slots {
		f := s.judge(maxLogBehind)
		x.Text += " " + sentence(f.Found)
		if f.Level == levelFailure {
			healthy = false
			x.Fix = sentence(f.Fix) + " " + x.Fix
		}
	}
	if waits := x.Event.ReadAt.Sub(x.Event.CreatedAt); healthy && state.Log == logUnconfirmed && waits > lateLog {
		x.Text += " It has waited for " + age(waits.Truncate(time.Second)) + ": " + whyLate + "."
		x.Fix = sentence(whereStopped) + " " + x.Fix
	}
}

// sentence is a text of doctor as a sentence.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }
