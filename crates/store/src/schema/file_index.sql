-- Rows are hints (see `paddlecloud_pfs::content::index`).
-- A place is the name of a space, `/` and the path in it. A stamp is device, inode, size, mtime and ctime in one value, because
-- the costs of a row grow with its values.
CREATE TABLE IF NOT EXISTS content (
    place BLOB PRIMARY KEY NOT NULL,
    stamp BLOB NOT NULL,
    digest BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS upload (
    key BLOB PRIMARY KEY NOT NULL,
    id TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS upload_id ON upload (id);
-- An earlier form of `content`.
DROP TABLE IF EXISTS file;
