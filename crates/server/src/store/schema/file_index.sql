-- Rows are hints (see `paddlecloud_pfs::content::index`). Only large files are found by their digest: with every file in that index,
-- 10,000 inserts beside a million rows take 130 to 550 ms, not 25.
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
CREATE INDEX IF NOT EXISTS large_file ON file (digest) WHERE size > 1048576;
CREATE TABLE IF NOT EXISTS upload (
    key BLOB PRIMARY KEY NOT NULL,
    id TEXT NOT NULL
) WITHOUT ROWID;
