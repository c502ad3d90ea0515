package sqloutbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

const (
	markChunk  = 500 // rows of one statement
	maxCode    = 64
	maxMessage = 2048
	maxReceipt = 1024
	maxGroup   = 16

	// keptAttempts is how many characters of the column failures are kept. That is room for ten lines
	// of outboxsql.AttemptLine, whatever they have.
	keptAttempts = "5100"
)

// MarkDone implements core.Repository. Rows are changed in ascending order of their ids, so that
// marks do not wait for each other in a circle. A receipt that the database cannot store is
// shortened to ASCII, or left out.
func (r *Repository) MarkDone(ctx context.Context, done []core.Done, deleteRows bool) (changed int, err error) {
	done = slices.Clone(done)
	slices.SortFunc(done, func(a, b core.Done) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	done = slices.CompactFunc(done, func(a, b core.Done) bool { return a.ID == b.ID })
	var held locked
	for chunk := range slices.Chunk(done, markChunk) {
		n, err := r.database.markDone(ctx, chunk, deleteRows)
		changed += n
		if err = held.add(err); err != nil {
			return changed, err
		}
	}
	return changed, held.err("mark done")
}

// MarkFailed implements core.Repository. Code and Message are cut to 64 and 2,048 bytes. Characters
// that the database cannot store are replaced or left out.
func (r *Repository) MarkFailed(ctx context.Context, node string, failures []core.Failure) ([]bool, error) {
	for _, f := range failures {
		if f.Kind < core.FailRetry || f.Kind > core.FailUnavailable {
			return nil, fmt.Errorf("sqloutbox: mark failed: row %s: unknown kind of failure %d", f.ID, f.Kind)
		}
	}
	refs := make([]core.ClaimRef, len(failures))
	for i, f := range failures {
		refs[i] = f.ClaimRef
	}
	return guess("mark failed", refs, func(order []int) (map[core.RowID]bool, error) {
		return r.database.markFailed(ctx, node, choose(failures, order))
	})
}

// BeginSuspect implements core.Repository. During a publish that counts lost_claims is negative. A
// claim makes it positive again.
func (r *Repository) BeginSuspect(ctx context.Context, node string, wait time.Duration,
	claims []core.ClaimRef,
) ([]bool, error) {
	return guess("begin suspect", claims, func(order []int) (map[core.RowID]bool, error) {
		return r.database.beginSuspect(ctx, node, choose(claims, order), wait)
	})
}

// Renew implements core.Repository.
func (r *Repository) Renew(ctx context.Context, node string, lease time.Duration,
	claims []core.ClaimRef,
) ([]bool, error) {
	return guess("renew", claims, func(order []int) (map[core.RowID]bool, error) {
		return r.database.renew(ctx, node, choose(claims, order), lease)
	})
}

// Release implements core.Repository.
func (r *Repository) Release(ctx context.Context, node string, claims []core.ClaimRef) (changed int, err error) {
	released, err := guess("release", claims, func(order []int) (map[core.RowID]bool, error) {
		return r.database.release(ctx, node, choose(claims, order))
	})
	for _, ok := range released {
		changed += b2i(ok)
	}
	return changed, err
}

// guess calls mark for chunks of the claims, in ascending order of row ids and each row once. It
// returns which claims changed a row.
func guess(what string, claims []core.ClaimRef, mark func(order []int) (map[core.RowID]bool, error)) ([]bool, error) {
	changed := make([]bool, len(claims))
	order := make([]int, len(claims))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { // only the latest claim can hold the row
		return cmp.Or(bytes.Compare(claims[a].ID[:], claims[b].ID[:]),
			cmp.Compare(claims[b].ClaimNo, claims[a].ClaimNo))
	})
	order = slices.CompactFunc(order, func(a, b int) bool { return claims[a].ID == claims[b].ID })
	var held locked
	for chunk := range slices.Chunk(order, markChunk) {
		ids, err := mark(chunk)
		if err = held.add(err); err != nil {
			return changed, err
		}
		for _, i := range chunk {
			changed[i] = ids[claims[i].ID]
		}
	}
	return changed, held.err(what)
}

// choose returns the items of these places.
func choose[T any](items []T, order []int) []T {
	chosen := make([]T, len(order))
	for i, at := range order {
		chosen[i] = items[at]
	}
	return chosen
}

// locked collects the rows that other transactions hold over the chunks of one mark.
type locked struct{ rows []core.RowID }

// add collects the locked rows of a chunk's error. It returns any other error.
func (l *locked) add(err error) error {
	e, ok := errors.AsType[*core.LockedError](err)
	if !ok {
		return err
	}
	l.rows = append(l.rows, e.Rows...)
	return nil
}

// err is a *core.LockedError, or nil when no row was locked.
func (l *locked) err(what string) error {
	if len(l.rows) == 0 {
		return nil
	}
	return fmt.Errorf("sqloutbox: %s: %w", what, &core.LockedError{Rows: l.rows})
}

// orLocked returns err, or a LockedError if other transactions hold rows.
func orLocked(err error, held []core.RowID) error {
	if err == nil && len(held) > 0 {
		return &core.LockedError{Rows: held}
	}
	return err
}

// queryIDs runs a statement that returns ids of rows.
func queryIDs(ctx context.Context, q sqlkit.Querier, text string, args ...any) ([]core.RowID, error) {
	return sqlkit.Rows(ctx, q, text, args, func(res core.Rows) (id core.RowID, err error) {
		err = res.Scan((*outboxsql.ID)(&id))
		return id, err
	})
}

const maxPlain = 200

// diagnostic is how much of the texts for people (error text, error code, receipt) is written. They
// never prevent a mark. If the database refuses a text, because the character set of the connection
// or the width of the column does not allow it, the mark is written with less text.
type diagnostic uint8

const (
	diagnosticWhole diagnostic = iota // unchanged
	diagnosticPlain                   // a short text in ASCII
	diagnosticCode                    // only the code
	diagnosticNone
)

// text returns the part of a text for people that is stored, at most n bytes.
func (d diagnostic) text(s string, n int) string {
	switch d {
	case diagnosticWhole:
		return clean(s, n)
	case diagnosticPlain:
		return plain(s, min(n, maxPlain))
	case diagnosticCode, diagnosticNone:
	}
	return ""
}

// code returns the part of an error code that is stored.
func (d diagnostic) code(s string) string {
	switch d {
	case diagnosticWhole:
		return clean(s, maxCode)
	case diagnosticPlain, diagnosticCode:
		return plain(s, maxCode)
	case diagnosticNone:
	}
	return ""
}

// group returns the part of the group of a failure that is stored.
func (d diagnostic) group(s string) string {
	if d == diagnosticNone {
		return ""
	}
	return plain(s, maxGroup)
}

// attempt returns the end of the line that the column failures gets for a failure that counts. The
// statement writes the time and the number of the attempt before it.
func (d diagnostic) attempt(f *core.Failure, node string) string {
	if f.Kind == core.FailUnavailable {
		return ""
	}
	if d == diagnosticWhole {
		node = clean(node, maxName)
	} else {
		node = plain(node, maxName)
	}
	return outboxsql.AttemptLine(f.Path, node, d.code(f.Code), d.text(f.Message, maxMessage))
}

// diagnosed calls write with less and less diagnostics until the database accepts them.
func diagnosed(write func(d diagnostic) error) (err error) {
	for d := diagnosticWhole; d <= diagnosticNone; d++ {
		if err = write(d); !sqlerr.RefusedValue(err) {
			return err
		}
	}
	return err
}

// plain keeps the characters that every character set has.
func plain(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	return s[:min(len(s), n)]
}

// clean makes a diagnostic text storable in UTF-8: valid, no NUL, at most n bytes.
func clean(s string, n int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
