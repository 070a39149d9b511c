-- One row per run. The document is the truth; the columns beside it are what is searched by.
CREATE TABLE jobs (
    id         TEXT   NOT NULL PRIMARY KEY,
    owner      TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    status     TEXT   NOT NULL,
    is_final   BIGINT NOT NULL,
    idem_key   TEXT,
    snapshot   TEXT,
    place      BIGINT NOT NULL,
    submitted  BIGINT NOT NULL,
    finished   BIGINT,
    document   TEXT   NOT NULL
);

CREATE UNIQUE INDEX jobs_by_key ON jobs (owner, idem_key) WHERE idem_key IS NOT NULL;
CREATE INDEX jobs_by_owner ON jobs (owner, id);
CREATE INDEX jobs_by_name ON jobs (owner, name, id);
CREATE INDEX jobs_active ON jobs (place) WHERE is_final = 0;
CREATE INDEX jobs_finished ON jobs (owner, finished) WHERE is_final = 1;
