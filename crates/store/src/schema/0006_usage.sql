-- What jobs used that have left the history, by day (since 1970-01-01). Amounts are times milliseconds.
CREATE TABLE usage_days (
    owner  TEXT   NOT NULL,
    day    BIGINT NOT NULL,
    jobs   BIGINT NOT NULL,
    millis BIGINT NOT NULL,
    mib    BIGINT NOT NULL,
    cards  BIGINT NOT NULL,
    PRIMARY KEY (owner, day)
);

-- Runs whose records a restored backup does not have: their logs and files belong to somebody and stay.
CREATE TABLE unknown_runs (
    after_id TEXT NOT NULL,
    upto_id  TEXT NOT NULL
);
