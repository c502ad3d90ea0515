package suite

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// truth compares the events of a statement with the rows that it changed.
type truth struct {
	statement CaptureStatement
	*captured
}

// change is a row that differs before and after the statement. A zero before or after means that
// the row did not exist.
type change struct{ before, after CaptureRow }

func (c change) ops() []core.Op {
	switch {
	case c.before.Key == "":
		return []core.Op{core.OpCreate, core.OpUpsert}
	case c.after.Key == "":
		return []core.Op{core.OpDelete}
	default:
		return []core.Op{core.OpUpdate, core.OpUpsert}
	}
}

// changes returns the changed rows by key.
func (t *truth) changes() map[string]change {
	all := map[string]change{}
	for _, r := range t.before {
		all[r.Key] = change{before: r}
	}
	for _, r := range t.after {
		c := all[r.Key]
		c.after = r
		all[r.Key] = c
	}
	for key, c := range all {
		if c.before == c.after {
			delete(all, key)
		}
	}
	return all
}

// problems returns the problems that were found, or nil.
func (t *truth) problems() (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	changes := t.changes()
	if t.err != nil {
		if len(changes) > 0 {
			add("the transaction failed, and the table is not as it was")
		}
		if len(t.events) > 0 {
			add("the transaction failed, and there are events")
		}
		if !errors.Is(t.err, core.ErrNoAggregateID) && !errors.Is(t.err, core.ErrRecorderCopied) &&
			!errors.Is(t.err, core.ErrTxAborted) && !sqlerr.UniqueViolation(t.err) {
			add("the error is none of those that are documented: %v", t.err)
		}
		if errors.Is(t.err, core.ErrRecorderCopied) && !t.statement.Copies {
			add("nothing was copied: %v", t.err)
		}
	}
	rest := slices.Clone(t.events)
	take := func(match func(CapturedEvent) bool) (taken []CapturedEvent) {
		rest = slices.DeleteFunc(rest, func(e CapturedEvent) bool {
			if match(e) {
				taken = append(taken, e)
				return true
			}
			return false
		})
		return taken
	}
	if t.err == nil {
		if t.statement.Mapped {
			for key, c := range changes {
				events := take(func(e CapturedEvent) bool {
					return e.Key == key && strings.HasPrefix(e.Type, mappedType)
				})
				if len(events) != 1 {
					add("row %s was changed, and On functions made %d events of it, want 1", key, len(events))
					continue
				}
				if problem := t.payload(events[0], c); problem != "" {
					add("%s", problem)
				}
			}
		}
		for i, m := range t.statement.Models {
			if m.Record == "" {
				continue
			}
			events := take(func(e CapturedEvent) bool { return e.Type == m.Record })
			want, known := t.changeOf(m, changes)
			switch {
			case !known:
				add("model %d has no key, and %d rows were changed", i, len(changes))
			case want == "" && len(events) > 0:
				add("%s arrived, and the row of its model was not changed", m.Record)
			case want != "" && (len(events) != 1 || events[0].Key != want):
				add("%s: want one event of %q", m.Record, want)
			}
		}
		for _, e := range rest {
			add("an event of a row that was not changed: %s of %q", e.Type, e.Key)
		}
	}
	for _, m := range t.statement.Models {
		if m.Record == "" {
			continue
		}
		want, _ := t.changeOf(m, changes)
		waits := slices.Contains(t.left, m.Record)
		switch {
		case t.err == nil && waits != (want == ""):
			add("after the transaction %s is still recorded: %v", m.Record, waits)
		case sqlerr.UniqueViolation(t.err) && waits:
			add("%s was recorded in a transaction that was rolled back, and is still recorded", m.Record)
		}
	}
	return all
}

// changeOf returns the key of the changed row that a model stands for, or "" if the row was not
// changed. known is false if this cannot be determined.
func (t *truth) changeOf(m CaptureModel, changes map[string]change) (key string, known bool) {
	s := t.statement
	switch {
	case s.Do <= CaptureUpsert:
		for key, c := range changes {
			if c.after.Name == m.Name {
				return key, true
			}
		}
		return "", true
	case m.Key != "":
		if _, ok := changes[m.Key]; ok {
			return m.Key, true
		}
		return "", true
	case len(changes) == 1:
		for key := range changes {
			return key, true
		}
	}
	return "", len(changes) == 0
}

// payload compares an event with its row.
func (t *truth) payload(e CapturedEvent, c change) string {
	ops := c.ops()
	if t.statement.Do == CaptureCreate {
		ops = []core.Op{core.OpCreate}
	}
	if !slices.ContainsFunc(ops, func(op core.Op) bool { return e.Type == mappedType+op.String() }) {
		return fmt.Sprintf("the event of row %s is %q, want one of %v", e.Key, e.Type, ops)
	}
	row, err := rowOfPayload(e.Payload)
	if err != nil {
		return fmt.Sprintf("the payload %s of row %s: %v", e.Payload, e.Key, err)
	}
	want := c.after
	if want.Key == "" {
		want = c.before
	}
	if row != want {
		return fmt.Sprintf("the event %s says %+v, and the row is %+v", e.Type, row, want)
	}
	return ""
}
