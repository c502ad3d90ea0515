CREATE INDEX IF NOT EXISTS {{name:event_note}} ON {{event}} (note);
DROP INDEX IF EXISTS {{name:audit_row}};
