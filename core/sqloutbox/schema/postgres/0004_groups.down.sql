SELECT set_config('lock_timeout', '3s', true);
ALTER TABLE {{event}} DROP COLUMN IF EXISTS error_group;
ALTER TABLE {{pause}} DROP COLUMN IF EXISTS in_flight;
ALTER TABLE {{pause}} DROP COLUMN IF EXISTS per_second;
DROP TABLE IF EXISTS {{group}};
