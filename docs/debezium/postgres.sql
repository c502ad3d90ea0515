-- Only inserts of rows for Debezium: no marks of a relay, no deletes of the cleanup.
CREATE PUBLICATION outbox_debezium FOR TABLE outbox_event WHERE (claimed_by = 'log')
    WITH (publish = 'insert', publish_via_partition_root = true);

-- Debezium needs no more rights than these.
CREATE ROLE debezium LOGIN REPLICATION PASSWORD 'secret';
GRANT SELECT ON outbox_event TO debezium;

-- Make the slot before the first process with RelayedByLog: Debezium sends only later commits.
SELECT pg_create_logical_replication_slot('outbox_debezium', 'pgoutput');
