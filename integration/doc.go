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
//   - once, httpkey, command, redisonce, inbox: work that happens once, requests, effects,
//     consumers
//   - brokers: Kafka, RabbitMQ, NATS and Redis behind the bridges
//   - endtoend: from the business to the consumer, over every adapter and broker
//   - crash: processes that are killed, hang or lose their connections at the worst moment
//   - workspace: the modules of this repository as their users get them
//   - mutants: a command that breaks the code in one place at a time and requires that a test fails
//
// All of them use internal/fixture.
package integration
