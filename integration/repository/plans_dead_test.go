package repository_test

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"modernc.org/sqlite/vfs"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlrecord"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

const (
	manyDead  = 100_000 // that died under BlockKey, each in a key of its own, and as many without a key
	mostPages = 500     // of 4 KiB that a call may read of a file of SQLite
)

// A bounded call is bounded in what it reads, whatever it finds. Here the indexes of open rows and
// of dead ones begin with rows that are not wanted: 100,000 dead rows of keys come before the only
// keys with open rows, and 100,000 dead rows without a key before those.
func TestReadsBesideManyDead(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool, rec := fixture.OpenRecorded(t, db)
		pool.SetMaxOpenConns(1) // databases count what a connection reads
		repo := fixture.NewRepository(t, pool, sqloutbox.Config{Dialect: db.Dialect})
		fillDead(t, db, pool)
		analyze(t, db.Dialect, pool)
		for _, c := range callsBesideDead(t, repo) {
			t.Run(c.name, func(t *testing.T) {
				read, most := readsOf(t, db, pool, rec, c.run), mostRead
				switch {
				case db.Dialect == core.SQLite:
					most = mostPages
				case strings.HasPrefix(c.name, "Count"):
					most = 6 * ops.MaxLook // of each index, and MariaDB copies and counts the rows
				}
				t.Logf("read %d", read)
				fixture.Check(t, read <= most, "read %d, more than %d", read, most)
			})
		}
	})
}

func callsBesideDead(t *testing.T, repo *sqloutbox.Repository) []relayCall {
	ob, err := core.New(core.Config{Repository: repo})
	fixture.NoError(t, err)
	api, err := sqlops.New(ob)
	fixture.NoError(t, err)
	req := core.ClaimRequest{
		Node: "n", ClaimNo: 1, Lease: time.Minute, MaxLease: 15 * time.Minute, Limit: 100, MaxBytes: 1 << 20, Run: 10,
		Keys: 1000,
	}
	skip := req
	skip.SkipDead = true
	due := func(req core.ClaimRequest) func(context.Context) error {
		return func(ctx context.Context) error { _, _, err := repo.NextDue(ctx, req); return err }
	}
	heads := func(req core.ClaimRequest) func(context.Context) error {
		return func(ctx context.Context) error { _, _, err := repo.ClaimHeads(ctx, req, core.KeyID{}); return err }
	}
	return []relayCall{
		{"Health", func(ctx context.Context) error {
			if h := ob.Health(ctx); !h.Ready {
				return fmt.Errorf("not ready: %q", h.Problems)
			}
			return nil
		}},
		{"Backlog", func(ctx context.Context) error {
			b, err := repo.Backlog(ctx, 1000)
			if err == nil && !b.More {
				err = fmt.Errorf("%+v does not say that there are more", b)
			}
			return err
		}},
		{"Backlog of one", func(ctx context.Context) error { _, err := repo.Backlog(ctx, 1); return err }},
		{"TypeBacklog", func(ctx context.Context) error { _, err := repo.TypeBacklog(ctx, 1000); return err }},
		{"UnrelayedTopics", func(ctx context.Context) error {
			topics, err := ob.UnrelayedTopics(ctx)
			if err == nil && !slices.Contains(topics, "open") {
				err = fmt.Errorf("unrelayed topics %q", topics)
			}
			return err
		}},
		{"ListDead", func(ctx context.Context) error { _, err := repo.ListDead(ctx, core.DeadQuery{}); return err }},
		{"Count of open events", func(ctx context.Context) error {
			_, err := api.Count(ctx, ops.Filter{Statuses: []ops.Status{ops.StatusNew, ops.StatusRetry}})
			return err
		}},
		{"Count of dead events", func(ctx context.Context) error {
			_, err := api.Count(ctx, ops.Filter{Statuses: []ops.Status{ops.StatusDead}})
			return err
		}},
		{"CollectKeys", func(ctx context.Context) error {
			_, _, err := repo.CollectKeys(ctx, 0, core.KeyID{}, 100)
			return err
		}},
		{"NextDue", due(req)},
		{"NextDue past dead rows", due(skip)},
		{"ClaimHeads", heads(req)},
		{"ClaimHeads past dead rows", heads(skip)},
		{"ClaimKey past dead rows", func(ctx context.Context) error {
			_, err := repo.ClaimKey(ctx, skip, deadKey(manyDead))
			return err
		}},
	}
}

// deadPrefix is that of the keys with dead rows. It comes before that of topic "open".
func deadPrefix() [4]byte {
	p := core.KeyIDPrefix("open")
	p[0]--
	return p
}

func deadKey(n int) (l core.KeyID) {
	prefix := deadPrefix()
	copy(l[:], prefix[:])
	binary.BigEndian.PutUint32(l[12:], uint32(n))
	return l
}

// fillDead writes the rows. The last ten keys with a dead row have an open one behind it.
func fillDead(t *testing.T, db testdb.DB, pool *sql.DB) {
	t.Helper()
	f := newFiller(t, db, pool)
	f.rows(1, manyDead, "'dead'", f.noLane, "n", "3", f.now, f.noTime)
	f.rows(2, manyDead, "'dead'", f.lanes(deadPrefix()), "1", "3", f.now, f.noTime)
	for i := range 10 {
		f.rows(16+i, 1, "'dead'", f.bytes(deadKey(manyDead-i)), "2", "0", f.now, f.noTime)
		f.rows(32+i, 10, "'open'", f.bytes(core.NewKeyID("", "open", fmt.Sprint("k", i))), "n", "0", f.now, f.noTime)
	}
}

// readsOf returns how much the database reads for a call: rows, or pages of SQLite.
func readsOf(t *testing.T, db testdb.DB, pool *sql.DB, rec *sqlrecord.Recorder, run func(context.Context) error) int {
	t.Helper()
	switch db.Dialect {
	case core.Postgres:
		before := tableReads(t, pool)
		fixture.NoError(t, run(t.Context()))
		after := tableReads(t, pool)
		return int(after.whole - before.whole + after.index - before.index)
	case core.MySQL:
		reads := func() int {
			conn, err := pool.Conn(t.Context())
			fixture.NoError(t, err)
			defer conn.Close()
			return handlerReads(t, conn)
		}
		question := reads()
		before := reads()
		question = before - question // the reads of the question itself
		fixture.NoError(t, run(t.Context()))
		return reads() - before - question
	default:
		return pagesRead(t, pool, rec, run)
	}
}

// pagesRead runs what a call has read a second time, on a copy of the file. SQLite counts no rows,
// but its copy says what is read of it.
func pagesRead(t *testing.T, pool *sql.DB, rec *sqlrecord.Recorder, run func(context.Context) error) int {
	t.Helper()
	dir := t.TempDir()
	fixture.MustExec(t, pool, "VACUUM INTO '"+filepath.Join(dir, "copy.db")+"'")
	rec.Start()
	err := run(t.Context())
	calls := rec.Stop()
	fixture.NoError(t, err)
	files := &countedFiles{FS: os.DirFS(dir)}
	name, registered, err := vfs.New(files)
	fixture.NoError(t, err)
	defer registered.Close()
	file, err := sql.Open("sqlite", "file:copy.db?vfs="+name)
	fixture.NoError(t, err)
	defer file.Close()
	for _, c := range calls {
		if !strings.HasPrefix(c.Query, "SELECT") {
			continue
		}
		rows, err := file.QueryContext(t.Context(), c.Query, c.Args...) //nolint:rowserrcheck // EachRow checks rows.Err
		fixture.NoError(t, err)
		fixture.EachRow(t, rows, func() {})
	}
	return int(files.read.Load() / 4096)
}

// countedFiles counts the bytes that are read of its files.
type countedFiles struct {
	fs.FS
	read atomic.Int64
}

func (f *countedFiles) Open(name string) (fs.File, error) {
	file, err := f.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return countedFile{file.(interface {
		fs.File
		io.Seeker
	}), &f.read}, nil
}

type countedFile struct {
	file interface {
		fs.File
		io.Seeker
	}
	read *atomic.Int64
}

func (f countedFile) Stat() (fs.FileInfo, error) { return f.file.Stat() }
func (f countedFile) Close() error               { return f.file.Close() }
func (f countedFile) Seek(offset int64, whence int) (int64, error) {
	return f.file.Seek(offset, whence)
}

func (f countedFile) Read(p []byte) (int, error) {
	n, err := f.file.Read(p)
	f.read.Add(int64(n))
	return n, err
}
