// Package httpbridge publishes an outbox to webhooks. It needs the standard library alone.
//
//	publisher, err := httpbridge.NewPublisher(httpbridge.Config{Endpoints: map[string]httpbridge.Endpoint{
//		"orders": {URL: "https://partner.example/hooks/orders", Secrets: []string{secret}},
//	}})
//	outbox, err := core.New(core.Config{Repository: repository, Publisher: publisher})
//
// Each event is one POST. [Publisher.Send] posts other messages with the same client and the same
// answers: call it in the handler of an effect (package core/once/command), where each subscriber
// has a URL and a secret of its own.
//
// # What a request carries
//
//	body                 the payload, byte for byte
//	Content-Type         Event.ContentType
//	Idempotency-Key      the row id: the same for every attempt, another one for a replay
//	webhook-id           the event id: the same for every attempt and every replay
//	webhook-timestamp    the time of this attempt, in seconds
//	webhook-signature    of id, timestamp and body, and of Message-Metadata, Idempotency-Key and
//	                     Message-Uuid with them, for each secret of the endpoint
//	Message-Metadata     all headers and fields of the event, exactly, as a JSON object
//	Message-Uuid         the UUID of the message of Watermill
//
// Headers of the event are sent under their own names too, if HTTP can carry them: traceparent, for
// example. HTTP does not keep the case of names, and some proxies drop names with an underscore and
// values that are not ASCII. Message-Metadata survives that. [Metadata] reads it, and so does the
// subscriber of watermill-http.
//
// The three webhook headers follow Standard Webhooks 1.0. Receivers check all that they read with
// [Verify], or the body alone with a library of https://www.standardwebhooks.com. [VerifyStandard]
// checks requests of other senders. An endpoint without secrets gets no signature.
//
// # What an answer means
//
// [ClassOfStatus] lists every status. 2xx is accepted. An endpoint that is down, throttles, has
// moved or rejects the client's credentials stops its topic, and its events spend no attempt. A
// request that is wrong in itself (400, 413, 422) makes the event DEAD, and so does 410: the
// receiver wants no more events. Retry-After is honoured: nothing is sent to the endpoint before it
// is over, and its topic is stopped for that time. Redirects are not followed, because they would
// take the event to an endpoint that is not configured.
//
// # Addresses
//
// A URL that somebody else has chosen may point into your own network. The address of each
// connection is checked when it is opened, after DNS has answered: loopback, private, link-local
// and other special networks are refused, the metadata services of clouds among them.
// Config.AllowAddresses lists exceptions.
package httpbridge
