package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// besideState is what status prints of the tables beside the outbox. Null: the database has no such
// table, or the role may not read it.
type besideState struct {
	Consumers []inboxState  `json:"consumers"`
	Effects   []effectState `json:"effects"`
	Scopes    []scopeState  `json:"idempotency_scopes"`
}

// besideStateOf looks at them. What it may not read is not known, as a role of the outbox alone need
// not have rights on other tables.
func besideStateOf(ctx context.Context, api *ops.API) (s besideState) {
	if c, err := api.Consumers(ctx); err == nil && c.There {
		s.Consumers = converted(c.Handlers, inboxStateOf)
	}
	if e, err := api.Effects(ctx); err == nil && e.There {
		s.Effects = converted(e.Channels, effectStateOf)
	}
	if k, err := api.IdempotencyKeys(ctx); err == nil && k.There {
		s.Scopes = converted(k.Scopes, scopeStateOf)
	}
	return s
}

func inboxStateOf(b inbox.Backlog) inboxState {
	return inboxState{
		Consumer: b.Consumer, Handler: b.Handler, Failed: int64(b.Failed), Dead: int64(b.Dead),
		Redriven: int64(b.Redriven), Processing: int64(b.Processing), OldestSecs: b.Oldest.Seconds(), capped: b.More,
	}
}

func effectStateOf(b command.Backlog) effectState {
	return effectState{
		Channel: b.Channel, Pending: b.Pending, Dead: b.Dead, OldestSecs: b.OldestAge.Seconds(),
		Capped: b.Pending >= b.Limit || b.Dead >= b.Limit,
	}
}

// printBeside prints a line for each consumer, channel and scope in trouble.
func (a *app) printBeside(s besideState) {
	for _, c := range s.Consumers {
		if c.Dead+c.Failed == 0 {
			continue
		}
		var what []string
		color := yellow
		if c.Dead > 0 {
			color, what = red, append(what, counted(c.Dead, c.capped)+" dead")
		}
		if c.Failed > 0 {
			what = append(what, counted(c.Failed, c.capped)+" failing")
		}
		a.sayf("%s\n", a.paint(color, fmt.Sprintf("messages of %s: %s, the oldest for %s: `outbox inbox list "+
			"--consumer %s`", short(handlerOf(c.Consumer, c.Handler)), strings.Join(what, ", "),
			age(seconds(c.OldestSecs)), short(c.Consumer))))
	}
	for _, e := range s.Effects {
		if e.Dead > 0 {
			a.sayf("%s\n", a.paint(red, fmt.Sprintf("effects of %s: %s dead: `outbox effects list --channel %s`",
				short(e.Channel), counted(e.Dead, e.Capped), short(e.Channel))))
		}
	}
	for _, k := range s.Scopes {
		if k.Abandoned > 0 {
			a.sayf("%s\n", a.paint(yellow, fmt.Sprintf("idempotency keys of %s: %s abandoned: `outbox idempotency "+
				"list --status abandoned`", short(k.Scope), counted(k.Abandoned, k.Capped))))
		}
	}
}

// handlerOf names a handler of a consumer.
func handlerOf(consumer, handler string) string {
	if handler == consumer {
		return "consumer " + consumer
	}
	return "handler " + handler + " of consumer " + consumer
}
