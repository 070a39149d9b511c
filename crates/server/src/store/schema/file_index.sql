-- Rows are hints (see `paddlecloud_pfs::content::index`).
CREATE TABLE IF NOT EXISTS file (
    space TEXT NOT NULL,
    path BLOB NOT NULL,
    device INTEGER NOT NULL,
    inode INTEGER NOT NULL,
    size INTEGER NOT NULL,
    mtime INTEGER NOT NULL,
    ctime INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (space, path)
) WITHOUT ROWID;
DROP INDEX IF EXISTS large_file;
CREATE TABLE IF NOT EXISTS upload (
    key BLOB PRIMARY KEY NOT NULL,
    id TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS upload_id ON upload (id);
