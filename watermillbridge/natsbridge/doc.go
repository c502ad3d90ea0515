// Package natsbridge classifies errors of NATS for an outbox that publishes to JetStream through
// watermill-nats.
//
//	// watermill-nats: JetStream is on, TrackMsgId stays false
//	pub, err := nats.NewPublisher(nats.PublisherConfig{URL: url}, logger)
//	publisher, err := watermillbridge.NewPublisher(pub, watermillbridge.Config{
//		Classifier:    natsbridge.Classify,
//		RowIDMetadata: natsbridge.RowIDMetadata,
//	})
//
// Without it, an outage of NATS looks like a refusal of each event, because the NATS client has
// errors of its own.
package natsbridge
