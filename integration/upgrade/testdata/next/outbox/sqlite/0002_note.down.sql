DROP TABLE IF EXISTS {{name:note}};
ALTER TABLE {{event}} DROP COLUMN note;
