package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/textdiff"
)

// AuditEdit is the action of the audit row that Edit writes. Its Detail is the difference.
const AuditEdit = "edit"

// ErrChanged is wrapped by the error of Edit if the event is not dead, or not as it was seen: another
// person has redriven, edited or discarded it, or it was published after all. Nothing was changed.
// Look at it again.
var ErrChanged = errors.New("ops: the event has changed")

// EditRequest is the change that Edit makes. An empty Payload, ContentType, Headers or
// WithoutHeaders leaves that part as it is; at least one must be set.
type EditRequest struct {
	ID core.RowID // of a dead row

	Payload        []byte            // the new payload; nil: as it is
	ContentType    string            // the new content type
	Headers        map[string]string // headers that are set or replaced
	WithoutHeaders []string          // headers that are removed

	// Seen is Event.Sight of the event when the person looked at it. 0: it is as it is now.
	Seen core.Sight
	// SkipDead is needed if the relays have DeadPolicy core.SkipDead and this Outbox has not.
	SkipDead bool

	Actor, Reason string // who and why, both required and stored; at most 255 and 1024 bytes
	DryRun        bool   // check all, and change nothing
}

// Edited is the result of Edit, or of a dry run.
type Edited struct {
	ID      core.RowID `json:"id"`              // the dead row, which is discarded
	NewID   core.RowID `json:"new_id,omitzero"` // the row in its place; zero in a dry run
	EventID string     `json:"event_id"`
	Topic   string     `json:"topic"`
	Key     string     `json:"key,omitempty"`
	KeySeq  int64      `json:"key_seq,omitempty"` // the place of the new row in its key
	// Appended: the key has gone on without the event, so the new row stands at its end. Otherwise
	// it has the place of the dead row, and the events behind wait for it.
	Appended bool `json:"appended,omitempty"`
	// Diff is the difference, in lines that begin with "- " and "+ ". It is stored in the audit.
	Diff string `json:"diff"`
	// Seen is EditRequest.Seen for the event that the dry run has looked at.
	Seen core.Sight `json:"-"`
}

// Edit publishes a dead event with another content. The event gets a new row, because consumers and
// brokers have seen the row id; the event id, the type and the key stay. The dead row is discarded,
// and an audit row names both rows and has the difference. It happens in one transaction.
//
// The new row has the place of the dead row in its key: the events behind it go on waiting, and
// follow it in their order. Under core.SkipDead they have not waited, and the new row is appended
// at the end of the key, as Redrive does. A consumer that has processed the event, although its
// publisher reported a failure, takes the new row for a copy and skips it.
//
// The error wraps ErrNotFound if there is no such row, ErrChanged if it is not dead or not as it
// was seen, core.ErrInvalidEvent if Publish would refuse the new content, such as a payload above
// Config.MaxPayload, and core.ErrInvalidRequest for a request that changes nothing, or JSON that
// cannot be parsed where the old one could. Then nothing was changed. Of several people who edit,
// redrive or discard the same event at once, one succeeds.
func (a *API) Edit(ctx context.Context, req EditRequest) (Edited, error) {
	if err := req.check(); err != nil {
		return Edited{}, err
	}
	e, old, err := a.deadContent(ctx, req)
	if err != nil {
		return Edited{}, err
	}
	edit := Edit{EditRequest: req}
	edit.Seen = e.Sight()
	edit.SkipDead = req.SkipDead || a.outbox.DeadPolicy() == core.SkipDead
	content, diff, err := edit.Apply(e, old)
	if err != nil {
		return Edited{}, err
	}
	if err := a.outbox.CheckContent(eventWith(e, content)); err != nil {
		return Edited{}, err
	}
	done := Edited{
		ID:       e.ID,
		EventID:  e.EventID,
		Topic:    e.Topic,
		Key:      e.Key,
		KeySeq:   e.KeySeq,
		Appended: edit.Appends(e),
		Diff:     diff,
		Seen:     edit.Seen,
	}
	if req.DryRun {
		if done.Appended {
			done.KeySeq = 0
		}
		return done, nil
	}
	if edit.NewID, err = core.FreshRowID(e.EventID); err != nil {
		return Edited{}, err
	}
	start := time.Now()
	if done.KeySeq, done.Diff, err = a.store.EditEvent(ctx, edit); err != nil {
		return Edited{}, err
	}
	done.NewID = edit.NewID
	a.outbox.Observer().Operated(core.OperatedInfo{Action: core.OperatorEdit, Rows: 1, Duration: time.Since(start)})
	if w, ok := a.outbox.Repository().(core.Waker); ok {
		_ = w.Notify(ctx) // without it, relays find the event with their next poll
	}
	return done, nil
}

func (r *EditRequest) check() error {
	if r.ID.IsZero() {
		return invalid("{ID} is missing")
	}
	if r.Payload == nil && r.ContentType == "" && len(r.Headers) == 0 && len(r.WithoutHeaders) == 0 {
		return invalid("nothing is to be changed: set {Payload}, {ContentType}, {Headers} or {WithoutHeaders}")
	}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		if err := core.CheckHeader(name, r.Headers[name]); err != nil {
			return fmt.Errorf("%w: %w", core.ErrInvalidRequest, err)
		}
		if slices.Contains(r.WithoutHeaders, name) {
			return invalid("header %q is both set and removed", name)
		}
	}
	for _, name := range r.WithoutHeaders { // an event of another producer may have any other name
		if !strings.HasPrefix(strings.ToLower(name), core.HeaderReservedPrefix) {
			continue
		}
		if err := core.CheckHeader(name, ""); err != nil {
			return fmt.Errorf("%w: %w", core.ErrInvalidRequest, err)
		}
	}
	return checkWho(r.Actor, r.Reason)
}

// deadContent reads the row that is to be edited.
func (a *API) deadContent(ctx context.Context, req EditRequest) (e Event, c Content, err error) {
	found, err := a.Rows(ctx, req.ID)
	if err != nil {
		return e, c, err
	}
	if len(found) == 0 {
		return e, c, fmt.Errorf("%w: row %s", ErrNotFound, req.ID)
	}
	e = found[0]
	if err := (&Edit{EditRequest: req}).CheckDead(&e); err != nil {
		return e, c, err
	}
	c, ok, err := a.store.ReadContent(ctx, e.ID)
	if err == nil && !ok {
		err = fmt.Errorf("%w: row %s was deleted", ErrChanged, e.ID)
	}
	return e, c, err
}

// eventWith is the event as a caller of Publish would give it.
func eventWith(e Event, c Content) core.Event {
	headers := maps.Clone(c.Headers)
	maps.DeleteFunc(headers, func(name, value string) bool { // names that only this project sets
		return strings.HasPrefix(name, core.HeaderReservedPrefix) && core.CheckHeader(name, value) != nil
	})
	return core.Event{
		ID: e.EventID, Type: e.Type, SchemaVersion: e.SchemaVersion, Topic: e.Topic, TenantID: e.TenantID, Key: e.Key,
		AggregateType: e.AggregateType, AggregateID: e.AggregateID, AggregateVersion: e.AggregateVersion,
		OccurredAt: e.OccurredAt, ContentType: c.ContentType, Headers: headers, Payload: c.Payload,
	}
}

// Edit is a change of one dead row, for a Store. Its Seen is the Sight of a dead event.
type Edit struct {
	EditRequest
	NewID core.RowID // of the new row
}

// CheckDead returns an error wrapping ErrChanged unless the event is dead, and as it was seen.
func (c *Edit) CheckDead(e *Event) error {
	switch {
	case e.Status != StatusDead:
		return fmt.Errorf("%w: row %s is %s, and only a dead event can be edited", ErrChanged, e.ID, e.Status)
	case c.Seen != 0 && c.Seen != e.Sight():
		return fmt.Errorf("%w: row %s was redriven since, and is dead again", ErrChanged, e.ID)
	}
	return nil
}

// Appends reports whether the new row stands at the end of its key, because the key may have gone
// on.
func (c *Edit) Appends(e Event) bool { return e.KeySeq != 0 && (c.SkipDead || e.KeyID.IsZero()) }

// KeyOf returns the key of the new row. The dead row may have left its key.
func (c *Edit) KeyOf(e Event) core.KeyID {
	if e.KeySeq == 0 || !e.KeyID.IsZero() {
		return e.KeyID
	}
	key := core.NewKeyID(e.TenantID, e.Topic, e.Key)
	if !e.ReplayOf.IsZero() {
		key = core.ReplayKeyID(key)
	}
	return key
}

// Apply returns the content of the new row, and how it differs. The new row has a header with the
// id of the dead row and, if it is appended, a header with the event's first number.
func (c *Edit) Apply(e Event, old Content) (now Content, diff string, err error) {
	now = Content{ContentType: old.ContentType, Payload: old.Payload, Headers: maps.Clone(old.Headers)}
	if now.Headers == nil {
		if old.Damage != "" && len(c.Headers) == 0 {
			return now, "", invalid(
				"a part of row %s cannot be read (%s): set all {Headers} that the event needs",
				e.ID,
				old.Damage,
			)
		}
		now.Headers = map[string]string{}
	}
	if c.Payload != nil {
		now.Payload = c.Payload
	}
	if now.Payload == nil {
		now.Payload = []byte{}
	}
	if c.ContentType != "" {
		now.ContentType = c.ContentType
	}
	if c.Payload != nil || len(c.Headers) > 0 { // it has data again, which a later Erase has to find
		delete(now.Headers, core.HeaderErased)
	}
	maps.Copy(now.Headers, c.Headers)
	for _, name := range c.WithoutHeaders {
		delete(now.Headers, name)
	}
	if isJSON(now.ContentType) && !json.Valid(now.Payload) && json.Valid(old.Payload) {
		return now, "", invalid("the content type is %s, and the new payload is no JSON", now.ContentType)
	}
	if diff = contentDiff(old, now); diff == "" {
		return now, "", invalid("the new content of row %s is the old one: to publish it again, redrive it", e.ID)
	}
	now.Headers[core.HeaderEditOf] = e.ID.String()
	if _, known := now.Headers[core.HeaderFirstKeySeq]; c.Appends(e) && !known {
		now.Headers[core.HeaderFirstKeySeq] = strconv.FormatInt(e.KeySeq, 10)
	}
	return now, diff, nil
}

// Detail is the detail of the audit row: whose event it is, and the difference.
func (c *Edit) Detail(e Event, diff string) string {
	return auditSubject(e.AggregateType, e.AggregateID) + tenantLine(e.TenantID) + diff
}

// isJSON reports whether a content type denotes JSON.
func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// contentDiff returns the difference between two contents, or "".
func contentDiff(old, now Content) string {
	var b strings.Builder
	change := func(what, old string, was bool, now string, is bool) {
		if was && (!is || old != now) {
			fmt.Fprintf(&b, "- %s: %s\n", what, old)
		}
		if is && (!was || old != now) {
			fmt.Fprintf(&b, "+ %s: %s\n", what, now)
		}
	}
	change("content type", old.ContentType, old.ContentType != "", now.ContentType, now.ContentType != "")
	names := map[string]bool{}
	for _, headers := range []map[string]string{old.Headers, now.Headers} {
		for name := range headers {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		before, was := old.Headers[name]
		after, is := now.Headers[name]
		change("header "+name, before, was, after, is)
	}
	b.WriteString(textdiff.Payloads(old.Payload, now.Payload))
	// No database keeps a NUL in a text, and headers of other producers may have one.
	return textdiff.Clip(strings.ReplaceAll(strings.ToValidUTF8(b.String(), "?"), "\x00", "?"))
}
