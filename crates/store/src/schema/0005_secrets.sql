-- Secrets of users and credentials of their registries, sealed with a key that is not in the database.
CREATE TABLE secrets (
    owner   TEXT   NOT NULL,
    kind    TEXT   NOT NULL,
    name    TEXT   NOT NULL,
    sealed  TEXT   NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (owner, kind, name)
);
