package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// historian counts the calls for the history, and fails them on demand.
type historian struct {
	*outboxtest.Repository
	added, set, counted atomic.Int64
	fail                atomic.Pointer[error]
}

func (h *historian) AddHistory(ctx context.Context, counts []core.HistoryCounts) (bool, error) {
	h.added.Add(1)
	if err := h.fail.Load(); err != nil {
		return false, *err
	}
	return h.Repository.AddHistory(ctx, counts)
}

func (h *historian) SetHistory(ctx context.Context, b core.Backlog) error {
	h.set.Add(1)
	return h.Repository.SetHistory(ctx, b)
}

func (h *historian) Backlog(ctx context.Context, limit int) (core.Backlog, error) {
	h.counted.Add(1)
	return h.Repository.Backlog(ctx, limit)
}

// historyOf adds up the slots of the last day.
func (h *historian) historyOf(t *testing.T, topic string) (sum core.HistoryCounts, slots []core.HistoryEntry) {
	t.Helper()
	slots, err := h.History(t.Context(), 24*time.Hour, topic)
	must(t, err)
	for _, e := range slots {
		sum.Published, sum.Refused, sum.Died = sum.Published+e.Published, sum.Refused+e.Refused, sum.Died+e.Died
	}
	return sum, slots
}

// Relays write down what they did once a minute, and one of them counts what waits in each slot.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &historian{Repository: outboxtest.NewRepository()}
		refuse := errors.New("no such order")
		pub := core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
			switch d.Type {
			case "refused":
				return core.Transient(refuse)
			case "poison":
				return core.Permanent(refuse)
			case "away":
				return core.Unavailable(refuse)
			}
			return nil
		})
		cfg := core.Config{Repository: repo, Publisher: pub, Relay: relay.Config{
			Retry: relay.RetryPolicy{BaseDelay: 24 * time.Hour, MaxDelay: 24 * time.Hour},
		}}
		ob, stop := runOutbox(t, cfg)
		_, stopOther := runOutbox(t, cfg)
		publish := func(topic, typ string, n int) {
			for range n {
				must(t, publishTx(t.Context(), repo, ob, core.Event{Type: typ, Topic: topic, Data: 1}))
			}
		}
		publish("orders", "sent", 5)
		publish("orders", "refused", 2)
		publish("orders", "poison", 1)
		publish("mails", "sent", 3)
		publish("away", "away", 1)
		if n := repo.added.Load(); n != 0 {
			t.Errorf("the history was written %d times without waiting", n)
		}
		time.Sleep(61 * time.Second)
		for topic, want := range map[string]core.HistoryCounts{
			"orders": {Published: 5, Refused: 2, Died: 1}, "mails": {Published: 3}, "away": {},
			"": {Published: 8, Refused: 2, Died: 1},
		} {
			if got, _ := repo.historyOf(t, topic); got != want {
				t.Errorf("the history of %q is %+v, want %+v", topic, got, want)
			}
		}
		time.Sleep(time.Hour)
		if n := repo.added.Load(); n < 120 || n > 124 {
			t.Errorf("two relays wrote %d times in 61 minutes, want once a minute each", n)
		}
		_, slots := repo.historyOf(t, "")
		if n, c := repo.set.Load(), repo.counted.Load(); int(n) != len(slots) || n < 12 || n > 14 || c != n {
			t.Errorf("in %d slots what waits was counted %d times and set %d times", len(slots), c, n)
		}
		for _, e := range slots {
			if !e.Counted || e.Backlog.Pending != 3 || e.Backlog.Dead != 1 {
				t.Errorf("what waits is %+v", e)
			}
		}
		publish("mails", "sent", 1)
		synctest.Wait()
		stop()
		stopOther()
		if got, _ := repo.historyOf(t, "mails"); got.Published != 4 {
			t.Errorf("after the end of the relay the history has %+v", got)
		}
	})
}

// Relays that begin together write the history at different times.
func TestHistoryIsNotWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const relays = 20
		repo := &historian{Repository: outboxtest.NewRepository()}
		for range relays {
			_, _ = runOutbox(t, core.Config{Repository: repo, Publisher: &outboxtest.Publisher{}})
		}
		var most int64
		for range 120 {
			before := repo.added.Load()
			time.Sleep(time.Second)
			synctest.Wait()
			most = max(most, repo.added.Load()-before)
		}
		if n := repo.added.Load(); n != 2*relays || most > relays/2 {
			t.Errorf("%d relays wrote %d times in two minutes, up to %d in one second", relays, n, most)
		}
	})
}

// Of many topics some are counted apart. A topic that is idle leaves its place.
func TestHistoryOfManyTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &historian{Repository: outboxtest.NewRepository()}
		ob, _ := runOutbox(t, core.Config{Repository: repo})
		publish := func(from, to int) {
			for i := from; i < to; i++ {
				must(t, publishTx(t.Context(), repo, ob, core.Event{Type: "e", Topic: fmt.Sprint("t", i), Data: 1}))
			}
			time.Sleep(2 * time.Minute)
		}
		apart := func() (n int) {
			for i := range 60 {
				if sum, _ := repo.historyOf(t, fmt.Sprint("t", i)); sum.Published > 0 {
					n++
				}
			}
			return n
		}
		publish(0, 30)
		sum, _ := repo.historyOf(t, "")
		equal(t, sum.Published, 30, "all topics")
		equal(t, apart(), 20, "topics that are counted apart")
		time.Sleep(2 * time.Hour)
		publish(30, 40)
		equal(t, apart(), 30, "topics that are counted apart after others were idle")
	})
}

// A relay that cannot write the history goes on publishing, says so once, and loses no count.
func TestHistoryFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &historian{Repository: outboxtest.NewRepository()}
		denied := errors.New("permission denied for table outbox_history")
		repo.fail.Store(&denied)
		var log bytes.Buffer
		ob, stop := runOutbox(t, core.Config{Repository: repo, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		must(t, publishTx(t.Context(), repo, ob, core.Event{Type: "e", Topic: "orders", Data: 1}))
		time.Sleep(time.Hour)
		if n := repo.added.Load(); n > 7 {
			t.Errorf("the history was tried %d times in an hour", n)
		}
		equal(t, strings.Count(log.String(), "permission denied"), 1, "lines in the log")
		must(t, publishTx(t.Context(), repo, ob, core.Event{Type: "e", Topic: "orders", Data: 1}))
		repo.fail.Store(nil)
		time.Sleep(11 * time.Minute)
		sum, _ := repo.historyOf(t, "orders")
		equal(t, sum.Published, 2, "events after the right was granted")
		stop()
	})
}
