package crash

import (
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// sink returns where the child publishes.
func (s Spec) sink(ledger *Client) (core.Publisher, error) {
	switch s.Sink {
	case ToLedger:
		return ledger, nil
	case ToKafka:
		return kafkabridge.NewPublisher(kafkabridge.Config{Brokers: []string{s.SinkAddr}, PublishTimeout: publishTimeout})
	}
	return nil, fmt.Errorf("no sink %q", s.Sink)
}
