// Package redisbridge classifies errors of Redis for an outbox that publishes to Redis streams
// through watermill-redisstream.
//
//	pub, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client}, logger)
//	publisher, err := watermillbridge.NewPublisher(pub, watermillbridge.Config{Classifier: redisbridge.Classify})
//
// Without it, a Redis that loads its data, fails over or is full looks like a refusal of each
// event.
package redisbridge
