// Package integration has no tests of its own. The packages below it have the tests that need
// servers, and drivers, ORMs and broker clients that the released modules must not pull in. The
// module is never tagged and never imported.
//
//   - repository: the tables of core/sqloutbox: the repository suite, statements, plans,
//     migrations, damaged rows
//   - relay: the relay on each database: paths, retries, dead events, claims of dead processes
//   - sql, gorm, ent, bun: how transactions are followed and events are captured; the adapter suite
//     over each
//   - pgxoutbox: PostgreSQL over pgx, below each of them
//   - once, redisonce: stores of idempotency keys, in SQL and in Redis
//   - httpkey: HTTP requests with an Idempotency-Key
//   - command: commands and side effects
//   - inbox: consumers that do the work of an event once
//   - brokers: Kafka, RabbitMQ, NATS and Redis behind the bridges
//   - languages: consumers in Python, Node and Java (`make test-languages`)
//   - wake: the news that another process has committed events
//   - walrelay, debezium: relays that read the log of the database
//   - endtoend: from the business to the consumer, over every adapter and broker
//   - crash: processes that are killed, hang or lose their connections at the worst moment
//   - ops, cli: the actions of operators, and the command outbox
//   - metrics, tracing, monitoring: instruments, spans, alert rules and dashboards
//   - migrating, upgrade: tables of another library, and two versions of the code on one table
//   - cloudevents: events in the form of CloudEvents
//   - docs, workspace: the pages, and the modules as their users get them
//   - mutants: a command that breaks the code in one place at a time and requires that a test fails
//
// Most of them use internal/fixture.
package integration
