// Package core is the transactional outbox without an ORM. Events are rows that are written in the
// transaction that changes the business state. After the commit the relay of package core/relay
// sends them through a Publisher.
//
//	repo, err := sqloutbox.New(pool, sqloutbox.Config{})
//	err = repo.Migrate(ctx) // or apply what sqloutbox.Migrations returns
//	ob, err := core.New(core.Config{Repository: repo, Publisher: publisher, Relay: relay.Config{}})
//	go ob.Run(ctx)
//
//	tx, err := sqltx.Begin(ctx, pool, nil, repo.Dialect())
//	_, err = tx.ExecContext(ctx, "UPDATE orders SET status = 'placed' WHERE id = 7")
//	_, err = ob.Publish(ctx, tx, core.Event{
//		Type: "order.placed", AggregateType: "order", AggregateID: "7", Data: order,
//	})
//	err = tx.Commit() // after an error above: tx.Rollback()
//
// The outbox promises, as long as the database keeps its commits:
//
//   - A committed event is never lost. An event of a rolled-back transaction is never published.
//   - An event is delivered at least once, and exactly once when nothing fails.
//   - The first copies of the events of one key and topic are published in the order of their
//     commits.
//
// The outbox does not promise order between keys or between topics. It does not promise
// exactly-once delivery: consumers deduplicate by Event.ID. Its promises end with the durability of
// the database and the acknowledgement of the broker.
//
// # How an event travels
//
// Publish validates and encodes the event, reserves a slot in memory, and inserts the row already
// leased to this process. The commit hands the event to the dispatcher without a query: this is the
// fast path. The poller claims the rows that the fast path does not have: after a crash, when the
// fast path was full, for a retry or a delay, or from a process that does not relay. In both cases
// one process at a time publishes the row. The marks are then written in batches.
//
// A row is NEW, RETRY, DONE, DEAD or DISCARDED. A claimed row has no status of its own, but a lease
// that expires. Any process may record that a destination acknowledged an event. Every other report
// of a process counts only while the process holds the claim.
//
// # For services
//
// A service needs no other names than these. Tables and transactions come from the packages
// sqloutbox and sqltx, or from the modules gormoutbox, entoutbox and bunoutbox. Publishers come
// from module watermillbridge. Package outboxtest has a table in memory and a publisher for tests.
//
//   - To set up: [New], [Outbox], [Config] with [WakePolicy], [DeadPolicy], [BacklogLimit] with its
//     [BacklogFullError], and [Codec]. Its field Relay is a [RelayConfig]: relay.Config of package
//     core/relay. An archive gets each [ArchivedEvent] before it is deleted, at most [ArchiveRows] and
//     [ArchiveBytes] at once.
//   - To record events: [Event], [EventTyper], [Recorder] and [Op]; [NewEventID] and
//     [DeriveEventID] where an id is needed before the event is published.
//   - Transactions: [Tx] with its [Dialect], [Outcome] and [Rows]; [Transactor], [TxFromContext];
//     sqltx.Retryable reports whether to run a transaction again, and sqltx.RetryTx does so. A
//     [Migration] changes the tables of a package.
//   - To write a publisher: [Publisher] or [PublisherFunc], which gets a [Delivery]; [Router], made
//     by [NewRouter], combines several. [Permanent], [Transient], [Unavailable], [UnavailableFor],
//     [UnavailableForKey], [Unroutable] and [PutOff] classify an error. A publisher may also be an
//     [AsyncPublisher], [LatePublisher], [ReceiptPublisher], [SizeChecker], [TopicLister] or
//     [TopicNamer]. [ClassOf] and [DefaultClassifier] return the [Class] of an error. [CheckHeader]
//     reports why an event cannot carry a header. [UnpackFields] reads the metadata of a compact
//     message.
//   - To watch: [Observer] and [TeeObserver], with [ClaimInfo], [PublishInfo], [PublishResult],
//     [Path], [FallbackReason], [ProbeInfo], [OperatedInfo], [OperatorAction] and [PanicError].
//     [Tracer] is for traces. [ErrorText] returns the text of an error without credentials.
//   - To operate: [Backlog], [DeadQuery], [DeadEvent], [AdminRequest] with [Sight], [RowID],
//     [StoppedDestination], [AuditQuery] with [AuditRecord], and [RelayStatus] with its
//     [RelayState] and [RelayAlive]. [PauseRequest], [ResumeRequest] and [Pause] stop a destination
//     and let it go on, and [RateRequest] and [Rate] limit its events; [Settings] are both. A
//     [FieldError] names the wrong fields of a request. [TypeBacklog] counts by type, [LogBacklog]
//     measures a reader of the log. [Health] is for probes, and package health answers them. Package
//     ops lists, explains, groups and changes events.
//
// # For authors of tables
//
// A table of the outbox implements [Repository], which is [Writer], [Claimer], [Operations] and
// [Registry], and may implement [InsertDeferrer], [Waker] and [Historian]. Package outboxtest/suite has
// the tests that it must pass. A service never calls these:
//
//   - Its tables: [Migration].
//   - Writing: [InsertRequest], [NewRow], [Inserted], [Deferral]. Row ids: [NewRowID],
//     [FreshRowID], [RowIDRange], [ParseRowID].
//   - Claims: [ClaimRequest], [Claimed], [ClaimRef], [PathOf], [LockedError], [Suspicious],
//     [ServedTopicPrefix].
//   - Results: [Done], [Failure] and [FailureKind].
//   - Upkeep: [Heartbeat], [CleanupRequest], [Warning] and [ErrorKind].
//   - History: [HistoryCounts], [HistoryEntry], [HistorySlot] and [HistoryKept].
//   - Order: [KeyID], [NewKeyID], [ReplayKeyID], [KeyIDPrefix].
//
// # For the relay
//
// Package core/relay publishes. A [Relay] gives a [RelayReport] of itself, and a [Reservation] to
// each Publish. The writing side uses nothing else of it. A service never calls these.
//
// # For authors of adapters
//
// An adapter implements [Tx] and [Transactor] for an ORM or a driver; package sqltx has most of
// this for database/sql. Package outboxtest/suite has the tests that it must pass. A service never
// calls these:
//
//   - [ContextWithTx] puts the transaction into a context; [CheckTransactor] refuses a Transactor
//     that can never begin.
//   - [RecorderOf], [CheckRecorder] and [CheckModel] find recorded events, and models that would
//     lose them. [MarkRecorders], a [RecorderMark] and [UndoRecorded] put a Recorder back after a
//     rollback.
//   - [NewPanicError] and [DefaultLogger] make components behave as this package does.
package core
