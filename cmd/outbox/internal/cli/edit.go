package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// edited is what `outbox edit` did, or would do.
type edited struct {
	ops.Edited
	DryRun bool `json:"dry_run"`
}

func (a *app) editCommand() *cobra.Command {
	var w who
	var req ops.EditRequest
	var payload string
	var headers []string
	c := &cobra.Command{
		Use:   "edit ID (--payload FILE | --header NAME=VALUE ...) --reason TEXT",
		Short: "Publish a dead event with another content",
		Long: `edit publishes a dead event with another payload, content type or headers, at its place in its key. It
prints the difference, and asks. The event id stays, so a consumer that has processed the event skips
it. The audit keeps the difference. If the relays have DeadPolicy SkipDead, give --skip-dead. Exit
code 1: somebody has changed the event meanwhile.`,
		Example: "  outbox edit 01998b8c-2f6e-8a11-9d3b-8d1c0e3b5a10 --payload fixed.json " +
			"--reason 'total was a text, INC-42'",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if req.ID, err = core.ParseRowID(args[0]); err != nil {
				return usage("%s: %w", short(args[0]), err)
			}
			if err := w.check(); err != nil {
				return err
			}
			if req.Headers, err = headersOf(headers); err != nil {
				return err
			}
			switch payload {
			case "":
			case "-":
				if !w.yes && !w.dryRun {
					return usage("--payload - reads the standard input, so nobody can be asked: give --yes")
				}
				req.Payload, err = io.ReadAll(a.In)
			default:
				req.Payload, err = os.ReadFile(payload)
			}
			if err != nil {
				return usage("--payload: %w", err)
			}
			if payload != "" && req.Payload == nil {
				req.Payload = []byte{}
			}
			req.Actor, req.Reason = w.actor, w.reason
			return a.withOutbox(c, func(ctx context.Context, s *session) error { return a.edit(ctx, s, w, req) })
		},
	}
	f := c.Flags()
	f.StringVar(&payload, "payload", "", "file with the new payload; -: standard input")
	f.StringArrayVar(&headers, "header", nil, "set a header: NAME=VALUE; repeatable")
	f.StringArrayVar(&req.WithoutHeaders, "without-header", nil, "remove a header; repeatable")
	f.StringVar(&req.ContentType, "content-type", "", "the new content type")
	f.BoolVar(&req.SkipDead, "skip-dead", false, "the relays have DeadPolicy SkipDead")
	w.dryRunFlag(c)
	w.flags(c)
	return c
}

// headersOf reads headers of the form NAME=VALUE.
func headersOf(args []string) (map[string]string, error) {
	headers := map[string]string{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, usage("--header %s: it is NAME=VALUE", short(arg))
		}
		headers[name] = value
	}
	return headers, nil
}

// edit shows the difference, asks, and changes the event if it is as it was shown.
func (a *app) edit(ctx context.Context, s *session, w who, req ops.EditRequest) error {
	req.DryRun = true
	plan, err := s.api.Edit(ctx, req)
	if err != nil {
		return a.editError(ctx, s, req.ID, err)
	}
	if !a.json {
		a.sayf("event %s of topic %s%s\n%s", plan.EventID, plan.Topic, keyOf(plan), lines(plan.Diff))
	}
	if w.dryRun {
		return a.print(edited{plan, true}, func() { a.sayf("1 event would be changed\n") })
	}
	if err := a.confirm(ctx, w, a.tables(s.db, "outbox"), "edit and redrive 1 event"); err != nil {
		return err
	}
	req.DryRun, req.Seen = false, plan.Seen
	done, err := s.api.Edit(ctx, req)
	if err != nil {
		return a.editError(ctx, s, req.ID, err)
	}
	return a.print(edited{done, false}, func() {
		where := "at its place"
		if done.Appended {
			where = "at the end of its key"
		}
		if done.Key == "" {
			where = "without a key"
		}
		a.sayf("1 event changed: row %s waits %s\n", done.NewID, where)
	})
}

func keyOf(e ops.Edited) string {
	switch {
	case e.Key == "":
		return ""
	case e.Appended:
		return ", at the end of key " + e.Key
	}
	return ", at its place in key " + e.Key
}

func (a *app) editError(ctx context.Context, s *session, id core.RowID, err error) error {
	switch {
	case errors.Is(err, core.ErrInvalidEvent):
		return usage("%w", err)
	case errors.Is(err, ops.ErrNotFound):
		return fmt.Errorf("%w%s", err, rowOfEvent(ctx, s.api, id))
	case errors.Is(err, ops.ErrChanged):
		return fmt.Errorf("%w: `outbox explain %s`", err, id)
	}
	return err
}
