-- What a token may be used for. Tokens of an earlier version could be used for everything that their owner may do.
ALTER TABLE tokens ADD COLUMN scopes TEXT NOT NULL DEFAULT 'read,submit,files,admin';
