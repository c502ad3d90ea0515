package franzbridge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
)

const (
	// uuidHeader is the header in which watermill-kafka sends and expects the id of a message.
	uuidHeader = "_watermill_message_uuid"
	// natsMsgID names a message for one stream of NATS.
	natsMsgID = "Nats-Msg-Id"
	// recordBatchOverhead is what the client counts for a batch without messages.
	recordBatchOverhead = 65
	// besidePayload is an upper limit for the key, the headers and the fields of an event.
	besidePayload = 32 << 10
)

// newRecord returns the message of a delivery, which has the headers that kafkabridge writes. It
// shares the payload. mapper may be nil.
func newRecord(d *core.Delivery, mapper *cloudevents.Mapper) (*kgo.Record, error) {
	r := &kgo.Record{Topic: d.Topic, Value: d.Payload}
	if r.Value == nil {
		r.Value = []byte{} // a missing payload is a deletion on a compacted topic
	}
	if d.Key != "" {
		r.Key = []byte(d.Key)
	}
	h := headers{list: make([]kgo.RecordHeader, 1, 14+len(d.Headers))}
	if mapper != nil {
		ce, err := mapper.Message(*d)
		if err != nil {
			return nil, err
		}
		r.Value = ce.Body
		h.ce = ce.Headers
		if _, ok := h.ce[core.HeaderContentType]; !ok && mapper.Mode == cloudevents.ModeStructured {
			h.ce = maps.Clone(h.ce)
			h.ce[core.HeaderContentType] = ce.ContentType()
		}
	}
	uuid := h.user(d.Headers, mapper)
	uuid = cmp.Or(uuid, d.ID)
	h.list[0] = kgo.RecordHeader{Key: uuidHeader, Value: []byte(uuid)}
	h.fields(d)
	for _, name := range slices.Sorted(maps.Keys(h.ce)) {
		h.list = append(h.list, kgo.RecordHeader{Key: name, Value: []byte(h.ce[name])})
	}
	r.Headers = h.list
	return r, nil
}

// headers collects the headers of a message. ce are a CloudEvent's headers, which win.
type headers struct {
	list []kgo.RecordHeader
	ce   map[string]string
}

func (h *headers) add(name, value string) {
	if h.ce != nil {
		if _, ok := h.ce[name]; ok {
			return
		}
	}
	h.list = append(h.list, kgo.RecordHeader{Key: name, Value: []byte(value)})
}

// user adds the headers of the event, in the order of their names. It returns the UUID of the
// message from which the event was made, if it came with one.
func (h *headers) user(of map[string]string, mapper *cloudevents.Mapper) (uuid string) {
	if len(of) == 0 {
		return ""
	}
	if text, ok := of[core.HeaderMessage]; ok {
		var c struct {
			UUID     string            `json:"uuid"`
			Metadata map[string]string `json:"metadata"`
		}
		// A value that another program has written stays.
		if json.Unmarshal([]byte(text), &c) == nil {
			uuid = c.UUID
			of = maps.Clone(of)
			delete(of, core.HeaderMessage)
			for name, value := range c.Metadata {
				if !reserved(name) {
					of[name] = value
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if mapper != nil && mapper.Collides(name) {
			continue
		}
		h.add(name, of[name])
	}
	return uuid
}

// reserved reports whether a header belongs to the outbox or to one journey of a message.
func reserved(name string) bool {
	switch name {
	case core.HeaderEventID, core.HeaderEventType, core.HeaderSchemaVersion, core.HeaderAggregateType,
		core.HeaderAggregateID, core.HeaderAggregateVersion, core.HeaderTenantID, core.HeaderPartitionKey,
		core.HeaderKeySeq, core.HeaderOccurredAt, core.HeaderContentType, core.HeaderAttempt, core.HeaderReplayOf,
		core.HeaderRowID, core.HeaderSource, core.HeaderMessage, uuidHeader, natsMsgID:
		return true
	}
	return false
}

// fields adds the fields of the event. Those that are empty or zero are left out.
func (h *headers) fields(d *core.Delivery) {
	text := func(name, v string) {
		if v != "" {
			h.add(name, v)
		}
	}
	number := func(name string, v int64) {
		if v != 0 {
			h.add(name, strconv.FormatInt(v, 10))
		}
	}
	text(core.HeaderEventID, d.ID)
	text(core.HeaderEventType, d.Type)
	number(core.HeaderSchemaVersion, int64(d.SchemaVersion))
	text(core.HeaderAggregateType, d.AggregateType)
	text(core.HeaderAggregateID, d.AggregateID)
	number(core.HeaderAggregateVersion, d.AggregateVersion)
	text(core.HeaderTenantID, d.TenantID)
	text(core.HeaderPartitionKey, d.Key)
	number(core.HeaderKeySeq, d.KeySeq)
	text(core.HeaderContentType, d.ContentType)
	number(core.HeaderAttempt, int64(d.Attempt))
	if !d.OccurredAt.IsZero() {
		h.add(core.HeaderOccurredAt, d.OccurredAt.UTC().Format(time.RFC3339Nano))
	}
	if !d.RowID.IsZero() {
		h.add(core.HeaderRowID, d.RowID.String())
	}
	if !d.ReplayOf.IsZero() {
		h.add(core.HeaderReplayOf, d.ReplayOf.String())
	}
}

// CheckSize implements core.SizeChecker. It refuses an event whose message would be larger than the
// largest batch, also with later attempts and as a replay. It also refuses an event whose topic has
// no name in Kafka, and one that Config.CloudEvents cannot send. It builds no message for events
// far below the limit. It waits for nothing, because it is called in transactions.
func (p *Publisher) CheckSize(e core.Event) error {
	if err := checkTopic(e.Topic); err != nil {
		return err
	}
	mapper := p.cfg.CloudEvents
	if mapper != nil {
		if err := mapper.Check(e); err != nil {
			return err
		}
	}
	payload, beside := len(e.Payload), besidePayload
	if mapper != nil { // base64, and attributes beside the fields
		payload, beside = payload/3*4, 3*besidePayload
	}
	limit := p.largest(e.Topic)
	if payload <= limit-beside {
		return nil
	}
	id := core.RowID{1}
	d := core.Delivery{Event: e, RowID: id, KeySeq: math.MaxInt64, Attempt: math.MaxInt32, ReplayOf: id}
	r, err := newRecord(&d, mapper)
	if err != nil {
		return nil //nolint:nilerr // it is left to the relay
	}
	if size := batchSize(r); size > limit {
		return fmt.Errorf("franzbridge: the message would have %d bytes with key and headers, more than "+
			"ProducerBatchMaxBytes %d: store the payload elsewhere and send a reference, or raise "+
			"kgo.ProducerBatchMaxBytes in Config.Options together with max.message.bytes of the topic", size, limit)
	}
	return nil
}

// batchSize is the size of a batch with this message alone, as the client counts it.
func batchSize(r *kgo.Record) int {
	length := 1 + 1 + 1 + varint(len(r.Key)) + len(r.Key) + varint(len(r.Value)) + len(r.Value) + varint(len(r.Headers))
	for _, h := range r.Headers {
		length += varint(len(h.Key)) + len(h.Key) + varint(len(h.Value)) + len(h.Value)
	}
	return recordBatchOverhead + varint(length) + length
}

// varint is the length of n as a zigzag varint.
func varint(n int) int { return max(1, (bits.Len64(uint64(n)<<1)+6)/7) }

// describe names an event in an error.
func describe(d *core.Delivery) string { return strings.TrimSpace(d.Type + " " + d.ID) }
