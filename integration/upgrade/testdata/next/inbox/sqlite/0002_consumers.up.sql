CREATE TABLE IF NOT EXISTS {{name:inbox_consumer}} (
    consumer TEXT NOT NULL PRIMARY KEY
);
INSERT OR IGNORE INTO {{name:inbox_consumer}} (consumer) SELECT DISTINCT consumer FROM {{handler}};
