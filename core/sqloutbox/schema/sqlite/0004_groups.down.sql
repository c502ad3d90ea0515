ALTER TABLE {{event}} DROP COLUMN error_group;
ALTER TABLE {{pause}} DROP COLUMN in_flight;
ALTER TABLE {{pause}} DROP COLUMN per_second;
DROP TABLE IF EXISTS {{group}};
