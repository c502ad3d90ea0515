-- Nobody waits for long behind this lock.
SELECT set_config('lock_timeout', '3s', true);
ALTER TABLE {{event}} ADD COLUMN IF NOT EXISTS note text COLLATE "C";
CREATE TABLE IF NOT EXISTS {{name:note}} (
    id   uuid NOT NULL PRIMARY KEY,
    note text NOT NULL
);
