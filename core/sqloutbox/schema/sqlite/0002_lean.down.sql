-- A dead row that left its key becomes one without a key.
UPDATE {{event}} SET key_seq = NULL WHERE lane IS NULL AND key_seq IS NOT NULL;
CREATE INDEX IF NOT EXISTS {{name:event_open}} ON {{event}} (lane, key_seq) WHERE status IN (0, 2) AND lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS {{name:event_blocked}} ON {{event}} (lane, key_seq) WHERE status = 3 AND lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS {{name:event_done}} ON {{event}} (done_at) WHERE status IN (1, 4);
DROP INDEX IF EXISTS {{index:event_key}};
