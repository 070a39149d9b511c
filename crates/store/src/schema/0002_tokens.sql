-- Tokens are kept as digests: whoever reads this table cannot log in with it.
CREATE TABLE tokens (
    digest     TEXT   NOT NULL PRIMARY KEY,
    owner      TEXT   NOT NULL,
    credential TEXT   NOT NULL,
    expires    BIGINT NOT NULL
);

CREATE INDEX tokens_by_expiry ON tokens (expires);
