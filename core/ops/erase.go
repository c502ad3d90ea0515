package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// AuditErase is the action of the audit rows that Erase writes: one for the call, and one for each
// event.
const AuditErase = "erase"

// Erased stands in place of a text that Erase has removed.
const Erased = "erased"

// eraseLimit is how many events Erase changes in one transaction.
const eraseLimit = 500

// EraseRequest selects the data that Erase removes: the events of one aggregate, or stored answers
// of idempotency keys, or both.
type EraseRequest struct {
	AggregateType, AggregateID string // both or none
	TenantID                   string // empty: of every tenant
	// Open erases events that wait to be published too. Their consumers then get an event without
	// content. Otherwise they stay: call Erase again when they are published.
	Open bool

	// KeyIDs are idempotency keys whose stored answers are erased, as clients sent them. KeyScope
	// and TenantID narrow them; KeyScope may be empty.
	KeyIDs   []string
	KeyScope string

	Actor, Reason string // who and why, both required and stored; at most 255 and 1024 bytes
	// Progress, if not nil, is called after each part of the tables, from the goroutine of the call.
	Progress func(Erasure)
}

// EffectEraser is implemented by Beside.Effects whose effects Erase can reach. It examines one part
// of its table, behind the effect with the id after (empty: the first part). next is empty after
// the last part. It erases the content of matching effects, in one transaction. Effects that are
// not finished are left alone and counted in left. With dryRun it only counts.
type EffectEraser interface {
	EraseEffects(ctx context.Context, after string, dryRun bool,
		match func(tenant, eventID, businessKey string) bool) (erased, left int, next string, err error)
}

// KeyEraser is implemented by Beside.Keys whose answers Erase can reach. EraseResults erases the
// answers of idempotency keys with the given id. An empty scope or tenant stands for every one.
// Keys whose work is going on are left alone and counted in held. With dryRun it only counts.
type KeyEraser interface {
	EraseResults(ctx context.Context, scope, tenant, id string, dryRun bool) (erased, held int, err error)
}

// Erasure counts the results of Erase, or of PlanErase.
type Erasure struct {
	Waiting int `json:"waiting"` // events that wait to be published
	Dead    int `json:"dead"`
	Ended   int `json:"ended"`   // events that are done or discarded
	Already int `json:"already"` // of these events: they have no content any more
	Erased  int `json:"erased"`  // events that were erased
	Left    int `json:"left"`    // of the waiting ones: a process holds them, or Open is not set
	Audit   int `json:"audit"`   // differences in the audit
	Effects int `json:"effects"`
	// Tenants are the events' tenants, at most ten. With more than one, name EraseRequest.TenantID,
	// unless the aggregate is the same subject for each of them.
	Tenants []string `json:"tenants"`
	// NoEffects: no table of effects is in reach.
	NoEffects bool `json:"no_effects"`
	// OpenEffects are effects that are not finished, and so are left alone.
	OpenEffects int `json:"open_effects"`
	Answers     int `json:"answers"`   // stored answers of idempotency keys
	HeldKeys    int `json:"held_keys"` // keys whose work is going on, which are left alone
	// Parts is how many parts of the tables were looked at.
	Parts int `json:"parts"`
	// Capped: PlanErase stopped counting, and there are more events.
	Capped bool `json:"capped"`
}

var unreached = []string{
	"effects of events that are no longer in the table, unless their business key is TYPE/ID",
	"messages at brokers, until the retention of their topics ends",
	"archives of events, effects and messages",
	"backups, replicas that lag, and the log of the database",
	"consumers, their inboxes, and what they made of the events",
	"answers of idempotency keys: `outbox erase --key` erases those that you name",
	"logs, traces, and reasons that people wrote into the audit",
}

// Unreached names data that Erase cannot reach.
func (e Erasure) Unreached() []string {
	all := slices.Clone(unreached)
	if e.NoEffects {
		all = append(all, "effects: no table of them is in reach")
	}
	return all
}

// PlanErase counts the events that Erase would erase, up to 10,000. It changes nothing, and needs
// neither Actor nor Reason.
func (a *API) PlanErase(ctx context.Context, req EraseRequest) (Erasure, error) {
	if err := req.check(); err != nil {
		return Erasure{}, err
	}
	r := erasing{API: a, EraseRequest: req, dryRun: true, events: map[string]bool{}, seen: map[core.RowID]bool{}}
	err := r.run(ctx)
	return r.found, err
}

// Erase removes the data of one subject: the payloads, the content types and the headers of its
// events, in whatever state they are, the texts of their errors, the differences that Edit stored,
// and the payloads of their effects. With KeyIDs it erases the stored answers of those keys: their
// work is not done again, and a repeated request gets an empty answer. Every row stays, with its
// ids, key, number and status, so the order of each key is as before. An erased event has an empty
// payload and the header core.HeaderErased. Its headers about cause, correlation and place stay. If
// it is published later, as an open event or after a redrive, consumers get it erased.
//
// Events that wait are erased only with Open, and never while a process holds them. An effect
// belongs to the subject if one of the events has caused it, or if its business key is "type/id" of
// the aggregate. It is erased once it is completed, dead or discarded.
//
// Erase looks at the whole table by its primary key, 10,000 rows at a time, because no index has
// aggregates. It erases up to 500 events in one transaction, each with an audit row. An interrupted
// call can be repeated: erased rows stay erased, and are not counted twice.
//
// The error wraps core.ErrInvalidRequest for a request without a subject, actor or reason. After
// any other error the Erasure counts the rows that were erased.
func (a *API) Erase(ctx context.Context, req EraseRequest) (Erasure, error) {
	if err := req.check(); err != nil {
		return Erasure{}, err
	}
	if err := checkWho(req.Actor, req.Reason); err != nil {
		return Erasure{}, err
	}
	start := time.Now()
	r := erasing{API: a, EraseRequest: req, events: map[string]bool{}, seen: map[core.RowID]bool{}}
	if err := a.store.RecordErase(ctx, r.change(nil)); err != nil {
		return Erasure{}, err
	}
	err := r.run(ctx)
	if r.found.Erased > 0 {
		a.outbox.Observer().Operated(core.OperatedInfo{
			Action: core.OperatorErase, Rows: r.found.Erased, Duration: time.Since(start),
		})
	}
	return r.found, err
}

func (r *EraseRequest) check() error {
	switch {
	case (r.AggregateType == "") != (r.AggregateID == ""):
		return invalid("{AggregateType} and {AggregateID} belong together")
	case r.AggregateType == "" && len(r.KeyIDs) == 0:
		return invalid("{AggregateType} and {AggregateID}, or {KeyIDs}, are required: whose data is to be erased?")
	case slices.Contains(r.KeyIDs, ""):
		return invalid("one of {KeyIDs} is empty")
	}
	return nil
}

// EraseChange is one step of Erase, for a Store.
type EraseChange struct {
	Subject       string       // the aggregate, for people
	IDs           []core.RowID // at most 500
	Open          bool         // rows that wait, and that no process holds, too
	Actor, Reason string
}

// EraseOutcome is the result of a step of Erase. The other rows wait, or a process holds them.
type EraseOutcome struct{ Erased, Already int }

// erasing is one call.
type erasing struct {
	*API
	EraseRequest
	dryRun bool
	found  Erasure
	events map[string]bool // ids of the events of the subject
	seen   map[core.RowID]bool
}

func (r *erasing) change(ids []core.RowID) EraseChange {
	var of []string
	if r.AggregateType != "" {
		of = append(of, fmt.Sprintf("%s/%s", r.AggregateType, r.AggregateID))
	}
	if n := len(r.KeyIDs); n > 0 {
		of = append(
			of,
			fmt.Sprintf("answers of %d idempotency keys, the first of them %s", n, errtext.Clip(r.KeyIDs[0], 255)),
		)
	}
	subject := strings.Join(of, ", ")
	if r.TenantID != "" {
		subject += " of tenant " + r.TenantID
	}
	return EraseChange{Subject: subject, IDs: ids, Open: r.Open, Actor: r.Actor, Reason: r.Reason}
}

func (r *erasing) run(ctx context.Context) error {
	parts := []func(context.Context) error{r.eraseKeys}
	if r.AggregateType != "" {
		// The audit comes after the events: an edit beside this call writes into both.
		parts = append(parts, r.eraseEvents, r.eraseAudit, r.eraseEffects)
	}
	for _, part := range parts {
		if err := part(ctx); err != nil || r.found.Capped {
			return err
		}
	}
	return nil
}

// step notes that one more part of the tables was looked at.
func (r *erasing) step() {
	if r.found.Parts++; r.Progress != nil {
		r.Progress(r.found)
	}
}

func (r *erasing) eraseEvents(ctx context.Context) error {
	scan := Scan{Filter: r.filter(), Limit: eraseLimit, Look: MaxLook}
	for {
		s, err := r.store.ScanEvents(ctx, scan)
		if err != nil {
			return err
		}
		if err := r.eraseRows(ctx, s.Events); err != nil {
			return err
		}
		r.step()
		if scan.After = s.Next; scan.After == "" {
			return nil
		}
		if r.found.Waiting+r.found.Dead+r.found.Ended >= MaxPlan && r.dryRun {
			r.found.Capped = true
			return nil
		}
	}
}

func (r *erasing) ofTenant(tenant string) {
	if len(r.found.Tenants) < 10 && !slices.Contains(r.found.Tenants, tenant) {
		r.found.Tenants = append(r.found.Tenants, tenant)
	}
}

// eraseRows erases rows of the subject, and the copies of them that an edit or a replay has made
// since they were looked at: a copy may have an id that the scan has passed. Who makes a copy locks
// the row, so there is none of before that appears later.
func (r *erasing) eraseRows(ctx context.Context, rows []Event) error {
	for {
		rows = slices.DeleteFunc(rows, func(e Event) bool { return r.seen[e.ID] })
		if len(rows) == 0 {
			return nil
		}
		for chunk := range slices.Chunk(rows, eraseLimit) {
			if err := r.eraseChunk(ctx, chunk); err != nil {
				return err
			}
		}
		if r.dryRun {
			return nil
		}
		of := map[string]bool{}
		for i := range rows {
			of[rows[i].EventID] = true
		}
		rows = nil
		for id := range of {
			scan := Scan{Filter: r.filter(), Limit: eraseLimit, Look: MaxLook}
			scan.EventID = id
			for more := true; more; more = scan.After != "" {
				s, err := r.store.ScanEvents(ctx, scan)
				if err != nil {
					return err
				}
				rows, scan.After = append(rows, s.Events...), s.Next
			}
		}
	}
}

func (r *erasing) eraseChunk(ctx context.Context, rows []Event) error {
	ids := make([]core.RowID, 0, len(rows))
	for i := range rows {
		e := &rows[i]
		r.events[e.EventID], r.seen[e.ID] = true, true
		r.ofTenant(e.TenantID)
		switch {
		case e.Status.Open():
			r.found.Waiting++
			if !r.Open || e.Leased() {
				r.found.Left++
			}
		case e.Status == StatusDead:
			r.found.Dead++
		default:
			r.found.Ended++
		}
		ids = append(ids, e.ID)
	}
	if r.dryRun {
		return nil
	}
	n, err := r.store.EraseEvents(ctx, r.change(ids))
	r.found.Erased, r.found.Already = r.found.Erased+n.Erased, r.found.Already+n.Already
	return err
}

func (r *erasing) filter() Filter {
	return Filter{AggregateType: r.AggregateType, AggregateID: r.AggregateID, TenantID: r.TenantID}
}

func (r *erasing) eraseAudit(ctx context.Context) error {
	head := auditSubject(r.AggregateType, r.AggregateID)
	if r.TenantID != "" {
		head += tenantLine(r.TenantID)
	}
	for after := int64(0); ; {
		n, next, err := r.store.EraseAudit(ctx, after, head, r.dryRun)
		if err != nil {
			return err
		}
		r.found.Audit += n
		r.step()
		if after = next; after == 0 {
			return nil
		}
	}
}

func (r *erasing) eraseKeys(ctx context.Context) error {
	if len(r.KeyIDs) == 0 {
		return nil
	}
	keys, ok := r.beside.Keys.(KeyEraser)
	if !ok {
		return noTables("idempotency keys")
	}
	for _, id := range r.KeyIDs {
		erased, held, err := keys.EraseResults(ctx, r.KeyScope, r.TenantID, id, r.dryRun)
		if r.found.Answers, r.found.HeldKeys = r.found.Answers+erased, r.found.HeldKeys+held; err != nil {
			return err
		}
		r.step()
	}
	return nil
}

func (r *erasing) eraseEffects(ctx context.Context) error {
	effects, ok := r.beside.Effects.(EffectEraser)
	if !ok {
		r.found.NoEffects = true
		return nil
	}
	match := func(tenant, eventID, businessKey string) bool {
		return (r.TenantID == "" || tenant == r.TenantID) &&
			(r.events[eventID] || businessKey == r.AggregateType+"/"+r.AggregateID)
	}
	for after := ""; ; {
		erased, left, next, err := effects.EraseEffects(ctx, after, r.dryRun, match)
		if errors.Is(err, core.ErrNoTables) {
			r.found.NoEffects = true
			return nil
		}
		if err != nil {
			return err
		}
		r.found.Effects, r.found.OpenEffects = r.found.Effects+erased, r.found.OpenEffects+left
		r.step()
		if after = next; after == "" {
			return nil
		}
	}
}

// auditSubject begins the detail of an audit row that has data of an aggregate. Erase finds it by
// this text when the row of the event was deleted long ago.
func auditSubject(aggregateType, aggregateID string) string {
	return fmt.Sprintf("of %q %q, tenant ", aggregateType, aggregateID)
}

func tenantLine(tenant string) string { return fmt.Sprintf("%q\n", tenant) }

// KeptHeaders returns the headers of an erased event: cause and place, which name no person, and
// the marker.
func KeptHeaders(headers map[string]string, at time.Time) map[string]string {
	kept := map[string]string{core.HeaderErased: at.UTC().Format(time.RFC3339)}
	for _, name := range []string{
		core.HeaderCausationID, core.HeaderCorrelationID, core.HeaderFirstKeySeq, core.HeaderEditOf,
	} {
		if v, ok := headers[name]; ok {
			kept[name] = v
		}
	}
	return kept
}
