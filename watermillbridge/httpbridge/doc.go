// Package httpbridge classifies the answers to webhooks for an outbox that publishes them through
// watermill-http.
//
//	pub, err := http.NewPublisher(http.PublisherConfig{
//		MarshalMessageFunc: http.DefaultMarshalMessageFunc, Client: client,
//	}, logger)
//	publisher, err := watermillbridge.NewPublisher(pub, watermillbridge.Config{Classifier: httpbridge.Classify})
//
// Without it, an endpoint that is down for a while looks like a refusal of each event. Give the
// client a timeout below core.Config.PublishTimeout. Give it a CheckRedirect too: a redirect to
// another host takes the event with it.
package httpbridge
