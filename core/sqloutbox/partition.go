package sqloutbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

const (
	// minPartition is the shortest PartitionEvery. Claims look into every partition.
	minPartition = time.Hour
	// partitionsAhead is how many partitions are there before their time.
	partitionsAhead = 3
	// partitionRest is the pause after a failed try to change partitions: such a try may have made
	// others wait.
	partitionRest = 30 * time.Second
	// defaultMargin is how far a partition begins behind the rows in the default partition.
	defaultMargin = time.Minute
	// shortestPart is the shortest gap between others that gets a partition.
	shortestPart = time.Minute
	// partitionPage is how many rows a look through a partition reads at once.
	partitionPage = 10_000
)

// partitionLayout names a partition by its first moment.
const partitionLayout = "20060102t150405"

// partitions keeps the partitions of the table of events. Each has the ids of a part of time, and
// the default partition has all others.
//
// A partition is dropped in three steps. First it is read through while it is in use, in pages:
// that finds out when its youngest row will be older than the retention. Then it is detached, with
// a lock on the table and only if it has no open and no dead row. From then on nothing can be
// inserted into it. At last it is read through again, and each row that must stay is moved back
// into the table. Only this last walk decides which rows are lost with the table: the steps before
// it only make moves rare. So a row that is open, dead or young is kept, whatever happens between
// the steps.
//
// DETACH locks the whole table for a moment. DETACH CONCURRENTLY would not, but PostgreSQL refuses
// it where there is a default partition, and without one an event with an unusual id could not be
// published. So the lock is asked for with a short limit: producers wait behind it no longer than
// that, and the next call tries again. A new partition is made as a table of its own and attached,
// which does not stop producers: CREATE TABLE PARTITION OF would.
type partitions struct {
	pool
	names names
	every time.Duration
	sql   partitionStatements

	mu    sync.Mutex
	rest  time.Time // no change of partitions before
	walks map[int64]*partitionWalk

	sweeps sync.Map // table -> *sweep
	turn   int      // of the tables that are swept, with mu
}

// partitionWalk is how far a partition has been read.
type partitionWalk struct {
	after  core.RowID
	newest time.Time // when its youngest row ended
	done   bool
}

// partition is a partition of the table, or was detached from it.
type partition struct {
	oid       int64
	schema    string // quoted, with a dot
	table     string // quoted, with schema
	columns   string // of the table of events, without columns that came after it was detached
	ours      bool   // in the schema of the table
	fallback  bool   // the default partition
	detached  bool
	low, high core.RowID
	endless   bool // without high
}

func newPartitions(p pool, n names, every time.Duration) (*partitions, error) {
	files, err := sqlkit.Files(schema, core.Postgres)
	if err != nil {
		return nil, fmt.Errorf("sqloutbox: %w", err)
	}
	_, storage := partitioned(n, files[0].Up)
	return &partitions{
		pool: p, names: n, every: every, sql: newPartitionStatements(n, storage), walks: map[int64]*partitionWalk{},
	}, nil
}

// cleanup implements Cleanup: it makes and drops partitions, and deletes rows where no partition
// can be dropped for them.
func (p *partitions) cleanup(ctx context.Context, c cleaning, limit int) (deleted int, cut bool, err error) {
	all, err := p.list(ctx)
	if err != nil {
		return 0, false, err
	}
	if len(all) == 0 {
		return 0, false, fmt.Errorf("sqloutbox: cleanup: table %s has no partitions, see Check", p.names.event)
	}
	failed := p.maintain(ctx, all, c)
	deleted, cut, err = p.sweep(ctx, all, c, limit)
	return deleted, cut, errors.Join(err, failed)
}

// maintain makes the partitions of the near future, and drops old ones.
func (p *partitions) maintain(ctx context.Context, all []partition, c cleaning) error {
	if !p.mu.TryLock() {
		return nil // another goroutine does it
	}
	defer p.mu.Unlock()
	now := time.Now()
	if now.Before(p.rest) {
		return nil
	}
	errs := []error{p.ahead(ctx, all, now)}
	for _, part := range all {
		if ctx.Err() != nil || time.Now().After(c.end) {
			break
		}
		var err error
		switch {
		case part.detached:
			err = p.finish(ctx, part, c)
		case part.ended(now, c.keep.done):
			err = p.retire(ctx, part, c)
		}
		if errs = append(errs, unlessGone(err)); errors.Is(err, errTableBusy) {
			break // one wait for all the partitions
		}
	}
	err := errors.Join(errs...)
	if err != nil {
		p.rest = time.Now().Add(partitionRest)
	}
	return err
}

// first makes the partitions of a new table.
func (p *partitions) first(ctx context.Context) error {
	all, err := p.list(ctx)
	if err != nil {
		return err
	}
	return p.ahead(ctx, all, time.Now())
}

// unlessGone ignores that a partition has another name by now, or none: a janitor was faster.
func unlessGone(err error) error {
	if sqlerr.MissingTable(err) {
		return nil
	}
	return err
}

// ended reports whether the partition's part of time was over longer than keep ago.
func (p partition) ended(now time.Time, keep time.Duration) bool {
	return p.ours && !p.fallback && !p.detached && !p.endless && timeOf(p.high).Before(now.Add(-keep))
}

// ahead makes the partition of the present and the next ones, as far as no other has their ids.
func (p *partitions) ahead(ctx context.Context, all []partition, now time.Time) error {
	for n := range partitionsAhead + 1 {
		low := now.UTC().Truncate(p.every).Add(time.Duration(n) * p.every)
		first, last := uncovered(all, low, low.Add(p.every))
		if last.Sub(first) < shortestPart {
			continue
		}
		for _, part := range all {
			if !part.fallback {
				continue
			}
			id, found, err := p.lastIn(ctx, part, idOf(first), idOf(last))
			if err != nil {
				return err
			}
			if after := timeOf(id).Add(defaultMargin); found {
				first = laterOf(after, now.Add(defaultMargin)).Truncate(time.Second)
			}
		}
		if last.Sub(first) < shortestPart {
			continue // the default partition has these ids
		}
		if err := p.create(ctx, schemaOf(all), first, last); err != nil {
			return err
		}
	}
	return nil
}

// uncovered returns the part of the time from low to high that no partition has.
func uncovered(all []partition, low, high time.Time) (first, last time.Time) {
	for _, part := range all { // in the order of low
		if part.fallback || part.detached {
			continue
		}
		from, to := timeOf(part.low), timeOf(part.high)
		switch {
		case !from.After(low) && (part.endless || to.After(low)):
			if low = to; part.endless {
				low = high
			}
		case from.After(low) && from.Before(high):
			high = from
		}
	}
	return low, high
}

// schemaOf returns the schema of the table.
func schemaOf(all []partition) string {
	for _, part := range all {
		if part.ours {
			return part.schema
		}
	}
	return ""
}

func sortPartitions(all []partition) {
	slices.SortStableFunc(all, func(a, b partition) int { return bytes.Compare(a.low[:], b.low[:]) })
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// retire detaches and drops a partition if nothing in it is open, dead or young. With a hook the
// partition must be empty. Discarded rows that stay longer than the others move back.
func (p *partitions) retire(ctx context.Context, part partition, c cleaning) error {
	blocked, err := p.blocked(ctx, part, c)
	if err != nil || blocked {
		delete(p.walks, part.oid)
		return err
	}
	w := p.walk(part)
	for !w.done {
		if blocked, err = p.read(ctx, part, w); err != nil {
			return err
		}
		if blocked {
			delete(p.walks, part.oid)
			return nil
		}
		if !w.done && time.Now().After(c.end) {
			return nil
		}
	}
	if !w.newest.Before(time.Now().Add(-c.keep.done)) {
		return nil
	}
	detached, err := p.detach(ctx, part, c)
	if err != nil {
		return err
	}
	delete(p.walks, part.oid)
	if detached == "" {
		return nil
	}
	part.table, part.detached = detached, true
	return p.finish(ctx, part, c)
}

// finish drops a partition that was detached. It moves the rows that must stay back into the table
// before. A process that dies in between leaves the rest to the next call of any process.
func (p *partitions) finish(ctx context.Context, part partition, c cleaning) error {
	keep := c.keep
	if c.hook != nil { // a process without it may have detached the partition
		keep = keeps{forever, forever}
	}
	w := p.walk(part)
	for !w.done {
		if err := p.rescue(ctx, part, keep, w); err != nil {
			return err
		}
		if !w.done && time.Now().After(c.end) {
			return nil
		}
	}
	ours, err := p.drop(ctx, part)
	if err == nil && ours {
		delete(p.walks, part.oid)
	}
	return err
}

// forever is older than any row.
const forever = 200 * 365 * 24 * time.Hour

func (p *partitions) walk(part partition) *partitionWalk {
	if p.walks[part.oid] == nil {
		p.walks[part.oid] = &partitionWalk{}
	}
	return p.walks[part.oid]
}

// sweep deletes old rows from the default partition, and from partitions that something open or
// dead still needs long after their time. If the retention is shorter than the time of a partition,
// it deletes from all of them, because rows would wait too long for the others of theirs. With a
// hook it deletes from all that are old.
func (p *partitions) sweep(ctx context.Context, all []partition, c cleaning, limit int,
) (deleted int, cut bool, err error) {
	keep, grace := c.keep.least(), p.every
	if c.hook != nil {
		grace = 0
	}
	var tables []string
	for _, part := range all {
		if part.fallback || !part.detached && keep < p.every || part.ended(time.Now(), keep+grace) {
			tables = append(tables, part.table)
		}
	}
	p.mu.Lock()
	turn := p.turn
	p.mu.Unlock()
	for n := range tables {
		table := tables[(turn+n)%len(tables)]
		s, _ := p.sweeps.LoadOrStore(table, &sweep{})
		var more int
		var ended bool
		more, cut, ended, err = s.(*sweep).run(ctx, c, limit-deleted, p.sweptOf(table))
		deleted += more
		if sqlerr.MissingTable(err) {
			continue // it was dropped
		}
		if err != nil || !ended || 2*deleted > limit {
			p.mu.Lock()
			p.turn = turn + n
			p.mu.Unlock()
			return deleted, cut, err
		}
	}
	return deleted, false, nil
}

// idOf returns the first row id of a time, and timeOf the time of a row id.
func idOf(t time.Time) (id core.RowID) {
	binary.BigEndian.PutUint64(id[:], uint64(t.UnixMilli())<<16)
	return id
}

func timeOf(id core.RowID) time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(id[:]) >> 16))
}

// partitionBound reads a partition's bound as PostgreSQL prints it.
var partitionBound = regexp.MustCompile(`^FOR VALUES FROM \((?:'([0-9a-f-]{36})'|MINVALUE)\) ` +
	`TO \((?:'([0-9a-f-]{36})'|MAXVALUE)\)$`)

func (p *partition) setBound(text string) error {
	switch text {
	case "":
		p.detached = true
		return nil
	case "DEFAULT":
		p.fallback = true
		return nil
	}
	m := partitionBound.FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf("the bound of partition %s is %q, not one of row ids", p.table, text)
	}
	var err error
	if m[1] != "" {
		p.low, err = core.ParseRowID(m[1])
	}
	if p.endless = m[2] == ""; !p.endless && err == nil {
		p.high, err = core.ParseRowID(m[2])
	}
	return err
}

// partitioned makes the table of events of a migration one with partitions, and gives its storage
// parameters, which such a table cannot have, to the default partition.
func partitioned(n names, up string) (text, storage string) {
	head, rest, ok := strings.Cut(up, "\n) WITH (")
	if !ok {
		return up, ""
	}
	storage, rest, _ = strings.Cut(rest, ");\n")
	return head + "\n) PARTITION BY RANGE (id);\n\n-- For ids of no time, or of one that has no partition.\n" +
		"CREATE TABLE IF NOT EXISTS " + n.table("event_default") + " PARTITION OF " + n.event + " DEFAULT WITH (" +
		storage + ");\n" + rest, storage
}

// layouts are the statements that read the partitions of the table. Empty: it can have none.
var layouts = outboxsql.ByDialect[string]{Postgres: postgresLayout}
