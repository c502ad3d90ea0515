package walrelay

import (
	"context"
	"runtime/debug"
	"sync"
	"time"
)

const (
	registerEvery = 12 * time.Hour
	registerPause = time.Minute // after one that failed
)

// program is the path of the main package. It is empty if the program does not know it, as with
// `go run file.go`.
var program = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Path == "command-line-arguments" {
		return ""
	}
	return info.Path
})

// register writes, when Run begins and twice a day, that this program reads the slot or stands by for
// it, and tells of other programs that have done so within a week. It is only for the warning: while
// it fails, as without the column, nothing is told.
func (r *Relay) register(ctx context.Context) {
	if program() == "" || time.Now().Before(r.registered) {
		return
	}
	var others string
	found, err := r.db.row(ctx, `UPDATE {log} SET programs = programs || jsonb_build_object($2::text, clock_timestamp())
WHERE slot = $1::text RETURNING (SELECT COALESCE(string_agg(key, ' and ' ORDER BY key), '')
  FROM jsonb_each_text(programs) WHERE key <> $2::text AND value::timestamptz > clock_timestamp() - interval '7 days')`,
		[]any{r.cfg.Slot, program()}, &others)
	if err != nil || !found {
		r.registered = time.Now().Add(registerPause)
		return
	}
	r.registered = time.Now().Add(registerEvery)
	if others == "" || others == r.others {
		return
	}
	r.others = others
	r.log.WarnContext(ctx, "outbox: another program reads the same slot: each event is published by one of the two, "+
		"with its publisher; give one of them another slot and outbox", "program", program(), "other_program", others)
}
