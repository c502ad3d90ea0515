package suite_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
)

// mistakes are possible errors in an adapter, each with the scenarios that must fail for it.
var mistakes = map[string]struct {
	wrong   wrongAdapter
	noticed []string
}{
	"hot before the commit": {
		wrongAdapter{onOutcome: func(_ context.Context, _ core.Tx, fn func(core.Outcome)) { fn(core.Committed) }},
		[]string{
			"Commit/is reported once, in order, when the rows are visible", "Commit/an error rolls back",
			"Text/RELEASE keeps it", "Relay/publishes nothing of a transaction that is open",
		},
	},
	"savepoints are not followed": {
		wrongAdapter{onOutcome: atTheEnd},
		[]string{
			"Savepoint/a nested error rolls back what is nested", "Savepoint/three deep",
			"Savepoint/many, one after the other", "Text/ROLLBACK TO drops what came after the savepoint",
			"Text/names in quotes and in another case", "Random/programs of savepoints",
		},
	},
	"savepoints are followed in the context": {
		wrongAdapter{onOutcome: byContext, nested: true},
		[]string{"Savepoint/the outer context is used inside, and what is nested fails"},
	},
	"an outcome is told twice": {
		wrongAdapter{onOutcome: func(_ context.Context, tx core.Tx, fn func(core.Outcome)) {
			tx.OnOutcome(fn)
			tx.OnOutcome(fn)
		}},
		[]string{
			"Commit/an error rolls back", "Savepoint/a nested panic rolls back what is nested",
			"Commit/a closure that is run again", "Random/programs of savepoints",
		},
	},
	"an unknown commit counts as one": {
		wrongAdapter{onOutcome: func(_ context.Context, tx core.Tx, fn func(core.Outcome)) {
			tx.OnOutcome(func(o core.Outcome) {
				if o == core.Unknown {
					o = core.Committed
				}
				fn(o)
			})
		}},
		[]string{
			"Unknown/the answer is lost and it has not committed", "Unknown/the answer is lost and it has committed",
			"Unknown/the relay publishes what is there and nothing else", "Text/ROLLBACK behind the adapter's back",
		},
	},
	"a commit that failed is success": {
		wrongAdapter{commit: func(err error) error {
			if errors.Is(err, core.ErrCommitUnknown) {
				return nil
			}
			return err
		}},
		[]string{"Unknown/the answer is lost and it has not committed", "Unknown/the closure is run again after none"},
	},
	"nothing is told of what was rolled back": {
		wrongAdapter{onOutcome: func(_ context.Context, tx core.Tx, fn func(core.Outcome)) {
			tx.OnOutcome(func(o core.Outcome) {
				if o != core.RolledBack {
					fn(o)
				}
			})
		}},
		[]string{
			"Commit/a panic rolls back and goes on", "Commit/a goroutine that ends inside rolls back",
			"Savepoint/the outer panics after a nested success",
		},
	},
	"an event is written in its first attempt only": {
		wrongAdapter{once: true},
		[]string{
			"Commit/a closure that is run again", "Savepoint/a nested closure that is run again",
			"Relay/publishes the event of a closure that is run again once",
			"Deadlock/the victim's closure is run again",
		},
	},
	"an event is written elsewhere when its transaction is lost": {
		wrongAdapter{elsewhere: true},
		[]string{
			"Commit/no transaction", "Text/COMMIT behind the adapter's back", "Text/COMMIT in a nested transaction",
			"Trouble/a context that ends before a statement", "Trouble/a connection that is lost before a statement",
			"Deadlock/the victim ignores the error",
		},
	},
}

// Every mistake is built into an adapter that is otherwise correct. The named scenarios must then
// fail.
func TestAdapterMistakesAreNoticed(t *testing.T) {
	t.Parallel()
	for name, m := range mistakes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, scenario := range m.noticed {
				t.Run(scenario, func(t *testing.T) {
					t.Parallel()
					group, scenario, _ := strings.Cut(scenario, "/")
					pattern := func(s string) string {
						return "^" + strings.NewReplacer(" ", "_", "'", ".", ",", ".").Replace(s) + "$"
					}
					cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v",
						"-test.run=^TestAdapterWithMistake$/"+pattern(group)+"/"+pattern(scenario))
					cmd.Env = append(os.Environ(), mistakeVariable+"="+name)
					out, err := cmd.CombinedOutput()
					if !strings.Contains(string(out), "--- FAIL: TestAdapterWithMistake/"+group+"/") {
						t.Errorf("the scenario passes (%v):\n%s", err, out)
					}
				})
			}
		})
	}
}

const mistakeVariable = "OUTBOXTEST_MISTAKE"

// TestAdapterWithMistake is the suite on an adapter with the mistake that the environment names.
// Without a mistake the adapter is correct and passes.
func TestAdapterWithMistake(t *testing.T) {
	name := os.Getenv(mistakeVariable)
	if _, ok := mistakes[name]; name != "" && !ok {
		t.Fatalf("no mistake %q", name)
	}
	suite.TestAdapter(t, suite.AdapterHarness{
		Open: func(t *testing.T, cfg core.Config) suite.Adapter {
			a := openInMemory(t, core.MySQL, cfg)
			m := mistakes[name].wrong
			a.Transactor = &wrongTransactor{Transactor: a.Transactor, wrong: m}
			if publish := a.Publish; m.once {
				var seen sync.Map
				a.Publish = func(ctx context.Context, events ...core.Event) error {
					for _, e := range events {
						if _, again := seen.LoadOrStore(e.ID, true); !again {
							if err := publish(ctx, e); err != nil {
								return err
							}
						}
					}
					return nil
				}
			}
			if publish := a.Publish; m.elsewhere {
				a.Publish = func(ctx context.Context, events ...core.Event) error {
					if publish(ctx, events...) == nil {
						return nil
					}
					return a.Transactor.RunInTx(context.Background(),
						func(ctx context.Context, _ core.Tx) error { return publish(ctx, events...) })
				}
			}
			return a
		},
	})
}

// wrongAdapter says which mistakes an adapter has. The zero value is a correct adapter.
type wrongAdapter struct {
	onOutcome func(ctx context.Context, tx core.Tx, fn func(core.Outcome)) // replaces OnOutcome of the transaction
	// onOutcome gets a context of its own in a nested transaction.
	nested bool
	commit func(error) error // changes what RunInTx returns
	// Publish writes an event once, even if its transaction rolls back.
	once bool
	// If an event is refused, Publish writes it in a transaction of its own.
	elsewhere bool
}

type wrongTransactor struct {
	core.Transactor
	wrong wrongAdapter
}

func (w *wrongTransactor) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) error {
	own := &frame{}
	_, inside := core.TxFromContext(ctx)
	err := w.Transactor.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		if outer, ok := tx.(*wrongTx); ok {
			tx = outer.Tx
		}
		if !inside || w.wrong.nested {
			ctx = context.WithValue(ctx, frameKey{}, own)
		}
		wrong := &wrongTx{Tx: tx.(*outboxtest.Tx), ctx: ctx, wrong: w.wrong}
		return fn(core.ContextWithTx(ctx, wrong), wrong)
	})
	if w.wrong.commit != nil && !inside {
		err = w.wrong.commit(err)
	}
	outcome := core.Committed
	if err != nil {
		outcome = core.RolledBack
	}
	if outer, ok := ctx.Value(frameKey{}).(*frame); ok && inside && err == nil {
		outer.fns = append(outer.fns, own.fns...)
		own.fns = nil
	}
	for _, fn := range own.fns {
		fn(outcome)
	}
	return err
}

// frame collects callbacks until a transaction, or a nested one, has ended.
type frame struct{ fns []func(core.Outcome) }

type frameKey struct{}

// atTheEnd calls fn at the end of the outer transaction.
func atTheEnd(ctx context.Context, _ core.Tx, fn func(core.Outcome)) {
	f := ctx.Value(frameKey{}).(*frame)
	f.fns = append(f.fns, fn)
}

// byContext calls fn at the end of the transaction that the context belongs to.
func byContext(ctx context.Context, tx core.Tx, fn func(core.Outcome)) { atTheEnd(ctx, tx, fn) }

// wrongTx embeds a transaction, so that the repository finds it.
type wrongTx struct {
	*outboxtest.Tx
	ctx   context.Context
	wrong wrongAdapter
}

func (t *wrongTx) OnOutcome(fn func(core.Outcome)) {
	if t.wrong.onOutcome != nil {
		t.wrong.onOutcome(t.ctx, t.Tx, fn)
		return
	}
	t.Tx.OnOutcome(fn)
}
