package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// releaseOutput is what `outbox inbox release` prints.
type releaseOutput struct {
	DryRun   bool   `json:"dry_run"`
	Consumer string `json:"consumer"`
	Queue    string `json:"queue"`
	inbox.Released
	Groups []inbox.ReleaseGroup `json:"groups"` // of what would be released
}

// releaseCommand is one call of `outbox inbox release`.
type releaseCommand struct {
	who
	consumer, handler string
	events            []string
	from, to, group   string
	limit             int
	wait              time.Duration
	edit              string

	queue   queueAddress
	payload []byte          // of edit; nil: none
	seen    map[string]bool // which of events are in the queue
	parked  inbox.Parked    // the last message that was selected
}

func (a *app) inboxReleaseCommand() *cobra.Command {
	r := &releaseCommand{}
	c := &cobra.Command{
		Use:   "release --consumer NAME --from QUEUE --reason TEXT",
		Short: "Deliver the messages of a poison queue again",
		Long: `release delivers the messages of a consumer's poison queue again, to the topics from which they came.
Repair the consumer first, and let it run. release counts the messages by cause, and asks.

It waits until the first message is processed, then sends 4, 16, up to 256 at a time. If a message is
given up again, or is not processed within --wait, release stops (exit code 4), and the rest stays in
the queue: repeat the command later. A message is processed once, even after a kill.

--from is an address as in outbox relay --to, with the name of the queue at its end:

  amqp://user:password@host:5672/billing_poison?topology=queue
  kafka://host:9092/billing_poison
  nats://host:4222/billing.poison
  redis://host:6379/0/billing_poison

--edit sends one event with another payload, and needs an outbox in the same database, for the audit.
The Retention of the inbox has to cover the time in the queue. If the consumers have a Cache, call
Inbox.Release in the service.`,
		Example: `  outbox inbox release --consumer billing --from kafka://kafka1:9092/billing_poison --dry-run
  outbox inbox release --consumer billing --from kafka://kafka1:9092/billing_poison --limit 1 \
    --reason 'price list corrected'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := r.read(a); err != nil {
				return err
			}
			return a.withInbox(c, func(ctx context.Context, db *database, store *sqlinbox.Store) error {
				return a.release(ctx, db, store, r)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&r.consumer, "consumer", "", "whose poison queue it is")
	f.StringVar(&r.from, "from", "", "the poison queue")
	f.StringVar(&r.to, "to", "", "the broker of the topics (default: the broker of --from)")
	f.StringVar(&r.group, "group", "", "Kafka: the consumer group that remembers what was released "+
		"(default: CONSUMER.release)")
	f.StringVar(&r.handler, "handler", "", "of this handler")
	f.StringArrayVar(&r.events, "event", nil, "only this event; repeatable")
	f.IntVar(&r.limit, "limit", 0, "messages to release at most (default: all)")
	f.DurationVar(&r.wait, "wait", time.Minute, "how long a message may take until it is processed")
	f.StringVar(&r.edit, "edit", "", "file with another payload for --event; -: standard input")
	r.flags(c)
	r.dryRunFlag(c)
	return c
}

// read checks the flags.
func (r *releaseCommand) read(a *app) (err error) {
	switch {
	case r.consumer == "":
		return usage("--consumer is missing: `outbox inbox` lists them")
	case r.from == "":
		return usage("--from is missing: the poison queue")
	case r.limit < 0:
		return usage("--limit %d is negative", r.limit)
	case r.wait <= 0:
		return usage("--wait %s: it is longer than 0", r.wait)
	case r.edit != "" && len(r.events) != 1:
		return usage("--edit is for one event: name it with --event")
	case r.edit == "-" && !r.yes && !r.dryRun:
		return usage("--edit - reads the standard input, so nobody can be asked: give --yes")
	}
	if r.queue, err = readQueueAddress(r.from); err != nil {
		return err
	}
	r.to, r.group = cmp.Or(r.to, r.queue.broker), cmp.Or(r.group, r.consumer+".release")
	if _, _, err := openerOf(r.to); err != nil {
		return err
	}
	if err := r.check(); err != nil {
		return err
	}
	switch r.edit {
	case "":
		return nil
	case "-":
		r.payload, err = io.ReadAll(a.In)
	default:
		r.payload, err = os.ReadFile(r.edit)
	}
	if err != nil {
		return usage("--edit: %w", err)
	}
	if r.payload == nil {
		r.payload = []byte{}
	}
	return nil
}

// selects is inbox.ReleaseRequest.Select.
func (r *releaseCommand) selects(p inbox.Parked) bool {
	if r.handler != "" && p.Key.Handler != r.handler || len(r.events) > 0 && !slices.Contains(r.events, p.Key.EventID) {
		return false
	}
	r.seen[p.Key.EventID], r.parked = true, p
	return true
}

// absent returns the ids of --event that are not in the queue.
func (r *releaseCommand) absent() (ids []string) {
	for _, id := range r.events {
		if !r.seen[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// releaseAPI returns the API of the outbox that is beside the inbox, if there is one.
func (a *app) releaseAPI(db *database, store *sqlinbox.Store) (*ops.API, error) {
	repo, err := sqloutbox.New(db.DB, sqloutbox.Config{Dialect: db.dialect, Schema: a.schema})
	if err != nil {
		return nil, usage("%w", err)
	}
	ob, err := core.New(core.Config{Repository: repo})
	if err != nil {
		return nil, err
	}
	outbox, err := sqlops.NewStore(repo)
	if err != nil {
		return nil, err
	}
	s := besideTables{outbox, outbox.Beside()}
	s.beside.Inbox = store
	return ops.New(ob, s)
}

func (a *app) release(ctx context.Context, db *database, store *sqlinbox.Store, r *releaseCommand) error {
	api, err := a.releaseAPI(db, store)
	if err != nil {
		return err
	}
	logger, err := a.logger("error")
	if err != nil {
		return err
	}
	settings := brokerSettings{workers: 1, timeout: releaseTimeout, logger: logger, existing: true}
	to, err := openBroker(ctx, r.to, settings)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = to.Close(ctx)
	}()
	sender, ok := to.publisher.(inbox.Sender)
	if !ok {
		return fmt.Errorf("a %T does not send messages", to.publisher)
	}
	run := func(dryRun bool, show func(inbox.Released)) (inbox.Released, error) {
		q, err := r.queue.open(ctx, r.group, settings)
		if err != nil {
			return inbox.Released{}, err
		}
		defer q.close()
		req := ops.ReleaseRequest{Consumer: r.consumer}
		req.From, req.To, req.Actor, req.Reason = q, sender, r.actor, r.reason
		req.Limit, req.Wait, req.Select, req.DryRun, req.Progress = r.limit, r.wait, r.selects, dryRun, show
		if r.payload != nil {
			req.Edit = func(inbox.Parked) ([]byte, error) { return r.payload, nil }
		}
		r.seen = map[string]bool{}
		return api.Release(ctx, req)
	}
	if r.dryRun || r.payload != nil || !r.yes {
		plan, err := run(true, nil)
		if err != nil {
			return err
		}
		if err := a.releasePlanned(r, plan); err != nil || r.dryRun || plan.Sent+plan.Done == 0 {
			return err
		}
		if r.limit == 0 { // messages that are parked meanwhile are not among the messages that the person saw
			r.limit = plan.Sent
		}
		return a.releaseConfirmed(ctx, db, api, r, plan.Sent, run)
	}
	return a.releaseConfirmed(ctx, db, api, r, 0, run)
}

// releasePlanned prints what would be released. It returns an error if the plan does not match the
// request.
func (a *app) releasePlanned(r *releaseCommand, plan inbox.Released) error {
	out := releaseOutput{DryRun: true, Consumer: r.consumer, Queue: r.queue.name, Released: plan, Groups: plan.Groups}
	if out.Groups == nil {
		out.Groups = []inbox.ReleaseGroup{}
	}
	text := func() {
		a.sayf("%s of consumer %s in %s can be released\n", many(plan.Sent, "message"), r.consumer, r.queue.name)
		if len(plan.Groups) > 0 {
			t := newTable("HANDLER|TOPIC|MESSAGES|FIRST EVENT|REASON")
			for _, g := range plan.Groups {
				t.add(g.Handler, g.Topic, strconv.Itoa(g.Messages), g.EventID, short(g.Reason))
			}
			t.write(a.Out)
		}
		a.sayDoneAndKept(plan)
		if r.payload != nil && plan.Sent == 1 {
			a.sayf("%s", lines(ops.PayloadDiff(r.parked.Message.Payload, r.payload)))
		}
	}
	switch {
	case r.dryRun || plan.Sent+plan.Done == 0:
		if err := a.print(out, text); err != nil {
			return err
		}
	case !a.json:
		text()
	}
	switch absent := r.absent(); {
	case r.payload != nil && plan.Sent > 1:
		return usage("%s of event %s are in the queue: give --handler", many(plan.Sent, "message"), short(r.events[0]))
	case len(absent) > 0 && (r.dryRun || plan.Sent+plan.Done == 0):
		return exit(ExitPartial, "%s in the queue: %s", isNot(len(absent)), short(strings.Join(absent, ", ")))
	}
	return nil
}

func isNot(n int) string {
	if n == 1 {
		return "1 event is not"
	}
	return strconv.Itoa(n) + " events are not"
}

func (a *app) sayDoneAndKept(r inbox.Released) {
	if r.Done > 0 {
		a.sayf("%s of events that are processed or discarded already: only taken out of the queue\n",
			many(r.Done, "message"))
	}
	if r.Kept > r.Behind {
		a.sayf("%s not selected, or without topic or event id, or of another consumer: kept in the queue\n",
			many(r.Kept-r.Behind, "message"))
	}
	if r.Behind > 0 {
		a.sayf("%s selected, but behind one of these in the same key: kept, so that the order of the key is kept\n",
			many(r.Behind, "message"))
	}
}

func (a *app) releaseConfirmed(ctx context.Context, db *database, api *ops.API, r *releaseCommand, planned int,
	run func(dryRun bool, show func(inbox.Released)) (inbox.Released, error),
) error {
	ask := fmt.Sprintf("release %s from %s, with the tables", many(planned, "message"), r.queue.name)
	if err := a.confirm(ctx, r.who, a.tables(db, "inbox"), ask); err != nil {
		return err
	}
	if _, err := api.Audit(ctx, ops.AuditQuery{Limit: 1}); errors.Is(err, core.ErrNoTables) {
		a.note("no outbox is in this database, so there is no audit of the release: the inbox keeps who and why " +
			"until the messages are processed")
	}
	add, finish := a.progress(0, planned)
	last := 0
	done, err := run(false, func(d inbox.Released) { add(d.Processed - last); last = d.Processed })
	finish()
	out := releaseOutput{Consumer: r.consumer, Queue: r.queue.name, Released: done, Groups: []inbox.ReleaseGroup{}}
	perr := a.print(out, func() {
		a.sayf("%s sent, %d of them processed\n", many(done.Sent, "message"), done.Processed)
		a.sayDoneAndKept(done)
	})
	absent := r.absent()
	switch {
	case err != nil && done.Sent+done.Done > 0:
		return exit(ExitPartial, "%w", err)
	case err != nil:
		return err
	case len(absent) > 0:
		return exit(ExitPartial, "%s in the queue: %s", isNot(len(absent)), short(strings.Join(absent, ", ")))
	}
	return perr
}
