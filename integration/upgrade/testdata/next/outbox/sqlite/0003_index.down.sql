DROP INDEX IF EXISTS {{name:event_note}};
CREATE INDEX IF NOT EXISTS {{name:audit_row}} ON {{audit}} (row_id);
