// Package suite is for authors of adapters, tables, stores and publishers. It has the tests that each
// implementation of an interface of core, once and inbox must pass:
//
//   - TestRepository: core.Repository, the tables of the outbox
//   - TestAdapter: the transactions of an ORM or a driver, with an outbox in them
//   - TestCapture: the events that an adapter makes of the statements of its ORM
//   - TestOnceStore and TestOnceTxStore: once.Store and once.TxStore, the keys
//   - TestInboxStore: inbox.Store, the processed events of an inbox
//   - TestPublisher and TestPublishersAway: core.Publisher, together with the broker to which it
//     publishes; package watermillbridge/bridgetest opens a Pub/Sub of Watermill for them
//
// Each test takes a harness, which gives access to the implementation, and runs its cases as
// parallel subtests. The cases check the promises in the comments of the interfaces, from outside
// the implementation:
//
//	func TestRepository(t *testing.T) {
//		suite.TestRepository(t, suite.RepositoryHarness{New: func(t *testing.T) suite.Backend {
//			return suite.Backend{Repository: ..., Store: ..., Begin: ..., Lock: ..., Audits: ...}
//		}})
//	}
//
// Tests of services use package outboxtest.
package suite
