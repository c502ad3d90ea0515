package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge"
)

// parking is a consumer "mailer" of a stream of Redis, with its poison queue.
type parking struct {
	*world
	client        *redis.Client
	topic, poison string // of a test of its own
	to            *watermillbridge.Publisher
	in            *inbox.Inbox
	broken        atomic.Bool
	from          string // as --from
	mu            sync.Mutex
	handled       []string // events with their payloads
}

func newParking(w *world) *parking {
	w.Helper()
	address := server(w.T, "OUTBOX_TEST_REDIS")
	o, err := redisbridge.Options(address)
	must(w, err)
	p := &parking{world: w, client: redis.NewClient(o)}
	id := core.NewEventID()
	p.topic, p.poison = "it-"+id, "it-"+id+"-poison"
	p.from = strings.TrimSuffix(address, "/") + "/" + p.poison
	w.Cleanup(func() {
		_ = p.client.Del(context.Background(), p.topic, p.poison).Err()
		_ = p.client.Close()
	})
	p.to, err = redisbridge.NewPublisher(redisbridge.Config{Client: p.client, AllowUnsafeServer: true})
	must(w, err)
	db := w.open()
	store, err := sqlinbox.New(db, sqlinbox.Config{Dialect: w.dialect})
	must(w, err)
	p.in, err = inbox.New(inbox.Config{
		Consumer: "mailer", Handler: "send", Store: store, Transactor: sqltx.NewTransactor(db, w.dialect),
	})
	must(w, err)
	return p
}

// park parks an event that the consumer has given up.
func (p *parking) park(id, key string) {
	p.Helper()
	msg := inbox.Message{UUID: id, Payload: []byte(`{"to":"` + key + `"}`), Headers: map[string]string{
		core.HeaderEventID: id, core.HeaderPartitionKey: key, inbox.HeaderParkedTopic: p.topic,
		inbox.HeaderParkedHandler: "send", inbox.HeaderParkedConsumer: "mailer",
		inbox.HeaderParkedReason: "no address for " + id, inbox.HeaderParkedAt: "2026-11-29T20:00:00Z",
	}}
	p.failInbox("mailer", id, true)
	must(p, p.to.Send(p.Context(), p.poison, msg))
}

// consume handles what is sent to the topic, until the test ends.
func (p *parking) consume() {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			p.handleAll(ctx)
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	p.Cleanup(func() { stop(); running.Wait() })
}

func (p *parking) handleAll(ctx context.Context) {
	q, err := redisbridge.OpenPoisonQueue(ctx, p.client, p.topic)
	if err != nil {
		return // nothing was sent yet
	}
	for {
		msg, err := q.Next(ctx)
		if err != nil {
			return
		}
		res := p.in.Process(ctx, msg, func(_ context.Context, _ core.Tx, m inbox.Message) error {
			if p.broken.Load() {
				return core.Permanent(errors.New("still no address"))
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.handled = append(p.handled, m.Headers[core.HeaderEventID]+" "+string(m.Payload))
			return nil
		})
		if res.Action != inbox.Retry {
			_ = q.Ack(ctx, msg)
		}
	}
}

// lying returns how many messages are in the poison queue.
func (p *parking) lying() int64 { return p.client.XLen(p.Context(), p.poison).Val() }

// The messages of a poison queue are counted by cause, released after a question, and audited.
func TestInboxRelease(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ok("migrate", "up", "--tables", "all")
		p := newParking(w)
		ids := []string{core.NewEventID(), core.NewEventID(), core.NewEventID(), core.NewEventID()}
		for i, id := range ids {
			p.park(id, []string{"ada", "ada", "bob", "eve"}[i])
		}
		release := func(more ...string) []string {
			return append([]string{"inbox", "release", "--consumer", "mailer", "--from", p.from}, more...)
		}
		names := strings.NewReplacer(p.topic, "TOPIC", ids[0], "EVENT", ids[1], "EVENT", ids[2], "EVENT",
			strings.TrimSuffix(p.from, p.poison), "redis://SERVER/")
		for range 2 {
			w.golden("release-dry-run.txt", names.Replace(w.ok(release("--dry-run")...)))
		}
		var plan releaseOutput
		w.json(&plan, release("--dry-run", "--handler", "other")...)
		if plan.Sent != 0 || plan.Kept != 4 || plan.Groups == nil || p.lying() != 4 {
			w.Errorf("%+v, %d in the queue", plan, p.lying())
		}
		w.require(w.run(release("--reason", "x")...), ExitRefused, "release 4 messages from redis://", "--yes")
		w.require(w.answer("n\n", release("--reason", "x")...), ExitRefused, "not confirmed")
		w.require(w.run(release("--reason", "x", "--yes", "--wait", "100ms")...), ExitPartial,
			"1 message sent, 0 of them processed", "see that the consumer runs")
		if p.lying() != 3 {
			w.Errorf("%d in the queue", p.lying())
		}

		p.broken.Store(true)
		p.consume()
		w.require(w.run(release("--reason", "x", "--yes", "--event", ids[2])...), ExitPartial, "1 message sent",
			"given up again", "still no address", "repair the consumer")
		w.await("the first is given up again", func() bool { return len(p.deadIDs()) == 4 })
		p.broken.Store(false)
		p.park(ids[0], "ada") // as its consumer does
		p.park(ids[2], "bob")
		file := filepath.Join(w.TempDir(), "fixed.json")
		must(w, os.WriteFile(file, []byte(`{"to":"eve@example.com"}`), 0o600))
		edit := release("--reason", "wrong address", "--event", ids[3], "--edit", file)
		w.require(w.run(append(edit, "--dry-run")...), ExitOK, `-   "to": "eve"`, `+   "to": "eve@example.com"`)
		w.require(w.answer("y\n", edit...), ExitOK, `-   "to": "eve"`, "1 message sent, 1 of them processed",
			"3 messages not selected")
		w.require(w.run(append(edit, "--yes")...), ExitPartial, "1 event is not in the queue: "+ids[3])
		w.require(w.answer("y\n", release("--reason", "repaired")...), ExitOK, "3 messages sent, 3 of them processed")
		if p.lying() != 0 {
			w.Errorf("%d in the queue", p.lying())
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.handled) != 4 || p.handled[0] != ids[3]+` {"to":"eve@example.com"}` {
			w.Errorf("handled %v", p.handled)
		}
		w.require(w.run("audit", "--action", "release"), ExitOK, p.topic, "wrong address", "repaired")
		w.require(w.run(release("--reason", "x", "--yes")...), ExitOK, "0 messages sent")
	})
}

func (p *parking) deadIDs() (ids []string) {
	p.Helper()
	list, err := p.in.ListDead(p.Context(), inbox.DeadQuery{})
	must(p, err)
	for _, e := range list {
		ids = append(ids, e.EventID)
	}
	return ids
}

// A database of consumers may have no outbox, and so no audit.
func TestInboxReleaseWithoutAnOutbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newSQLite)
	w.ok("migrate", "up", "--tables", "inbox")
	p := newParking(w)
	p.park(core.NewEventID(), "ada")
	p.consume()
	args := []string{"inbox", "release", "--consumer", "mailer", "--from", p.from, "--reason", "x", "--yes"}
	w.require(w.run(args...), ExitOK, "1 message sent, 1 of them processed", "there is no audit")
}

func TestInboxReleaseUsage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newSQLite)
	for args, want := range map[string]string{
		"--from redis://h/q --reason x":                                        "--consumer is missing",
		"--consumer c --reason x":                                              "--from is missing",
		"--consumer c --from redis://h/q":                                      "--reason is missing",
		"--consumer c --from sqs://h/q --reason x":                             "begins with kafka://",
		"--consumer c --from redis://h --reason x":                             "--from has no queue",
		"--consumer c --from amqp://h/ --reason x":                             "--from has no queue",
		"--consumer c --from redis://h/q --to x --reason x":                    "--to names no broker",
		"--consumer c --from redis://h/q --reason x --limit -1":                "--limit -1 is negative",
		"--consumer c --from redis://h/q --reason x --wait 0s":                 "longer than 0",
		"--consumer c --from redis://h/q --reason x --edit f":                  "name it with --event",
		"--consumer c --from redis://h/q --reason x --event e --edit -":        "give --yes",
		"--consumer c --from redis://h/q --reason x --event e --edit /nowhere": "--edit: open",
	} {
		w.require(w.run(append([]string{"inbox", "release"}, strings.Fields(args)...)...), ExitUsage, want)
	}
	w.ok("migrate", "up", "--tables", "inbox")
	r := w.run("inbox", "release", "--consumer", "c", "--from", "redis://127.0.0.1:1/q", "--dry-run")
	w.require(r, ExitFailed, "refused")
}

func TestReadQueueAddress(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]queueAddress{
		"amqp://u:p@h:5672/q?topology=queue": {"amqp", "amqp://u:p@h:5672?topology=queue", "q", "amqp://h:5672/q"},
		"amqp://h/shop/q":                    {"amqp", "amqp://h/shop", "q", "amqp://h/shop/q"},
		"amqp://h/%2Fshop/a%2Fb":             {"amqp", "amqp://h/%2Fshop", "a/b", "amqp://h//shop/a/b"},
		"kafka://a:1,b:2/q":                  {"kafka", "kafka://a:1,b:2", "q", "kafka://a:1,b:2/q"},
		"redis://h/0/q":                      {"redis", "redis://h/0", "q", "redis://h/0/q"},
		"nats://a,nats://b/q.p?creds=f":      {"nats", "nats://a,b?creds=f", "q.p", "nats://a,b/q.p"},
	} {
		if got, err := readQueueAddress(address); got != want || err != nil {
			t.Errorf("%s: %+v, %v; want %+v", address, got, err, want)
		}
	}
}
