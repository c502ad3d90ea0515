package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core"
)

// pauseRow is a pause as commands print it.
type pauseRow struct {
	All    bool       `json:"all"`
	Topic  string     `json:"topic,omitempty"` // empty if all
	Since  time.Time  `json:"since"`
	Until  *time.Time `json:"until,omitempty"` // missing: until it is resumed
	Actor  string     `json:"actor"`
	Reason string     `json:"reason"`
}

func pauseRowOf(p core.Pause) pauseRow {
	row := pauseRow{All: p.All, Topic: p.Topic, Since: p.Since, Actor: p.Actor, Reason: p.Reason}
	if !p.Until.IsZero() {
		row.Until = &p.Until
	}
	return row
}

// name is how people name what is paused.
func (p pauseRow) name() string {
	if p.All {
		return "everything"
	}
	return "destination " + p.Topic
}

// argument is what `outbox resume` takes.
func (p pauseRow) argument() string {
	if p.All {
		return "--all"
	}
	return p.Topic
}

// target is what a command pauses or resumes.
type target struct {
	who
	all bool
}

func (t *target) flags(c *cobra.Command) {
	t.who.flags(c)
	c.Flags().BoolVar(&t.all, "all", false, "every destination")
}

// topic checks the arguments and returns the topic, which is empty for everything.
func (t *target) topic(args []string) (string, error) {
	if t.all == (len(args) > 0) {
		return "", usage("name one topic, or --all for every destination")
	}
	if err := t.check(); err != nil {
		return "", err
	}
	if t.all {
		return "", nil
	}
	return args[0], nil
}

func (a *app) pauseCommand() *cobra.Command {
	var t target
	var lasts time.Duration
	var until string
	c := &cobra.Command{
		Use:   "pause (TOPIC | --all) --reason TEXT",
		Short: "Stop publishing to a destination, or to all of them, on every relay",
		Long: `pause stops the events of a topic, or of all topics, on every relay, until a time or until
"outbox resume". It is stored, so it holds over restarts. Services go on publishing: the events wait
in the table, keep their order and spend no attempts. The relays follow within 3 s. They finish what
they have begun to send. Another pause of the same topic replaces the first.

--until takes a time such as 2026-11-23T18:00:00Z. --for counts from now, by the clock of this
machine. Both are compared with the clock of the database.

Actor and reason are stored in the audit table, in the same transaction. Without a terminal it needs
--yes, or it is refused (exit code 5).`,
		Example: "  outbox pause orders --for 30m --reason 'broker upgrade'\n" +
			"  outbox pause --all --reason 'restore of db1, INC-42' --yes",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			topic, err := t.topic(args)
			if err != nil {
				return err
			}
			req := core.PauseRequest{All: t.all, Topic: topic, Actor: t.actor, Reason: t.reason}
			switch {
			case lasts != 0 && until != "":
				return usage("give --for or --until, not both")
			case lasts < 0:
				return usage("--for %s: it is negative", lasts)
			case lasts > 0:
				req.Until = a.now().Add(lasts)
			case until != "":
				if req.Until, err = time.Parse(time.RFC3339, until); err != nil {
					return usage("--until: it is a time such as 2026-11-23T18:00:00Z")
				}
			}
			return a.withOutbox(c, func(ctx context.Context, db *database, ob *core.Outbox) error {
				name := pauseRow{All: t.all, Topic: topic}.name()
				if err := a.confirm(t.yes, "pause "+name+" of "+db.name+"?"); err != nil {
					return err
				}
				if err := ob.Pause(ctx, req); err != nil {
					return err
				}
				row := pauseRow{
					All: t.all, Topic: topic, Since: a.now().UTC(), Actor: t.actor, Reason: t.reason,
				}
				if !req.Until.IsZero() {
					utc := req.Until.UTC()
					row.Until = &utc
				}
				return a.print(row, func() {
					if row.Until == nil {
						a.sayf("%s is paused until `outbox resume %s`\n", name, row.argument())
						return
					}
					a.sayf("%s is paused until %s\n", name, moment(*row.Until))
				})
			})
		},
	}
	t.flags(c)
	c.Flags().DurationVar(&lasts, "for", 0, "how long, such as 30m; 0: until it is resumed")
	c.Flags().StringVar(&until, "until", "", "until when, such as 2026-11-23T18:00:00Z")
	return c
}

// resumed is what `outbox resume` prints.
type resumed struct {
	All     bool   `json:"all"`
	Topic   string `json:"topic,omitempty"`
	Resumed bool   `json:"resumed"` // false: it was not paused
}

func (a *app) resumeCommand() *cobra.Command {
	var t target
	c := &cobra.Command{
		Use:   "resume (TOPIC | --all) --reason TEXT",
		Short: "End a pause",
		Long: `resume ends the pause of a topic, or with --all the pause of everything, which leaves the pauses of
single topics. The relays go on within 3 s. "outbox pauses" lists what is paused.

Actor and reason are stored in the audit table, in the same transaction. Without a terminal it needs
--yes, or it is refused (exit code 5).`,
		Example: "  outbox resume orders --reason 'broker upgraded'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			topic, err := t.topic(args)
			if err != nil {
				return err
			}
			return a.withOutbox(c, func(ctx context.Context, db *database, ob *core.Outbox) error {
				name := pauseRow{All: t.all, Topic: topic}.name()
				if err := a.confirm(t.yes, "resume "+name+" of "+db.name+"?"); err != nil {
					return err
				}
				done, err := ob.Resume(ctx, core.ResumeRequest{
					All: t.all, Topic: topic, Actor: t.actor, Reason: t.reason,
				})
				if err != nil {
					return err
				}
				return a.print(resumed{All: t.all, Topic: topic, Resumed: done}, func() {
					if done {
						a.sayf("%s goes on\n", name)
					} else {
						a.sayf("%s was not paused: nothing was done\n", name)
					}
				})
			})
		},
	}
	t.flags(c)
	return c
}

func (a *app) pausesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "pauses",
		Short: "List what is paused: since when, until when, by whom and why",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withOutbox(c, func(ctx context.Context, _ *database, ob *core.Outbox) error {
				list, err := ob.Pauses(ctx)
				if err != nil {
					return err
				}
				rows := converted(list, pauseRowOf)
				return a.print(rows, func() { a.printPauses(rows) })
			})
		},
	}
}

func (a *app) printPauses(rows []pauseRow) {
	if len(rows) == 0 {
		a.sayf("nothing is paused\n")
		return
	}
	t := &table{}
	t.add("TOPIC", "SINCE", "UNTIL", "ACTOR", "REASON")
	for _, p := range rows {
		until := "resumed"
		if p.Until != nil {
			until = moment(*p.Until)
		}
		topic := p.Topic
		if p.All {
			topic = "(all)"
		}
		t.add(topic, moment(p.Since), until, short(p.Actor), short(p.Reason))
	}
	t.write(a.Out)
}
