// Package natsbridge says what errors of NATS mean to an outbox that publishes to JetStream through
// watermill-nats.
//
//	// watermill-nats: JetStream is on, TrackMsgId stays false
//	pub, err := nats.NewPublisher(nats.PublisherConfig{URL: url}, logger)
//	publisher, err := watermillbridge.NewPublisher(pub, watermillbridge.Config{
//		Classifier:    natsbridge.Classify,
//		RowIDMetadata: natsbridge.RowIDMetadata,
//	})
//
// Without it, an outage of NATS that its client reports in words of its own looks like a refusal of
// each event.
package natsbridge
