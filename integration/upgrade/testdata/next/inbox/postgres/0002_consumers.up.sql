CREATE TABLE IF NOT EXISTS {{name:inbox_consumer}} (
    consumer text COLLATE "C" NOT NULL PRIMARY KEY
);
INSERT INTO {{name:inbox_consumer}} (consumer) SELECT DISTINCT consumer FROM {{handler}} ON CONFLICT DO NOTHING;
