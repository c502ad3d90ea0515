package suite

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// fixture has the state of a case of the repository suite.
type fixture struct {
	*testing.T
	RepositoryHarness
	Backend
}

const (
	nodeA, nodeB = "node-a/1", "node-b/1"

	longLease  = time.Minute            // does not end during a case
	shortLease = 150 * time.Millisecond // short enough to wait for
	patience   = 20 * time.Second       // how long eventually waits
	clockStep  = time.Millisecond       // SQLite's clock counts them

	hotNo = int64(1) // the claim number of hot rows
)

var lastClaimNo atomic.Int64

// newClaimNo returns a claim number that was never used.
func newClaimNo() int64 { return hotNo + lastClaimNo.Add(1) }

// hotRef is the claim of a row that was inserted hot.
func hotRef(n core.NewRow) core.ClaimRef { return core.ClaimRef{ID: n.ID, ClaimNo: hotNo} }

func (f *fixture) check(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// must stops the case with a message unless ok.
func (f *fixture) must(ok bool, format string, args ...any) {
	f.Helper()
	if !ok {
		f.Fatalf(format, args...)
	}
}

// after requires that d has passed since start, within the precision clockStep.
func (f *fixture) after(start time.Time, d time.Duration, what string) {
	f.Helper()
	passed := time.Since(start)
	f.must(passed > d-clockStep, "%s after %s, want %s or more", what, passed, d)
}

// eventually polls until done returns true.
func (f *fixture) eventually(what string, done func() bool) {
	f.Helper()
	eventually(f, what, done)
}

func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// newRow returns a cold row for a topic. An empty key means unordered.
func newRow(topic, key string) core.NewRow {
	return rowOf(core.Event{
		ID: core.NewEventID(), Type: "thing.happened", Topic: topic, Key: key,
		OccurredAt: time.Now().UTC().Truncate(time.Microsecond), Payload: []byte(`{"n":1}`),
		ContentType: "application/json",
	})
}

func rowOf(e core.Event) core.NewRow {
	id, err := core.NewRowID(e.ID, e.Topic)
	if err != nil {
		panic(err) // an error of the suite
	}
	n := core.NewRow{ID: id, Event: e}
	if e.Key != "" && !e.Unordered {
		n.KeyID = core.NewKeyID(e.TenantID, e.Topic, e.Key)
	}
	return n
}

func newRows(n int, topic, key string) []core.NewRow {
	rows := make([]core.NewRow, n)
	for i := range rows {
		rows[i] = newRow(topic, key)
	}
	return rows
}

func hot(rows ...core.NewRow) []core.NewRow {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].Hot = true
	}
	return rows
}

func (f *fixture) begin() Transaction {
	f.Helper()
	tx, err := f.Begin(f.Context())
	f.check(err)
	f.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (f *fixture) exec(tx core.Tx, query string) {
	f.Helper()
	_, err := tx.Exec(f.Context(), query)
	f.check(err)
}

func (f *fixture) insertIn(tx core.Tx, rows ...core.NewRow) []core.Inserted {
	f.Helper()
	places, err := f.Repository.Insert(f.Context(), tx, core.InsertRequest{
		Node: nodeA, ClaimNo: hotNo, Lease: longLease, Rows: rows,
	})
	f.check(err)
	f.must(len(places) == len(rows), "Insert returned %d places for %d rows", len(places), len(rows))
	return places
}

// commit inserts rows in a transaction of their own.
func (f *fixture) commit(rows ...core.NewRow) []core.Inserted {
	f.Helper()
	return f.commitLeased(longLease, rows...)
}

// commitLeased is commit with the lease that hot rows get.
func (f *fixture) commitLeased(lease time.Duration, rows ...core.NewRow) []core.Inserted {
	f.Helper()
	places, err := f.tryCommit(core.InsertRequest{Node: nodeA, ClaimNo: hotNo, Lease: lease, Rows: rows})
	f.check(err)
	return places
}

func (f *fixture) tryCommit(req core.InsertRequest) ([]core.Inserted, error) {
	tx, err := f.Begin(f.Context())
	if err != nil {
		return nil, err
	}
	places, err := f.Repository.Insert(f.Context(), tx, req)
	if err != nil {
		_ = tx.Rollback()
		return nil, err
	}
	return places, tx.Commit()
}

// commitDelayed commits rows that become due in the order of their turns. A delay begins when the
// database reads its clock for the row. So the insert must not take longer than the time between
// two turns, and is repeated with more time until it does not.
func (f *fixture) commitDelayed(rows []core.NewRow, turns []int) {
	f.Helper()
	for step := 10 * time.Millisecond; ; step *= 2 {
		for i := range rows {
			rows[i].Event.Delay = time.Duration(turns[i]) * step
		}
		tx, start := f.begin(), time.Now()
		f.insertIn(tx, rows...)
		if time.Since(start) < step {
			f.check(tx.Commit())
			return
		}
		f.check(tx.Rollback())
	}
}

// request is a claim by node with wide limits.
func request(node string) core.ClaimRequest {
	return core.ClaimRequest{
		Node: node, ClaimNo: newClaimNo(), Lease: longLease, MaxLease: 15 * time.Minute, Limit: 1000, MaxBytes: 1 << 30,
		Run: 100, Keys: 1000,
	}
}

// numbered requires that the rows were claimed under the number of the request.
func (f *fixture) numbered(req core.ClaimRequest, rows []core.Claimed) {
	f.Helper()
	for _, c := range rows {
		f.must(c.ClaimNo == req.ClaimNo, "row %s: claimed under number %d, want %d", c.ID, c.ClaimNo, req.ClaimNo)
	}
}

func (f *fixture) claim(req core.ClaimRequest) []core.Claimed {
	f.Helper()
	req.ClaimNo = newClaimNo()
	rows, err := f.Repository.ClaimUnordered(f.Context(), req)
	f.check(err)
	f.numbered(req, rows)
	return rows
}

// heads claims from every key, once.
func (f *fixture) heads(req core.ClaimRequest) []core.Claimed {
	f.Helper()
	var all []core.Claimed
	var after core.KeyID
	for range 10000 {
		req.ClaimNo = newClaimNo()
		rows, next, err := f.Repository.ClaimHeads(f.Context(), req, after)
		f.check(err)
		f.numbered(req, rows)
		all = append(all, rows...)
		if next.IsZero() {
			return all
		}
		f.must(bytes.Compare(next[:], after[:]) > 0, "ClaimHeads went back from key id %x to %x", after, next)
		after = next
	}
	f.Fatal("ClaimHeads does not come to an end")
	return nil
}

func (f *fixture) lane(req core.ClaimRequest, l core.KeyID) []core.Claimed {
	f.Helper()
	req.ClaimNo = newClaimNo()
	rows, err := f.Repository.ClaimKey(f.Context(), req, l)
	f.check(err)
	f.numbered(req, rows)
	return rows
}

// claimAny claims unordered rows and heads of keys.
func (f *fixture) claimAny(req core.ClaimRequest) []core.Claimed {
	f.Helper()
	return append(f.claim(req), f.heads(req)...)
}

// one claims exactly one row.
func (f *fixture) one(node string) core.Claimed {
	f.Helper()
	rows := f.claimAny(request(node))
	f.must(len(rows) == 1, "claimed %d rows, want 1", len(rows))
	return rows[0]
}

// none requires that nothing can be claimed.
func (f *fixture) none(why string) {
	f.Helper()
	if rows := f.claimAny(request("node-none")); len(rows) != 0 {
		f.Fatalf("%s: claimed %s", why, idsOf(rows))
	}
}

func (f *fixture) fail(node string, failures ...core.Failure) []bool {
	f.Helper()
	changed, err := f.Repository.MarkFailed(f.Context(), node, failures)
	f.check(err)
	f.must(len(changed) == len(failures), "MarkFailed returned %d results for %d failures", len(changed), len(failures))
	return changed
}

func (f *fixture) done(deleteRows bool, ids ...core.RowID) int {
	f.Helper()
	done := make([]core.Done, len(ids))
	for i, id := range ids {
		done[i] = core.Done{ID: id}
	}
	changed, err := f.Repository.MarkDone(f.Context(), done, deleteRows)
	f.check(err)
	return changed
}

func (f *fixture) renew(node string, lease time.Duration, claims ...core.ClaimRef) []bool {
	f.Helper()
	held, err := f.Repository.Renew(f.Context(), node, lease, claims)
	f.check(err)
	f.must(len(held) == len(claims), "Renew returned %d results for %d claims", len(held), len(claims))
	return held
}

func (f *fixture) beginSuspect(node string, claims ...core.ClaimRef) []bool {
	f.Helper()
	held, err := f.Repository.BeginSuspect(f.Context(), node, 0, claims)
	f.check(err)
	f.must(len(held) == len(claims), "BeginSuspect returned %d results for %d claims", len(held), len(claims))
	return held
}

func (f *fixture) release(node string, claims ...core.ClaimRef) int {
	f.Helper()
	changed, err := f.Repository.Release(f.Context(), node, claims)
	f.check(err)
	return changed
}

func (f *fixture) dead() []core.DeadEvent {
	f.Helper()
	events, err := f.Repository.ListDead(f.Context(), core.DeadQuery{})
	f.check(err)
	return events
}

func adminOf(ids ...core.RowID) core.AdminRequest {
	return core.AdminRequest{IDs: ids, Actor: "alice", Reason: "because"}
}

func (f *fixture) redrive(req core.AdminRequest) int {
	f.Helper()
	changed, err := f.Repository.Redrive(f.Context(), req)
	f.check(err)
	return changed
}

func (f *fixture) discard(req core.AdminRequest) int {
	f.Helper()
	changed, err := f.Repository.Discard(f.Context(), req)
	f.check(err)
	return changed
}

// kill makes the row of a claim DEAD.
func (f *fixture) kill(node string, c core.Claimed) {
	f.Helper()
	changed := f.fail(node, core.Failure{ClaimRef: ref(c), Kind: core.FailDead, Code: "boom", Message: "it broke"})
	f.must(changed[0], "the holder could not mark its row DEAD")
}

// addDead commits a row and makes it DEAD.
func (f *fixture) addDead(n core.NewRow) core.NewRow {
	f.Helper()
	f.commitLeased(longLease, hot(n)...)
	f.kill(nodeA, core.Claimed{ID: n.ID, ClaimNo: hotNo})
	return n
}

func ref(c core.Claimed) core.ClaimRef { return core.ClaimRef{ID: c.ID, ClaimNo: c.ClaimNo} }

func refsOf(rows []core.Claimed) []core.ClaimRef {
	refs := make([]core.ClaimRef, len(rows))
	for i, r := range rows {
		refs[i] = ref(r)
	}
	return refs
}

func idsOf(rows []core.Claimed) []core.RowID {
	ids := make([]core.RowID, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	return ids
}

func newIDs(rows []core.NewRow) []core.RowID {
	ids := make([]core.RowID, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	return ids
}

func compareIDs(a, b core.RowID) int { return bytes.Compare(a[:], b[:]) }

// sameSet compares ids without regard to order.
func sameSet(a, b []core.RowID) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortFunc(a, compareIDs)
	slices.SortFunc(b, compareIDs)
	return slices.Equal(a, b)
}

// wantIDs requires the claimed rows in this order.
func (f *fixture) wantIDs(rows []core.Claimed, want ...core.NewRow) {
	f.Helper()
	if got := idsOf(rows); !slices.Equal(got, newIDs(want)) {
		f.Fatalf("claimed %s, want %s", got, newIDs(want))
	}
}

// wantSet requires the claimed rows in any order.
func (f *fixture) wantSet(rows []core.Claimed, want ...core.NewRow) {
	f.Helper()
	if got := idsOf(rows); !sameSet(got, newIDs(want)) {
		f.Fatalf("claimed %s, want %s in any order", got, newIDs(want))
	}
}

// diffEvent describes the differences between an event that was read and the inserted one. Delay
// and Unordered are instructions for the insert and need not be returned.
func diffEvent(got, want core.Event) string {
	if !bytes.Equal(got.Payload, want.Payload) {
		return fmt.Sprintf("payload of %d bytes came back as %d other bytes", len(want.Payload), len(got.Payload))
	}
	if len(got.Headers)+len(want.Headers) > 0 && !maps.Equal(got.Headers, want.Headers) {
		return fmt.Sprintf("headers %q, want %q", got.Headers, want.Headers)
	}
	if !got.OccurredAt.Equal(want.OccurredAt) {
		return fmt.Sprintf("occurred at %s, want %s", got.OccurredAt, want.OccurredAt)
	}
	type plain struct {
		id, typ, aggType, aggID, tenant, topic, key, contentType string
		version                                                  int64
		schema                                                   int
	}
	of := func(e core.Event) plain {
		return plain{
			e.ID, e.Type, e.AggregateType, e.AggregateID, e.TenantID, e.Topic, e.Key, e.ContentType,
			e.AggregateVersion, e.SchemaVersion,
		}
	}
	if g, w := of(got), of(want); g != w {
		return fmt.Sprintf("%+v, want %+v", g, w)
	}
	return ""
}

// within runs fn with a deadline, so that a repository that waits forever fails only one case and
// not the whole run.
func (f *fixture) within(fn func(ctx context.Context) error) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), patience)
	defer cancel()
	f.check(fn(ctx))
}
