CREATE TABLE IF NOT EXISTS {{name:inbox_consumer}} (
    consumer VARBINARY(128) NOT NULL PRIMARY KEY
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
INSERT IGNORE INTO {{name:inbox_consumer}} (consumer) SELECT DISTINCT consumer FROM {{handler}};
