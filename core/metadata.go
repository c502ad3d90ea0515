package core

import (
	"maps"
	"strconv"
	"time"
)

// Metadata returns the event's headers and its fields, under the names HeaderEventID and so on, all
// as text. Fields that are empty or zero are left out. The map is the caller's. Publishers send it
// as the headers of the message, so that an inbox and watermillbridge.EventFromMessage find the
// fields again.
func (d Delivery) Metadata() map[string]string {
	md := make(map[string]string, len(d.Headers)+14)
	maps.Copy(md, d.Headers)
	text := func(name, v string) {
		if v != "" {
			md[name] = v
		}
	}
	number := func(name string, v int64) {
		if v != 0 {
			md[name] = strconv.FormatInt(v, 10)
		}
	}
	text(HeaderEventID, d.ID)
	text(HeaderEventType, d.Type)
	number(HeaderSchemaVersion, int64(d.SchemaVersion))
	text(HeaderAggregateType, d.AggregateType)
	text(HeaderAggregateID, d.AggregateID)
	number(HeaderAggregateVersion, d.AggregateVersion)
	text(HeaderTenantID, d.TenantID)
	text(HeaderPartitionKey, d.Key)
	number(HeaderKeySeq, d.KeySeq)
	text(HeaderContentType, d.ContentType)
	number(HeaderAttempt, int64(d.Attempt))
	if !d.OccurredAt.IsZero() {
		md[HeaderOccurredAt] = d.OccurredAt.UTC().Format(time.RFC3339Nano)
	}
	if !d.RowID.IsZero() {
		md[HeaderRowID] = d.RowID.String()
	}
	if !d.ReplayOf.IsZero() {
		md[HeaderReplayOf] = d.ReplayOf.String()
	}
	return md
}
