package core_test

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
)

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
		rounds := core.Rounds(a)
		some(a)
		time.Sleep(10 * time.Minute)
		if r := core.Rounds(a) - rounds; r > 200 {
			t.Errorf("%d rounds of the poller in ten minutes", r)
		}
		for _, row := range repo.Rows() {
			if row.Status != outboxtest.StatusDone && (row.Attempts > 0 || !row.LeaseUntil.IsZero()) {
				t.Fatalf("a row is held, or has spent an attempt: %+v", row)
			}
		}
		stopA()
		a, stopA = runOutbox(t, cfg)
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
		ob, _ := runOutbox(t, core.Config{Repository: repo, Publisher: pub, Workers: 1})
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
		tried, rounds := len(pub.Attempts()), core.Rounds(running)
		repo.publish(t, running, acme...)
		time.Sleep(10 * time.Minute)
		equal(t, len(pub.Attempts())-tried, 0, "probes with events of a paused tenant")
		if n := core.Rounds(running) - rounds; n > 700 {
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
		rounds, tried := core.Rounds(ob), len(pub.Attempts())
		time.Sleep(10 * time.Minute)
		equal(t, len(pub.Attempts())-tried, 0, "tries during the pause")
		if n := core.Rounds(ob) - rounds; n > 200 {
			t.Errorf("%d rounds of the poller in ten minutes", n)
		}
		resume(t, ob, core.ResumeRequest{Tenant: "acme"})
		time.Sleep(time.Second)
		equal(t, acceptedOf(pub, "acme"), 3, "arrived")
	})
}
