-- Accounts and groups as documents; what is searched by stands beside them. A deleted account keeps its row, so that its
-- number is never given to another, but leaves its name: `folded` then ends with the number.
CREATE TABLE accounts (
    id       BIGINT NOT NULL PRIMARY KEY,
    folded   TEXT   NOT NULL UNIQUE,
    document TEXT   NOT NULL
);

CREATE TABLE account_groups (
    name     TEXT NOT NULL PRIMARY KEY,
    document TEXT NOT NULL
);

-- A token belongs to an account, not to its name. 0: an account of the configuration.
ALTER TABLE tokens ADD COLUMN id TEXT NOT NULL DEFAULT '';
ALTER TABLE tokens ADD COLUMN name TEXT NOT NULL DEFAULT 'login';
ALTER TABLE tokens ADD COLUMN account BIGINT NOT NULL DEFAULT 0;
ALTER TABLE tokens ADD COLUMN created BIGINT NOT NULL DEFAULT 0;
-- When the first of a row of renewed tokens was handed out.
ALTER TABLE tokens ADD COLUMN since BIGINT NOT NULL DEFAULT 0;
CREATE INDEX tokens_by_owner ON tokens (owner);

-- Who changed what. Every row's digest covers the row before it; the head says which row is the last.
CREATE TABLE audit (
    seq     BIGINT NOT NULL PRIMARY KEY,
    id      TEXT   NOT NULL UNIQUE,
    at      BIGINT NOT NULL,
    actor   TEXT   NOT NULL,
    action  TEXT   NOT NULL,
    subject TEXT   NOT NULL,
    detail  TEXT   NOT NULL,
    request TEXT   NOT NULL,
    digest  TEXT   NOT NULL
);

CREATE TABLE audit_head (
    one    BIGINT NOT NULL PRIMARY KEY,
    seq    BIGINT NOT NULL,
    digest TEXT   NOT NULL
);
