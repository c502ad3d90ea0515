-- Debezium reads the inserts of the rows that are for it, and neither marks of a relay nor deletes
-- of the cleanup. With partitions, all are rows of outbox_event.
CREATE PUBLICATION outbox_debezium FOR TABLE outbox_event WHERE (claimed_by = 'log')
    WITH (publish = 'insert', publish_via_partition_root = true);

-- Debezium needs no more rights than these.
CREATE ROLE debezium LOGIN REPLICATION PASSWORD 'secret';
GRANT SELECT ON outbox_event TO debezium;

-- The slot comes before the first process with RelayedByLog: Debezium sends what commits from here
-- on.
SELECT pg_create_logical_replication_slot('outbox_debezium', 'pgoutput');
