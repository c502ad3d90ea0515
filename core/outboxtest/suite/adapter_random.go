package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

func adapterRandomCases() []adapterCase {
	return []adapterCase{{"programs of savepoints", adapterRandomPrograms}, {"texts", adapterRandomTexts}}
}

// tokens are the parts of texts that only the database can interpret.
var tokens = []string{
	"ROLLBACK", "COMMIT", "END", "ABORT", "ROLLBACK TO s1", "ROLLBACK TO SAVEPOINT s1", "SAVEPOINT s1", "RELEASE s1",
	"BEGIN", "SELECT 1", "SELECT", "1", "(", ")", ";", ";", ";", "'", "'", `"`, "`", "''", "\\", "$$", "$a$", "E", "--",
	"-- ", "#", "/*", "*/", "/*!", "/*M!", "/*!50000 ", "[", "]", " ", "\n", "\r", "\f", "\v", "\t",
	"\u00a0", "\ufeff", "é", "a", "AS", "UPDATE", "outboxtest_booking", "SET", "id", "=",
}

// adapterRandomTexts runs random texts, and lets the database decide how they affect a transaction.
// It requires that no outcome is reported wrongly. Most texts are errors, so some texts begin like
// a statement.
func adapterRandomTexts(a *adapterFixture) {
	if !a.has(a.Booked != nil, nil) { // the database has no tables, and reads no SQL
		return
	}
	seed := a.Seed
	for seed == 0 {
		seed = rand.Uint64()
	}
	ran, harmless, n := 0, 0, 0
	for ; n < cmp.Or(a.Programs, 300) || harmless == 0 && n < 3000; n++ { // a few texts may all be errors
		rng := rand.New(rand.NewPCG(seed, uint64(n)))
		parts := []string{[]string{"", "SELECT 1", "SELECT 1;", "SELECT '", "/*", "--"}[rng.IntN(6)]}
		for range 1 + rng.IntN(7) {
			parts = append(parts, tokens[rng.IntN(len(tokens))], []string{"", " "}[rng.IntN(2)])
		}
		text := strings.Join(parts, "")
		var before string
		after, published := newEvent(), false
		var failed error
		err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, tx core.Tx) error {
			before = a.publish(ctx)
			a.exec(ctx, "SAVEPOINT s1")
			if first := text[0] | 0x20; tx.Dialect() == core.SQLite && (first < 'a' || first > 'z') {
				text = "SELECT 1;" + text // some drivers fail on a text that is only a comment
			}
			failed = a.Exec(ctx, text+"\n")
			published = a.tryPublish(ctx, after) == nil
			return nil // the application ignores the error
		})
		ids := []string{}
		if published {
			ids = append(ids, after.ID)
		}
		if failed == nil {
			ran++
			if err == nil {
				harmless++
			}
		}
		a.Logf("seed %d, %d: %q returned %v, RunInTx %v", seed, n, text, failed, err)
		a.truthful(err, before, ids...)
	}
	a.Logf("count: %d random texts", n)
	a.must(ran > 0 && harmless > 0, "seed %d: %d texts ran, %d transactions of them committed: the texts prove nothing",
		seed, ran, harmless)
	a.whole()
}

// program is one random transaction. It has events between savepoints, which are set and rolled
// back by texts and by nesting. Names differ only in case and quotes. Errors are ignored. The end
// is a commit or a rollback.
type program struct {
	*adapterFixture
	rng   *rand.Rand
	names []string // all names
	set   []string // the names that were set
	log   []string
	ids   []string
}

var errProgram = errors.New("the program rolls back")

// adapterRandomPrograms runs random programs while the relay runs. After each program it requires
// that the reported outcomes are true. At the end it requires that exactly the events in the table
// are published.
func adapterRandomPrograms(a *adapterFixture) {
	seed := a.Seed
	for seed == 0 {
		seed = rand.Uint64()
	}
	a = configuredFixture(a.T, a.AdapterHarness, shortLeases)
	a.runRelay() // the relay is compared with the table only once, at the end
	committed, total, n := 0, 0, 0
	// A few programs may all end without a known commit: then more are run.
	programs := cmp.Or(a.Programs, 300)
	for ; n < programs || committed == 0 && n < 10*programs; n++ {
		p := &program{adapterFixture: a, rng: rand.New(rand.NewPCG(seed, uint64(n)))}
		err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, tx core.Tx) error {
			p.names = savepointNames(tx.Dialect())
			return p.run(ctx, 3+p.rng.IntN(15), 0)
		})
		p.note("the transaction ended with %v", err)
		committed += p.verify(seed, n)
		total += len(p.ids)
	}
	a.Logf("count: %d random programs", n)
	a.must(committed > 0, "seed %d: none of %d events was reported as committed: the programs prove nothing", seed,
		total)
	a.publishedIsStored(seed)
	a.Logf("seed %d: %d of %d events were reported as committed, %d are stored", seed, committed, total,
		len(a.stored()))
}

// savepointNames differ in case and quotes. The database decides which of them are the same.
func savepointNames(d core.Dialect) []string {
	q := `"`
	if d == core.MySQL {
		q = "`"
	}
	return []string{"a", "A", q + "a" + q, q + "A" + q, "b", q + "b" + q, "c"}
}

func (p *program) note(format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf(format, args...))
}

// run runs that many steps. If it returns an error, the transaction is rolled back.
func (p *program) run(ctx context.Context, steps, depth int) error {
	for range steps {
		switch n := p.rng.IntN(60); {
		case n < 26:
			p.publishOne(ctx)
		case n < 38:
			p.set = append(p.set, p.names[p.rng.IntN(len(p.names))])
			p.try(ctx, "SAVEPOINT "+p.set[len(p.set)-1])
		case n < 46:
			p.try(ctx, "ROLLBACK TO SAVEPOINT "+p.name())
		case n < 51:
			p.try(ctx, "RELEASE SAVEPOINT "+p.name())
		case n == 51:
			p.try(ctx, badStatement)
		case n == 52:
			return errProgram
		case depth < 3:
			ways := p.nestings()
			p.note("nested {")
			err := ways[p.rng.IntN(len(ways))](ctx,
				func(ctx context.Context) error { return p.run(ctx, 1+p.rng.IntN(5), depth+1) })
			p.note("} %v", err)
		}
	}
	return nil
}

// name returns the name of a savepoint that was set, or sometimes any name. An unknown name is an
// error, and most programs end after it.
func (p *program) name() string {
	if len(p.set) == 0 || p.rng.IntN(12) == 0 {
		return p.names[p.rng.IntN(len(p.names))]
	}
	return p.set[p.rng.IntN(len(p.set))]
}

func (p *program) publishOne(ctx context.Context) {
	e := newEvent()
	if p.rng.IntN(2) == 0 {
		e.Key = "key" + e.ID[:1]
	}
	err := p.tryPublish(ctx, e)
	p.note("publish %s %v", e.ID, err)
	if err == nil {
		p.ids = append(p.ids, e.ID)
	}
}

// try runs a statement and ignores its error.
func (p *program) try(ctx context.Context, query string) {
	p.note("%s %v", query, p.Exec(ctx, query))
}

// verify requires that the reports of the program's events are true.
func (p *program) verify(seed uint64, n int) (committed int) {
	p.Helper()
	failed := true
	defer func() {
		if failed {
			p.Logf("seed %d, program %d:\n\t%s", seed, n, strings.Join(p.log, "\n\t"))
		}
	}()
	committed = p.noLies(p.ids...)
	failed = false
	p.mu.Lock()
	p.heard = nil // so that the next program's reports are checked alone
	p.mu.Unlock()
	return committed
}

// publishedIsStored waits until every row of the table has been published, and requires that no
// other event was published.
func (a *adapterFixture) publishedIsStored(seed uint64) {
	a.Helper()
	want := a.stored()
	slices.Sort(want)
	var got []string
	eventually(a, fmt.Sprintf("seed %d: all %d events of the table are published", seed, len(want)), func() bool {
		got = slices.Compact(a.publishedIDs()) // with shortLeases, an event may be published again
		return len(got) >= len(want)
	})
	a.must(slices.Equal(got, want), "seed %d: published were %d events, in the table are %d: a ghost", seed, len(got),
		len(want))
	a.must(a.published.Overlaps() == 0, "seed %d: two events of one key were published at once", seed)
}
