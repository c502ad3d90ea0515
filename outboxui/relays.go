package outboxui

import (
	"path"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// relayRow is a relay in a table.
type relayRow struct {
	core.RelayStatus
	Shape    state
	Takes    string
	Problems []string
}

func relayRows(all []core.RelayStatus) (rows []relayRow, now time.Time) {
	for _, r := range all {
		row := relayRow{
			RelayStatus: r, Shape: state{"ok", "alive"}, Takes: "all topics",
			Problems: r.Problems(),
		}
		row.Program = path.Base(r.Program)
		if r.Program == "" {
			row.Program = "not known"
		}
		if !r.AllTopics {
			row.Takes = strings.Join(r.Topics, ", ")
		} else if len(r.Topics) > 0 {
			row.Takes += ", " + strings.Join(r.Topics, ", ")
		}
		switch {
		case !r.Alive():
			row.Shape, row.Problems = state{"down", "gone"}, nil
		case len(r.Stopped) > 0 || r.Stuck > 0 || r.PollErr != nil:
			row.Shape = state{"warn", "in trouble"}
		}
		rows = append(rows, row)
		now = r.SeenAt.Add(r.Age)
	}
	return rows, now
}

// relaysView is the page of the relays.
type relaysView struct {
	Relays   []relayRow
	Commands []string
}

func relays(v *visit, _ string) (*frame, error) {
	all, err := v.api().Outbox().Relays(v.ctx())
	if err != nil {
		return nil, err
	}
	m := &relaysView{Commands: []string{commandOf("status")}}
	f := v.frame("relays", "Relays")
	f.Main, f.Now = m, v.now()
	if m.Relays, f.Now = relayRows(all); f.Now.IsZero() {
		f.Now = v.now()
	}
	alive, trouble := 0, 0
	for _, r := range m.Relays {
		if r.Alive() {
			alive++
		}
		if r.Shape.Kind == "warn" {
			trouble++
		}
	}
	switch {
	case alive == 0:
		f.Verdict.Kind, f.Verdict.States = "bad", []state{{"down", "no relay"}}
		f.Verdict.Heading = "No relay is alive: events wait in the table."
		f.Verdict.Next = "Start the service that runs the relay, or `outbox relay`. Nothing is lost meanwhile."
	case trouble > 0:
		f.Verdict.Kind, f.Verdict.States = "warn", []state{{"warn", plural(trouble, "relay") + " in trouble"}}
		f.Verdict.Heading = plural(trouble, "relay") + " of " + number(alive) + " that " +
			verbOf(alive, "is", "are") + " alive " + verbOf(trouble, "is", "are") + " in trouble."
		for _, r := range m.Relays {
			for _, p := range r.Problems {
				f.Verdict.Also = append(f.Verdict.Also,
					also{State: state{"warn", cut(r.Node, 40)}, Text: ops.Printable(p)})
			}
		}
	default:
		f.Verdict.Heading = plural(alive, "relay") + " " + verbOf(alive, "is", "are") + " alive and well."
	}
	f.Title = f.Verdict.Heading
	return f, nil
}
