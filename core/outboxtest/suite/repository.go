package suite

import (
	"context"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// RepositoryHarness gives TestRepository access to an implementation of core.Repository.
type RepositoryHarness struct {
	// New returns an empty table. It is called once for each case; cases run in parallel.
	New func(t *testing.T) Backend
	// AbortsOnError: a refused statement makes the transaction unusable until it or a savepoint is
	// rolled back, as in PostgreSQL.
	AbortsOnError bool
	// SingleWriter: only one transaction writes at a time and the others wait for its end, as in
	// SQLite.
	SingleWriter bool
}

// Backend is one empty table with its transactions. All fields but SetHeaders are required.
type Backend struct {
	// Repository is the repository under test. It calls Pause before each of its statements.
	Repository core.Repository
	// Store reads and changes the same tables for package ops.
	Store ops.Store
	// Begin opens a transaction. Its Exec understands SAVEPOINT, ROLLBACK TO SAVEPOINT and RELEASE
	// SAVEPOINT.
	Begin func(ctx context.Context) (Transaction, error)
	// Lock locks rows in the transaction until its end, as an UPDATE by a person does. It is not
	// called if SingleWriter is set.
	Lock func(ctx context.Context, tx Transaction, ids ...core.RowID) error
	// SetHeaders writes a text into the headers of a committed row, as another program may do. Nil:
	// the table cannot do that.
	SetHeaders func(t testing.TB, id core.RowID, text string)
	// Audits returns how many audit rows there are.
	Audits func(t testing.TB) int
}

// Transaction is a core.Tx that its owner can end.
type Transaction interface {
	core.Tx
	Commit() error
	Rollback() error
}

// repositoryCase is one requirement that every repository must meet.
type repositoryCase struct {
	name string
	run  func(f *fixture)
}

// TestRepository is the conformance suite of core.Repository. It checks the promises in the
// comments of that interface, from outside the repository. It uses short real durations, and waits
// with a deadline where time matters.
func TestRepository(t *testing.T, h RepositoryHarness) {
	for _, group := range []struct {
		name  string
		cases []repositoryCase
	}{
		{"Insert", insertCases()},
		{"ByLog", byLogCases()},
		{"Duplicate", duplicateCases()},
		{"Order", orderCases()},
		{"ClaimUnordered", claimUnorderedCases()},
		{"ClaimHeads", claimHeadsCases()},
		{"Tenants", tenantCases()},
		{"NextDue", nextDueCases()},
		{"MarkDone", markDoneCases()},
		{"MarkFailed", markFailedCases()},
		{"Lease", leaseCases()},
		{"Locked", lockedCases()},
		{"Damaged", damagedCases()},
		{"Backlog", backlogCases()},
		{"Admin", adminCases()},
		{"Retention", retentionCases()},
		{"Archive", archiveCases()},
		{"Keys", keyCases()},
		{"Relays", relayCases()},
		{"Groups", groupCases()},
		{"History", historyCases()},
		{"Cause", causeCases()},
		{"Pauses", pauseCases()},
		{"Rates", rateCases()},
		{"Windows", windowCases()},
		{"Audit", auditCases()},
		{"Plans", planCases()},
		{"Seen", seenCases()},
		{"Edit", editCases()},
		{"Erase", eraseCases()},
		{"Release", releaseCases()},
		{"Interleaving", interleavingCases()},
		{"Concurrency", concurrencyCases()},
		{"Context", contextCases()},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range group.cases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(&fixture{T: t, RepositoryHarness: h, Backend: h.New(t)})
				})
			}
		})
	}
}
