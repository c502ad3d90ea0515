package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// pausing is a table whose reads of what operators have set are counted and can fail.
type pausing struct {
	*outboxtest.Repository
	reads atomic.Int64
	fail  atomic.Pointer[error]
}

func (p *pausing) Settings(ctx context.Context) (core.Settings, error) {
	p.reads.Add(1)
	if err := p.fail.Load(); err != nil {
		return core.Settings{}, *err
	}
	return p.Repository.Settings(ctx)
}

func (p *pausing) publish(t *testing.T, ob *core.Outbox, events ...core.Event) {
	t.Helper()
	must(t, publishTx(t.Context(), p, ob, events...))
}

func pause(t *testing.T, ob *core.Outbox, req core.PauseRequest) {
	t.Helper()
	req.Actor, req.Reason = "ann", "broker upgrade"
	must(t, ob.Pause(t.Context(), req))
}

func resume(t *testing.T, ob *core.Outbox, req core.ResumeRequest) {
	t.Helper()
	req.Actor, req.Reason = "bob", "upgraded"
	if resumed, err := ob.Resume(t.Context(), req); err != nil || !resumed {
		t.Fatalf("resumed %v, %v", resumed, err)
	}
}

// accepted counts the events that a topic got.
func accepted(pub *outboxtest.Publisher, topic string) (n int) {
	for _, d := range pub.Accepted() {
		if d.Topic == topic {
			n++
		}
	}
	return n
}

// A paused topic gets nothing, neither from commits nor from the table, while others go on. Two
// relays follow a pause that a third process made, a restart keeps it, and after the end everything
// arrives in the order of the keys.
func TestPause(t *testing.T) {
	for name, target := range map[string]core.PauseRequest{"topic": {Topic: "orders"}, "all": {All: true}} {
		bubble(t, name, func(t *testing.T) {
			repo, pub := &pausing{Repository: outboxtest.NewRepository()}, &outboxtest.Publisher{}
			operator := newOutbox(t, core.Config{Repository: repo})
			var claimed, fellBack atomic.Int64
			cfg := core.Config{Repository: repo, Publisher: pub, Observer: &core.Observer{
				Claimed:  func(i core.ClaimInfo) { claimed.Add(int64(i.Rows)) },
				FellBack: func(string, core.FallbackReason) { fellBack.Add(1) },
			}}
			a, stopA := runOutbox(t, cfg)
			runOutbox(t, cfg)
			n := 0
			some := func(by *core.Outbox) {
				for range 12 {
					repo.publish(t, by, core.Event{Type: "e", Topic: "orders", Key: fmt.Sprint(n % 3), Data: n},
						core.Event{Type: "e", Topic: "orders", Data: n},
						core.Event{Type: "e", Topic: "mails", Data: n})
					n++
				}
			}
			some(a)
			synctest.Wait()
			if got := accepted(pub, "orders"); got != 2*n {
				t.Fatalf("%d of %d before the pause", got, 2*n)
			}
			before := n
			pause(t, operator, target)
			time.Sleep(3 * time.Second)
			claimed.Store(0)
			some(a)
			some(operator) // of a process without a relay
			time.Sleep(5 * time.Minute)
			mails := n
			if target.All {
				mails = before
			}
			if o, m := accepted(pub, "orders"), accepted(pub, "mails"); o != 2*before || m != mails {
				t.Errorf("paused: %d orders, %d mails, want %d and %d", o, m, 2*before, mails)
			}
			for _, row := range repo.Rows() {
				if row.Status != outboxtest.StatusDone && (row.Attempts > 0 || !row.LeaseUntil.IsZero()) {
					t.Fatalf("a row is held, or has spent an attempt: %+v", row)
				}
			}
			stopA()
			a, _ = runOutbox(t, cfg)
			some(a)
			time.Sleep(time.Minute)
			equal(t, accepted(pub, "orders"), 2*before, "after a restart: orders")
			if target.All && claimed.Load() > 0 || fellBack.Load() > 0 {
				t.Errorf("%d rows were claimed, and %d leased with their insert, in vain", claimed.Load(),
					fellBack.Load())
			}
			resume(t, operator, core.ResumeRequest{All: target.All, Topic: target.Topic})
			time.Sleep(4 * time.Second)
			if o, m := accepted(pub, "orders"), accepted(pub, "mails"); o != 2*n || m != n {
				t.Errorf("resumed: %d orders, %d mails, want %d and %d", o, m, 2*n, n)
			}
			inOrder(t, pub.Accepted())
		})
	}
}

// A pause ends by itself. Events that a worker has not begun go back to the table when it begins,
// and an event whose transaction was open then is held back too.
func TestPauseUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := &pausing{Repository: outboxtest.NewRepository()}, &outboxtest.Publisher{}
		ob, _ := runOutbox(t, core.Config{Repository: repo, Publisher: pub, Relay: relay.Config{Workers: 1}})
		pub.Block()
		open := make(chan struct{})
		committed := make(chan error, 1)
		go func() {
			committed <- repo.Transactor().RunInTx(context.Background(), func(ctx context.Context, tx core.Tx) error {
				_, err := ob.Publish(ctx, tx, core.Event{Type: "a", Key: "open", Data: 1})
				<-open
				return err
			})
		}()
		for i := range 10 {
			repo.publish(t, ob, core.Event{Type: "a", Key: "k", Data: i})
		}
		synctest.Wait() // the worker has the first one
		pause(t, ob, core.PauseRequest{Topic: "a", Until: time.Now().Add(10 * time.Second)})
		synctest.Wait()
		pub.Unblock()
		close(open)
		must(t, <-committed)
		time.Sleep(9 * time.Second)
		equal(t, len(pub.Accepted()), 1, "arrived during the pause (the one that was under way)")
		if list, err := ob.Pauses(t.Context()); err != nil || len(list) != 1 || list[0].Left > time.Second {
			t.Errorf("pauses %+v, %v", list, err)
		}
		time.Sleep(1500 * time.Millisecond)
		equal(t, len(pub.Accepted()), 11, "arrived after the pause")
		inOrder(t, pub.Accepted())
	})
}

// Drain leaves paused events alone, and a stopped destination is not probed while it is paused.
func TestPauseDrainAndProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := &pausing{Repository: outboxtest.NewRepository()}, &outboxtest.Publisher{}
		ob := newOutbox(t, core.Config{Repository: repo, Publisher: pub, Logger: slog.New(slog.DiscardHandler)})
		repo.publish(t, ob, core.Event{Type: "a", Key: "k"}, core.Event{Type: "a"}, core.Event{Type: "b"})
		pause(t, ob, core.PauseRequest{Topic: "a"})
		if err := ob.Drain(t.Context()); err != nil || len(pub.Accepted()) != 1 {
			t.Fatalf("Drain: %v, %d arrived, want that of b", err, len(pub.Accepted()))
		}
		resume(t, ob, core.ResumeRequest{Topic: "a"})

		pub.Outage("a", nil)
		running, _ := runOutbox(t, core.Config{Repository: repo, Publisher: pub})
		time.Sleep(time.Minute)
		if len(running.Stopped()) != 1 {
			t.Fatal("the destination is not stopped")
		}
		pause(t, running, core.PauseRequest{All: true})
		time.Sleep(time.Second)
		tried := len(pub.Attempts())
		rounds := relay.Rounds(running)
		time.Sleep(10 * time.Minute)
		equal(t, len(pub.Attempts())-tried, 0, "probes of a paused destination")
		if n := relay.Rounds(running) - rounds; n > 700 {
			t.Errorf("%d rounds of the poller in ten minutes with everything paused", n)
		}
		pub.Restore("a")
		resume(t, running, core.ResumeRequest{All: true})
		time.Sleep(time.Minute)
		equal(t, len(pub.Accepted()), 3, "arrived")
	})
}

// While the table of pauses cannot be read a relay publishes nothing, as while the database is away,
// and says so. It goes on by itself, and heeds what was paused meanwhile.
func TestPausesCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		denied := errors.New("permission denied for table outbox_pause")
		repo, pub := &pausing{Repository: outboxtest.NewRepository()}, &outboxtest.Publisher{}
		repo.fail.Store(&denied)
		var log bytes.Buffer
		ob, stop := runOutbox(t, core.Config{
			Repository: repo, Publisher: pub, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		repo.publish(t, ob, core.Event{Type: "a"}, core.Event{Type: "b"})
		time.Sleep(time.Minute)
		equal(t, len(pub.Accepted()), 0, "published before the pauses were read")
		if h := ob.Health(t.Context()); !h.Degraded() || !strings.Contains(fmt.Sprint(h.Problems), denied.Error()) {
			t.Errorf("health %+v", h)
		}
		wantErr(t, ob.Drain(t.Context()), denied, "Drain")
		pause(t, newOutbox(t, core.Config{Repository: repo.Repository}), core.PauseRequest{Topic: "a"})
		repo.fail.Store(nil)
		time.Sleep(3 * time.Second)
		if got := pub.Accepted(); len(got) != 1 || got[0].Topic != "b" {
			t.Errorf("published %+v, want that of b", got)
		}

		repo.fail.Store(&denied)
		time.Sleep(3 * time.Second) // the next look fails
		repo.publish(t, ob, core.Event{Type: "b"})
		time.Sleep(time.Minute)
		equal(t, len(pub.Accepted()), 1, "published while the pauses could not be read")
		repo.fail.Store(nil)
		time.Sleep(3 * time.Second)
		equal(t, len(pub.Accepted()), 2, "published afterwards")
		stop()
		if !strings.Contains(log.String(), "what operators have set cannot be read") ||
			!strings.Contains(log.String(), "paused: the events wait") {
			t.Errorf("the log:\n%s", log.String())
		}
	})
}

// hangingRelays is a table whose relays, which share the rates, cannot be read, and the read does
// not return.
type hangingRelays struct {
	*outboxtest.Repository
	hangs atomic.Bool
}

func (h *hangingRelays) Relays(ctx context.Context) ([]core.RelayStatus, error) {
	if h.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.Repository.Relays(ctx)
}

// A pause does not wait until the rates are shared.
func TestPauseBesideHangingRelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := &hangingRelays{Repository: outboxtest.NewRepository()}, &outboxtest.Publisher{}
		ob, _ := runOutbox(t, core.Config{Repository: repo, Publisher: pub})
		must(t, ob.SetRate(t.Context(), core.RateRequest{Topic: "b", PerSecond: 1, Actor: "ann", Reason: "test"}))
		synctest.Wait()
		repo.hangs.Store(true)
		pause(t, ob, core.PauseRequest{Topic: "a"})
		synctest.Wait()
		must(t, publishTx(t.Context(), repo, ob, core.Event{Type: "a"}))
		synctest.Wait()
		equal(t, len(pub.Accepted()), 0, "events were published of a topic that is paused")
	})
}

// A bad request is refused before anything is stored.
func TestPauseRequests(t *testing.T) {
	repo := outboxtest.NewRepository()
	ob := newOutbox(t, core.Config{Repository: repo})
	for name, req := range map[string]core.PauseRequest{
		"nothing":    {Actor: "a", Reason: "r"},
		"both":       {All: true, Topic: "t", Actor: "a", Reason: "r"},
		"long topic": {Topic: strings.Repeat("t", 250), Actor: "a", Reason: "r"},
		"control":    {Topic: "a\n", Actor: "a", Reason: "r"},
		"two":        {Topic: "t", Tenant: "t", Actor: "a", Reason: "r"},
		"all of one": {All: true, Tenant: "t", Actor: "a", Reason: "r"},
		"long one":   {Tenant: strings.Repeat("t", 65), Actor: "a", Reason: "r"},
		"a control":  {Tenant: "a\n", Actor: "a", Reason: "r"},
		"nobody":     {Tenant: "t", Reason: "r"},
		"no actor":   {Topic: "t", Reason: "r"},
		"no reason":  {Topic: "t", Actor: "a"},
		"past":       {Topic: "t", Actor: "a", Reason: "r", Until: time.Now().Add(-time.Second)},
		"far":        {Topic: "t", Actor: "a", Reason: "r", Until: time.Now().AddDate(11, 0, 0)},
	} {
		for _, req.DryRun = range []bool{true, false} {
			wantErr(t, ob.Pause(t.Context(), req), core.ErrInvalidRequest, "%s, dry run %t", name, req.DryRun)
			if !req.Until.IsZero() {
				continue
			}
			_, err := ob.Resume(t.Context(), core.ResumeRequest{
				All: req.All, Topic: req.Topic, Tenant: req.Tenant, Actor: req.Actor, Reason: req.Reason,
				DryRun: req.DryRun,
			})
			wantErr(t, err, core.ErrInvalidRequest, "resume, %s, dry run %t", name, req.DryRun)
		}
	}
	if list, err := ob.Pauses(t.Context()); err != nil || len(list)+len(repo.Audits()) > 0 {
		t.Errorf("stored %+v, %v", list, err)
	}
}

// A dry run answers as the request would, and changes nothing.
func TestDryRunsOfSettings(t *testing.T) {
	repo := outboxtest.NewRepository()
	ob := newOutbox(t, core.Config{Repository: repo})
	ctx := t.Context()
	wants := func(want bool) {
		t.Helper()
		for _, topic := range []string{"a", "b"} {
			ends := core.ResumeRequest{Topic: topic, Actor: "a", Reason: "r", DryRun: true}
			if paused, err := ob.Resume(ctx, ends); err != nil || paused != (want && topic == "a") {
				t.Errorf("a dry run resumes %s: %t, %v", topic, paused, err)
			}
		}
	}
	wants(false)
	req := core.PauseRequest{Topic: "a", Actor: "a", Reason: "r", DryRun: true}
	rate := core.RateRequest{Topic: "a", PerSecond: 1, Actor: "a", Reason: "r", DryRun: true}
	bad := rate
	bad.PerSecond = -1
	noError(t, errors.Join(ob.Pause(ctx, req), ob.SetRate(ctx, rate)))
	wantErr(t, ob.SetRate(ctx, bad), core.ErrInvalidRequest, "a bad rate")
	wants(false)
	if rates, err := ob.Rates(ctx); err != nil || len(rates)+len(repo.Audits()) > 0 {
		t.Errorf("dry runs have stored %+v and %+v, %v", rates, repo.Audits(), err)
	}
	req.DryRun = false
	noError(t, ob.Pause(ctx, req))
	wants(true)
	if held, err := ob.Pauses(ctx); err != nil || len(held) != 1 || len(repo.Audits()) != 1 {
		t.Errorf("dry runs have left %+v and %+v, %v", held, repo.Audits(), err)
	}
}

// A pause or a rate is refused if the table has as many as a relay reads.
func TestNoMoreSettingsThanRelaysRead(t *testing.T) {
	repo := outboxtest.NewRepository()
	ob := newOutbox(t, core.Config{Repository: repo})
	ctx := t.Context()
	pause := func(n int) error {
		return ob.Pause(ctx, core.PauseRequest{Topic: fmt.Sprint("t", n), Actor: "a", Reason: "r"})
	}
	rate := func(n int, perSecond float64) error {
		req := core.RateRequest{Topic: fmt.Sprint("t", n), PerSecond: perSecond, Actor: "a", Reason: "r"}
		return ob.SetRate(ctx, req)
	}
	for n := range 1000 {
		must(t, errors.Join(pause(n), rate(n, 1)))
	}
	if err := errors.Join(pause(7), rate(7, 2), rate(2000, 0)); err != nil {
		t.Errorf("of a topic that has one: %v", err)
	}
	for what, err := range map[string]error{"pause": pause(1000), "rate": rate(1000, 1)} {
		wantErr(t, err, core.ErrInvalidRequest, "another %s", what)
	}
	must(t, errOf(ob.Resume(ctx, core.ResumeRequest{Topic: "t7", Actor: "a", Reason: "r"})))
	if err := errors.Join(rate(7, 0), pause(1000), rate(1000, 1)); err != nil {
		t.Errorf("in the place of one: %v", err)
	}
}

// acceptedOf counts the events of a tenant that arrived.
func acceptedOf(pub *outboxtest.Publisher, tenant string) (n int) {
	for _, d := range pub.Accepted() {
		if d.TenantID == tenant {
			n++
		}
	}
	return n
}

// Nothing of a paused tenant is published, neither from commits nor from the table, while the
// events of others and of no tenant go on, in the same topics and under the same keys. No relay
// claims a row of the tenant in vain or polls for one, and a restart changes nothing. After the end
// everything arrives in the order of the keys.
func TestPauseTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := &pausing{Repository: outboxtest.NewRepository()}, &outboxtest.Publisher{}
		operator := newOutbox(t, core.Config{Repository: repo})
		var claimed, fellBack atomic.Int64
		var log bytes.Buffer
		cfg := core.Config{Repository: repo, Publisher: pub, Observer: &core.Observer{
			Claimed:  func(i core.ClaimInfo) { claimed.Add(int64(i.Rows)) },
			FellBack: func(string, core.FallbackReason) { fellBack.Add(1) },
		}}
		logged := cfg
		logged.Logger = slog.New(slog.NewTextHandler(&log, nil))
		a, stopA := runOutbox(t, logged)
		runOutbox(t, cfg)
		n := 0
		some := func(by *core.Outbox) {
			for range 12 {
				for _, tenant := range []string{"acme", "", "Acme"} {
					repo.publish(t, by,
						core.Event{Type: "e", Topic: "a", TenantID: tenant, Key: tenant + fmt.Sprint(n%3), Data: n},
						core.Event{Type: "e", Topic: "b", TenantID: tenant, Data: n})
				}
				n++
			}
		}
		some(a)
		synctest.Wait()
		pause(t, operator, core.PauseRequest{Tenant: "acme"})
		time.Sleep(3 * time.Second)
		before := n
		claimed.Store(0)
		some(a)
		time.Sleep(5 * time.Minute)
		acme, none, other := acceptedOf(pub, "acme"), acceptedOf(pub, ""), acceptedOf(pub, "Acme")
		if acme != 2*before || none != 2*n || other != 2*n {
			t.Errorf("paused: %d of the tenant, %d of none, %d of another, want %d, %d and %[5]d", acme, none, other,
				2*before, 2*n)
		}
		if claimed.Load()+fellBack.Load() > 0 {
			t.Errorf("%d rows were claimed, and %d leased with their insert, in vain", claimed.Load(), fellBack.Load())
		}
		some(operator) // of a process without a relay
		time.Sleep(time.Minute)
		equal(t, claimed.Load(), 12*4, "rows were claimed of a process without a relay")
		rounds := relay.Rounds(a)
		some(a)
		time.Sleep(10 * time.Minute)
		if r := relay.Rounds(a) - rounds; r > 200 {
			t.Errorf("%d rounds of the poller in ten minutes", r)
		}
		for _, row := range repo.Rows() {
			if row.Status != outboxtest.StatusDone && (row.Attempts > 0 || !row.LeaseUntil.IsZero()) {
				t.Fatalf("a row is held, or has spent an attempt: %+v", row)
			}
		}
		stopA()
		a, _ = runOutbox(t, cfg)
		some(a)
		time.Sleep(time.Minute)
		equal(t, acceptedOf(pub, "acme"), 2*before, "after a restart: events of the tenant")
		resume(t, operator, core.ResumeRequest{Tenant: "acme"})
		time.Sleep(4 * time.Second)
		equal(t, len(pub.Accepted()), 6*n, "resumed: events")
		inOrder(t, pub.Accepted())
		if text := log.String(); !strings.Contains(text, "tenant=acme actor=ann") {
			t.Errorf("the pause is not logged:\n%s", text)
		}
	})
}

// Events of a tenant that a worker has not begun go back to the table when the pause begins, and an
// event whose transaction was open then is held back too. When the pause ends by its time, they
// arrive in the order of their keys.
func TestPauseTenantHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := &pausing{Repository: outboxtest.NewRepository()}, &outboxtest.Publisher{}
		ob, _ := runOutbox(t, core.Config{Repository: repo, Publisher: pub, Relay: relay.Config{Workers: 1}})
		pub.Block()
		open := make(chan struct{})
		committed := make(chan error, 1)
		go func() {
			committed <- repo.Transactor().RunInTx(context.Background(), func(ctx context.Context, tx core.Tx) error {
				_, err := ob.Publish(ctx, tx, core.Event{Type: "a", TenantID: "acme", Key: "open"})
				<-open
				return err
			})
		}()
		for i := range 10 {
			repo.publish(t, ob, core.Event{Type: "a", TenantID: "acme", Key: "k", Data: i},
				core.Event{Type: "a", TenantID: "acme", Data: i}, core.Event{Type: "a", TenantID: "other", Data: i})
		}
		synctest.Wait() // the worker has the first one
		pause(t, ob, core.PauseRequest{Tenant: "acme", Until: time.Now().Add(10 * time.Second)})
		synctest.Wait()
		pub.Unblock()
		close(open)
		must(t, <-committed)
		time.Sleep(9 * time.Second)
		if acme, other := acceptedOf(pub, "acme"), acceptedOf(pub, "other"); acme != 1 || other != 10 {
			t.Errorf("%d and %d arrived during the pause, want the one that was under way and the 10 of another tenant",
				acme, other)
		}
		time.Sleep(1500 * time.Millisecond)
		equal(t, acceptedOf(pub, "acme"), 21, "arrived after the pause")
		inOrder(t, pub.Accepted())
	})
}

// Drain leaves the events of a paused tenant alone. A stopped destination is not probed with them,
// and no relay polls again and again for an event to probe with.
func TestPauseTenantDrainAndProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := &pausing{Repository: outboxtest.NewRepository()}, &outboxtest.Publisher{}
		ob := newOutbox(t, core.Config{Repository: repo, Publisher: pub, Logger: slog.New(slog.DiscardHandler)})
		acme := []core.Event{{Type: "a", TenantID: "acme", Key: "k"}, {Type: "a", TenantID: "acme"}}
		repo.publish(t, ob, append(slices.Clone(acme), core.Event{Type: "a", TenantID: "other"})...)
		pause(t, ob, core.PauseRequest{Tenant: "acme"})
		if err := ob.Drain(t.Context()); err != nil || len(pub.Accepted()) != 1 {
			t.Fatalf("Drain: %v, %d arrived, want that of another tenant", err, len(pub.Accepted()))
		}
		resume(t, ob, core.ResumeRequest{Tenant: "acme"})

		pub.Outage("a", nil)
		running, _ := runOutbox(t, core.Config{Repository: repo, Publisher: pub})
		time.Sleep(time.Minute)
		if len(running.Stopped()) != 1 {
			t.Fatal("the destination is not stopped")
		}
		pause(t, running, core.PauseRequest{Tenant: "acme"})
		time.Sleep(3 * time.Second)
		tried, rounds := len(pub.Attempts()), relay.Rounds(running)
		repo.publish(t, running, acme...)
		time.Sleep(10 * time.Minute)
		equal(t, len(pub.Attempts())-tried, 0, "probes with events of a paused tenant")
		if n := relay.Rounds(running) - rounds; n > 700 {
			t.Errorf("%d rounds of the poller in ten minutes", n)
		}
		pub.Restore("a")
		repo.publish(t, running, core.Event{Type: "a", TenantID: "other"}) // a probe
		time.Sleep(10 * time.Second)
		if acme, other := acceptedOf(pub, "acme"), acceptedOf(pub, "other"); acme != 0 || other != 2 {
			t.Errorf("%d of a paused tenant arrived, and %d of another, want 0 and 2", acme, other)
		}
		resume(t, running, core.ResumeRequest{Tenant: "acme"})
		time.Sleep(time.Second)
		equal(t, acceptedOf(pub, "acme"), 4, "arrived")
	})
}

// A failure that is tried again during the pause of its tenant asks for no poll, and spends no
// attempt before the end of the pause.
func TestPauseTenantRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := &pausing{Repository: outboxtest.NewRepository()}, &outboxtest.Publisher{}
		pub.FailNext(3, errors.New("refused"))
		ob, _ := runOutbox(t, core.Config{Repository: repo, Publisher: pub})
		for range 3 {
			repo.publish(t, ob, core.Event{Type: "a", TenantID: "acme"})
		}
		synctest.Wait()
		pause(t, ob, core.PauseRequest{Tenant: "acme"})
		time.Sleep(time.Second)
		rounds, tried := relay.Rounds(ob), len(pub.Attempts())
		time.Sleep(10 * time.Minute)
		equal(t, len(pub.Attempts())-tried, 0, "tries during the pause")
		if n := relay.Rounds(ob) - rounds; n > 200 {
			t.Errorf("%d rounds of the poller in ten minutes", n)
		}
		resume(t, ob, core.ResumeRequest{Tenant: "acme"})
		time.Sleep(time.Second)
		equal(t, acceptedOf(pub, "acme"), 3, "arrived")
	})
}
