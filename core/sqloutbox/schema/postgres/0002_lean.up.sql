-- Fewer indexes and no CHECKs, because each of them cost every insert and every mark. Stop all
-- processes of the version before first: their claims would have no index any more.
ALTER TABLE {{event}} DROP CONSTRAINT IF EXISTS {{name:event_status}};
ALTER TABLE {{event}} DROP CONSTRAINT IF EXISTS {{name:event_lane}};

-- The open and the dead rows of each key, in order: the first row of a key decides whether anything
-- of the key can be claimed.
CREATE INDEX IF NOT EXISTS {{name:event_key}} ON {{event}} (lane, key_seq) WHERE status IN (0, 2, 3) AND lane IS NOT NULL;
DROP INDEX IF EXISTS {{index:event_open}};
DROP INDEX IF EXISTS {{index:event_blocked}};
-- The cleanup walks the primary key.
DROP INDEX IF EXISTS {{index:event_done}};
