package core

import (
	"encoding/json"
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

// CompactMetadata is Metadata with all fields in one entry, HeaderFields, as JSON. The headers of
// the event stay entries of their own. Use it for a broker that takes few headers, such as AWS. An
// inbox and watermillbridge.EventFromMessage read both forms.
func (d Delivery) CompactMetadata() map[string]string {
	md := d.Metadata()
	fields := map[string]string{}
	for name, v := range md {
		if name != HeaderMessage && reservedHeader(name) {
			fields[name] = v
			delete(md, name)
		}
	}
	text, _ := json.Marshal(fields) // texts can always be written
	md[HeaderFields] = string(text)
	return md
}

// UnpackFields returns the entries of Metadata for those of CompactMetadata. Any other metadata are
// returned as they are. md is not changed.
func UnpackFields(md map[string]string) map[string]string {
	text, ok := md[HeaderFields]
	if !ok {
		return md
	}
	var fields map[string]string
	if json.Unmarshal([]byte(text), &fields) != nil {
		return md // of another program
	}
	all := maps.Clone(md)
	delete(all, HeaderFields)
	for name, v := range fields {
		if name != HeaderFields && reservedHeader(name) {
			all[name] = v
		}
	}
	return all
}
