package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// groupList is what `outbox groups` prints.
type groupList struct {
	Groups []ops.Group `json:"groups"`
	Muted  int         `json:"muted"`  // groups that are left out, because they are muted
	Capped bool        `json:"capped"` // there are more events than were read and counted
	paging
}

func (a *app) groupsCommand() *cobra.Command {
	var f ops.Filter
	var muted bool
	c := &cobra.Command{
		Use:   "groups",
		Short: "Group the dead and the retrying events by their failure, the largest group first",
		Long: `groups groups the events that failed alike: same code, topic, type, and same text without numbers and
ids. outbox list --group lists the events of a group.`,
		Example: "  outbox groups --topic orders",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withOutbox(c, func(ctx context.Context, s *session) error {
				g, err := s.api.Groups(ctx, f)
				if err != nil {
					return err
				}
				list := groupList{Groups: g.Groups, Capped: g.Truncated, paging: paging{More: g.Truncated}}
				if !muted {
					list.Groups = slices.DeleteFunc(g.Groups, func(g ops.Group) bool { return g.Muted })
					list.Muted = len(g.Groups) - len(list.Groups)
				}
				if len(list.Groups) == 0 {
					a.hintUnseen(ctx, s.api, f)
					list.Groups = []ops.Group{}
				}
				return a.print(list, func() { a.printGroups(list) })
			})
		},
	}
	filterFlags(c, &f)
	c.Flags().BoolVar(&muted, "muted", false, "muted groups too")
	c.AddCommand(a.groupNoteCommand(), a.groupMuteCommand(), a.groupUnmuteCommand())
	return c
}

func (a *app) printGroups(g groupList) {
	if len(g.Groups) == 0 && g.Muted == 0 {
		a.sayf("no event has failed\n")
		return
	}
	if len(g.Groups) > 0 {
		const heads = "GROUP|DEAD|RETRYING|BLOCKED|FIRST|LAST|TOPIC|TYPE|CODE|ERROR|NOTE"
		printRows(a, "", heads, g.Groups, func(t *table, v ops.Group) {
			t.add(v.Fingerprint, strconv.Itoa(v.Dead), strconv.Itoa(v.Retrying), strconv.Itoa(v.BlockedKeys),
				moment(v.First), moment(v.Last), v.Topic, v.Type, v.ErrorCode, short(v.Pattern), groupNote(v))
		})
	}
	if len(g.Groups) > 0 && !g.Groups[0].Muted {
		a.sayf("group %s: %s\n", g.Groups[0].Fingerprint, g.Groups[0].Fix)
	}
	if g.Muted > 0 {
		a.sayf("%d muted (--muted shows them)\n", g.Muted)
	}
	if g.Capped {
		a.note("there are more events than were read: the numbers are those of the events that were read")
	}
}

// groupNote is a group's note, with its author.
func groupNote(g ops.Group) string {
	text := short(g.Stored.Note)
	if g.Muted {
		if text != "" {
			text += ", "
		}
		text += "muted until " + moment(g.Stored.MutedUntil)
	}
	if text != "" {
		text += " (" + short(g.Stored.Actor) + ")"
	}
	return text
}

// groupChanged is what the commands that change a group print.
type groupChanged struct {
	Fingerprint string     `json:"fingerprint"`
	DryRun      bool       `json:"dry_run"`
	Events      int        `json:"events"` // that failed so, and are dead or retried
	Note        *string    `json:"note,omitempty"`
	MutedUntil  *time.Time `json:"muted_until,omitempty"`
	Unmuted     bool       `json:"unmuted,omitempty"`
}

func (a *app) groupNoteCommand() *cobra.Command {
	var by who
	c := &cobra.Command{
		Use:     "note FINGERPRINT TEXT",
		Short:   "Store a note on a group of failures",
		Long:    `note replaces the note on a group of failures. An empty text removes it.`,
		Example: "  outbox groups note 3f1c5a7be0d9a421 'billing drops v1, INC-42'",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			by.reason = cmp.Or(by.reason, "a note")
			return a.changeGroup(c, &by, args[0], groupChanged{Note: &args[1]}, "the note on group %s %s stored",
				func(ctx context.Context, api *ops.API, req ops.GroupRequest) error {
					return api.NoteGroup(ctx, args[1], req)
				})
		},
	}
	by.reasonFlags(c)
	by.dryRunFlag(c)
	return c
}

func (a *app) groupMuteCommand() *cobra.Command {
	var by who
	var lasts time.Duration
	var until string
	c := &cobra.Command{
		Use:   "mute FINGERPRINT (--for DURATION | --until TIME) --reason TEXT",
		Short: "Leave a group of failures out of `outbox groups` until a time",
		Long: `mute leaves a group of failures out of outbox groups until a time. Metrics, alerts and other commands
count its events as before.`,
		Example: "  outbox groups mute 3f1c5a7be0d9a421 --for 48h --reason 'fixed by release 7, INC-42'",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			end, err := a.end(lasts, until)
			if err == nil && end.IsZero() {
				err = usage("--for or --until is missing: until when is the group muted?")
			}
			if err != nil {
				return err
			}
			end = end.UTC()
			text := "group %s %s muted until " + moment(end)
			return a.changeGroup(c, &by, args[0], groupChanged{MutedUntil: &end}, text,
				func(ctx context.Context, api *ops.API, req ops.GroupRequest) error {
					return api.MuteGroup(ctx, end, req)
				})
		},
	}
	by.reasonFlags(c)
	by.dryRunFlag(c)
	c.Flags().Var((*span)(&lasts), "for", "how long, such as 48h")
	c.Flags().StringVar(&until, "until", "", "until when, such as 2026-11-23T18:00:00Z")
	return c
}

func (a *app) groupUnmuteCommand() *cobra.Command {
	var by who
	c := &cobra.Command{
		Use:     "unmute FINGERPRINT --reason TEXT",
		Short:   "Show a muted group of failures again",
		Example: "  outbox groups unmute 3f1c5a7be0d9a421 --reason 'release 7 did not fix it'",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.changeGroup(c, &by, args[0], groupChanged{Unmuted: true}, "group %s %s shown again",
				func(ctx context.Context, api *ops.API, req ops.GroupRequest) error {
					return api.UnmuteGroup(ctx, req)
				})
		},
	}
	by.reasonFlags(c)
	by.dryRunFlag(c)
	return c
}

// groupWho names who changes a group and why, or that nothing is changed. changeGroup runs fn for a
// person, and prints the change and the text, which names the group. An unknown group is a mistake
// of that person.
func (a *app) changeGroup(c *cobra.Command, by *who, fingerprint string, change groupChanged, text string,
	fn func(ctx context.Context, api *ops.API, req ops.GroupRequest) error,
) error {
	if err := by.check(); err != nil {
		return err
	}
	return a.withOutbox(c, func(ctx context.Context, s *session) error {
		g, err := s.api.Groups(ctx, ops.Filter{Fingerprint: fingerprint})
		if err != nil {
			return err
		}
		for _, one := range g.Groups {
			change.Events += one.Dead + one.Retrying
		}
		err = fn(ctx, s.api, ops.GroupRequest{
			Fingerprint: fingerprint, Actor: by.actor, Reason: by.reason, DryRun: by.dryRun,
		})
		if errors.Is(err, ops.ErrNoGroup) {
			return usage("%w: outbox groups lists them", err)
		}
		if err != nil {
			return err
		}
		change.Fingerprint, change.DryRun = fingerprint, by.dryRun
		return a.print(change, func() {
			a.sayf(text+": it has %s\n", fingerprint, by.either("is", "would be"), many(change.Events, "event"))
		})
	})
}
