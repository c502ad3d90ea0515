package franzbridge

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
)

var _ inbox.Sender = (*Publisher)(nil)

// Send implements inbox.Sender: it sends a message that was parked back to its topic. The key of the
// record is the header partition_key. It ends with ctx, or after Config.PublishTimeout.
func (p *Publisher) Send(ctx context.Context, topic string, msg inbox.Message) error {
	if err := checkTopic(topic); err != nil {
		return err
	}
	r := &kgo.Record{Topic: topic, Value: msg.Payload}
	if r.Value == nil {
		r.Value = []byte{} // a missing payload is a deletion on a compacted topic
	}
	if key := msg.Headers[core.HeaderPartitionKey]; key != "" {
		r.Key = []byte(key)
	}
	if msg.UUID != "" {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: uuidHeader, Value: []byte(msg.UUID)})
	}
	for _, name := range slices.Sorted(maps.Keys(msg.Headers)) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(msg.Headers[name])})
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.PublishTimeout)
	defer cancel()
	result := make(chan error, 2) // a message whose context ends may have two results
	p.produce(ctx, topic, r, func(_ string, err error) {
		select {
		case result <- err:
		default:
		}
	})
	if err := <-result; err != nil {
		return fmt.Errorf("franzbridge: %w", err)
	}
	return nil
}
