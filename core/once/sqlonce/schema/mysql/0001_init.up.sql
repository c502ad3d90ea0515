-- Work that is done once per key. For MariaDB 10.6 or newer and MySQL 8.0.16 or newer. All times
-- are UTC.
-- status: 0 FREE (its work failed), 1 HELD, 2 DONE. A key is held while lease_until lies ahead, and
-- forgotten after expires_at. Keys are binary because comparisons of texts ignore blanks at the
-- end. A duplicate counts up seen, so that the number of affected rows tells it from an insert,
-- whatever the driver counts.
CREATE TABLE IF NOT EXISTS {{key}} (
    scope       VARBINARY(255) NOT NULL,
    tenant      VARBINARY(64)  NOT NULL,
    id          VARBINARY(255) NOT NULL,
    fingerprint VARBINARY(32),
    status      TINYINT        NOT NULL,
    owner       VARBINARY(255) NOT NULL,
    fence       BIGINT         NOT NULL,
    attempts    INT            NOT NULL,
    seen        BIGINT         NOT NULL DEFAULT 0,
    lease_until DATETIME(6),
    result      LONGBLOB,
    result_type VARCHAR(127),
    result_meta TEXT,
    created_at  DATETIME(6)    NOT NULL,
    updated_at  DATETIME(6)    NOT NULL,
    done_at     DATETIME(6),
    expires_at  DATETIME(6)    NOT NULL,
    PRIMARY KEY (scope, tenant, id),
    KEY {{name:idempotency_key_expires}} (expires_at),
    CONSTRAINT {{name:idempotency_key_status}} CHECK (status BETWEEN 0 AND 2),
    CONSTRAINT {{name:idempotency_key_lease}} CHECK ((status = 1) = (lease_until IS NOT NULL))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC;

-- The programs that use the keys of a scope. Two programs under one name get the results of each
-- other, most often by mistake. program is the path of a main package.
CREATE TABLE IF NOT EXISTS {{program}} (
    scope   VARBINARY(255) NOT NULL,
    program VARBINARY(255) NOT NULL,
    seen_at DATETIME(6)    NOT NULL,
    PRIMARY KEY (scope, program)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC;
