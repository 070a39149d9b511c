//! The file index: a separate SQLite file, because `server.db` syncs every commit and may be PostgreSQL.
//!
//! Callers act as the user whose files they store and may not open the server's files. They do not need to: the connection's own
//! thread, which starts with the server, opens the file and runs every statement. A killed server loses no row; a power cut may
//! lose the last ones.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use paddlecloud_pfs::content::{FileIndex, IndexedFile, Moved};
use paddlecloud_pfs::root::Stamp;
use paddlecloud_pfs::staging::StagedId;
use paddlecloud_pfs::{Digest, Mtime, Place, RelPath, Space};
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqliteRow, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, QueryBuilder, Row as _, Sqlite, SqliteConnection};

use super::damage::is_damaged;

/// Rows of one statement. SQLite allows 32,766 values.
const ROWS: usize = 500;
const COLUMNS: &str = "SELECT space, path, device, inode, size, mtime, ctime, digest FROM file";

type Query<'q> = sqlx::query::Query<'q, Sqlite, SqliteArguments>;

/// The index of one server.
pub struct SqliteIndex(Mutex<SqliteConnection>);

impl SqliteIndex {
    /// Opens or creates the index. A damaged one is replaced by an empty one, because its rows are only hints.
    pub fn open(file: &Path) -> io::Result<SqliteIndex> {
        let opened = wait_for(connect(file)).or_else(|error| {
            if !is_damaged(&error) {
                return Err(error);
            }
            tracing::warn!(%error, file = %file.display(), "the file index is damaged and starts again empty");
            for suffix in ["", "-wal", "-shm"] {
                let part = PathBuf::from(format!("{}{suffix}", file.display()));
                // If a file cannot be removed, the next attempt to open the index fails.
                let _ = std::fs::remove_file(part);
            }
            wait_for(connect(file))
        });
        opened
            .map(|connection| SqliteIndex(Mutex::new(connection)))
            .map_err(io::Error::other)
    }

    fn run<T>(&self, work: impl AsyncFnOnce(&mut SqliteConnection) -> sqlx::Result<T>) -> io::Result<T> {
        let mut connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        wait_for(work(&mut connection)).map_err(io::Error::other)
    }

    fn execute(&self, query: Query<'_>) -> io::Result<()> {
        self.run(async |connection| query.execute(connection).await.map(drop))
    }

    fn fetch<T>(&self, query: Query<'_>, read: impl Fn(&SqliteRow) -> sqlx::Result<T>) -> io::Result<Vec<T>> {
        self.run(async |connection| query.fetch_all(connection).await?.iter().map(read).collect())
    }
}

async fn connect(file: &Path) -> sqlx::Result<SqliteConnection> {
    let options = SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .busy_timeout(Duration::from_secs(10))
        .pragma("cache_size", "-16384")
        .pragma("journal_size_limit", "67108864")
        .row_buffer_size(ROWS)
        .disable_statement_logging();
    let mut connection = SqliteConnection::connect_with(&options).await?;
    sqlx::raw_sql(include_str!("schema/file_index.sql"))
        .execute(&mut connection)
        .await?;
    Ok(connection)
}

impl FileIndex for SqliteIndex {
    fn record(&self, files: &[IndexedFile]) -> io::Result<()> {
        self.run(async |connection| {
            let mut change = connection.begin().await?;
            for files in files.chunks(ROWS) {
                let mut query = QueryBuilder::<Sqlite>::new("INSERT OR REPLACE INTO file ");
                query.push_values(files, |mut row, file| {
                    let [device, inode, size, mtime, ctime] = numbers(&file.stamp);
                    row.push_bind(space_name(&file.place.space));
                    row.push_bind(file.place.path.as_bytes());
                    row.push_bind(device).push_bind(inode).push_bind(size);
                    row.push_bind(mtime).push_bind(ctime);
                    row.push_bind(&file.digest.as_bytes()[..]);
                });
                // Statements of other lengths would fill the statement cache.
                let is_common = matches!(files.len(), 1 | ROWS);
                query.build().persistent(is_common).execute(&mut *change).await?;
            }
            change.commit().await
        })
    }

    fn find(&self, space: &Space, paths: &[RelPath]) -> io::Result<Vec<Option<(Stamp, Digest)>>> {
        let mut found = Vec::new();
        for paths in paths.chunks(ROWS) {
            let mut query = QueryBuilder::<Sqlite>::new(COLUMNS);
            query
                .push(" WHERE space = ")
                .push_bind(space_name(space))
                .push(" AND path IN (");
            let mut list = query.separated(", ");
            for path in paths {
                list.push_bind(path.as_bytes());
            }
            query.push(") ORDER BY path");
            let is_common = matches!(paths.len(), 1 | ROWS);
            let rows = self.fetch(query.build().persistent(is_common), read_file)?;
            found.extend(paths.iter().map(|path| {
                let at = rows.binary_search_by(|row| row.place.path.as_bytes().cmp(path.as_bytes()));
                at.ok().map(|at| (rows[at].stamp, rows[at].digest))
            }));
        }
        Ok(found)
    }

    fn forget(&self, place: &Place) -> io::Result<()> {
        self.run(async |connection| {
            let mut change = connection.begin().await?;
            forget(&mut change, place).await?;
            change.commit().await
        })
    }

    fn replace(&self, row: &IndexedFile, found: Option<(Stamp, Digest)>) -> io::Result<()> {
        let is_same = "WHERE space = ? AND path = ? AND device = ? AND inode = ? AND size = ? AND mtime = ? AND ctime = ? \
             AND digest = ?";
        let (change, found) = match &found {
            Some(found) => (
                "UPDATE file SET device = ?, inode = ?, size = ?, mtime = ?, ctime = ?, digest = ?",
                Some(found),
            ),
            None => ("DELETE FROM file", None),
        };
        let change = format!("{change} {is_same}");
        let mut query = sqlx::query(sqlx::AssertSqlSafe(change));
        if let Some((stamp, digest)) = found {
            query = numbers(stamp)
                .into_iter()
                .fold(query, Query::bind)
                .bind(&digest.as_bytes()[..]);
        }
        let query = query
            .bind(space_name(&row.place.space))
            .bind(row.place.path.as_bytes());
        let query = numbers(&row.stamp).into_iter().fold(query, Query::bind);
        self.execute(query.bind(&row.digest.as_bytes()[..]))
    }

    fn moved(&self, moved: &Moved) -> io::Result<()> {
        self.run(async |connection| {
            let mut change = connection.begin().await?;
            forget(&mut change, &moved.to).await?;
            let (from, to) = (&moved.from, &moved.to);
            if let Some((before, after)) = &moved.file {
                let [device, inode, size, mtime, ctime] = numbers(after);
                let query = "UPDATE file SET space = ?, path = ?, device = ?, inode = ?, size = ?, mtime = ?, ctime = ? \
                     WHERE space = ? AND path = ? AND device = ? AND inode = ? AND size = ? AND mtime = ? AND ctime = ?";
                let query = sqlx::query(query).bind(space_name(&to.space)).bind(to.path.as_bytes());
                let query = query.bind(device).bind(inode).bind(size).bind(mtime).bind(ctime);
                let query = query.bind(space_name(&from.space)).bind(from.path.as_bytes());
                numbers(before).into_iter().fold(query, Query::bind).execute(&mut *change).await?;
                // A remaining row at the old path is stale.
                forget(&mut change, from).await?;
            } else {
                // `||` concatenates two blobs to a text, byte by byte. A folder has no row of its own.
                let query = "UPDATE file SET space = ?, path = CAST(? || substr(path, ?) AS BLOB) \
                     WHERE space = ? AND path > ? AND path < ?";
                let query = sqlx::query(query).bind(space_name(&to.space)).bind(to.path.as_bytes());
                let query = query.bind(from.path.as_bytes().len() as i64 + 1);
                let (above, below) = below(&from.path);
                let query = query.bind(space_name(&from.space)).bind(above).bind(below);
                query.execute(&mut *change).await?;
            }
            change.commit().await
        })
    }

    fn all(&self) -> io::Result<Vec<IndexedFile>> {
        self.fetch(sqlx::query(COLUMNS), read_file)
    }

    fn upload(&self, key: &Digest) -> io::Result<Option<StagedId>> {
        let query = sqlx::query("SELECT id FROM upload WHERE key = ?").bind(&key.as_bytes()[..]);
        Ok(self.fetch(query, read_upload)?.pop())
    }

    fn record_upload(&self, key: &Digest, id: &StagedId) -> io::Result<()> {
        let query = sqlx::query("INSERT OR REPLACE INTO upload VALUES (?, ?)");
        self.execute(query.bind(&key.as_bytes()[..]).bind(id.to_string()))
    }

    fn uploads(&self) -> io::Result<Vec<StagedId>> {
        self.fetch(sqlx::query("SELECT id FROM upload"), read_upload)
    }

    fn forget_uploads(&self, gone: &[StagedId]) -> io::Result<()> {
        for ids in gone.chunks(ROWS) {
            let mut query = QueryBuilder::<Sqlite>::new("DELETE FROM upload WHERE id IN (");
            let mut list = query.separated(", ");
            for id in ids {
                list.push_bind(id.to_string());
            }
            list.push_unseparated(")");
            self.execute(query.build().persistent(false))?;
        }
        Ok(())
    }
}

/// Forgets a file, or all files below a folder, with two statements: with `OR`, SQLite would read every row of the space.
async fn forget(change: &mut SqliteConnection, place: &Place) -> sqlx::Result<()> {
    let itself = sqlx::query("DELETE FROM file WHERE space = ? AND path = ?");
    let itself = itself.bind(space_name(&place.space)).bind(place.path.as_bytes());
    itself.execute(&mut *change).await?;
    let (above, below) = below(&place.path);
    let inside = sqlx::query("DELETE FROM file WHERE space = ? AND path > ? AND path < ?");
    let inside = inside.bind(space_name(&place.space)).bind(above).bind(below);
    inside.execute(change).await.map(drop)
}

/// The exclusive bounds between which all paths below a folder sort.
fn below(folder: &RelPath) -> (Vec<u8>, Vec<u8>) {
    match folder.is_root() {
        // A name has at most 255 bytes.
        true => (Vec::new(), vec![0xff; 256]),
        false => {
            let after_slash = b'/' + 1;
            (
                [folder.as_bytes(), b"/"].concat(),
                [folder.as_bytes(), &[after_slash]].concat(),
            )
        }
    }
}

/// The name of a space in the table. The displayed name is not used because it escapes odd characters.
fn space_name(space: &Space) -> String {
    match space {
        Space::Home(owner) => format!("home/{}", owner.as_str()),
        Space::Public => "public".to_owned(),
    }
}

/// A stamp as SQLite stores it, in signed integers.
fn numbers(stamp: &Stamp) -> [i64; 5] {
    let [device, inode, size] = [stamp.device, stamp.inode, stamp.size].map(u64::cast_signed);
    [
        device,
        inode,
        size,
        stamp.mtime.as_nanos(),
        stamp.ctime.as_nanos(),
    ]
}

fn read_file(row: &SqliteRow) -> sqlx::Result<IndexedFile> {
    let number = |column: usize| row.try_get::<i64, _>(column);
    let unreadable = |error: Box<dyn std::error::Error + Send + Sync>| sqlx::Error::Decode(error);
    let space = match row.try_get::<&str, _>(0)?.strip_prefix("home/") {
        Some(owner) => Space::Home(owner.parse().map_err(|error| unreadable(Box::new(error)))?),
        None => Space::Public,
    };
    let path = RelPath::from_bytes(row.try_get(1)?).map_err(|error| unreadable(Box::new(error)))?;
    let digest: [u8; Digest::LEN] = row
        .try_get::<&[u8], _>(7)?
        .try_into()
        .map_err(|error| unreadable(Box::new(error)))?;
    Ok(IndexedFile {
        place: Place { space, path },
        stamp: Stamp {
            device: number(2)?.cast_unsigned(),
            inode: number(3)?.cast_unsigned(),
            size: number(4)?.cast_unsigned(),
            mtime: Mtime::from_nanos(number(5)?),
            ctime: Mtime::from_nanos(number(6)?),
        },
        digest: blake3::Hash::from_bytes(digest).into(),
    })
}

fn read_upload(row: &SqliteRow) -> sqlx::Result<StagedId> {
    row.try_get::<&str, _>(0)?
        .parse()
        .map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

/// Blocks this thread, with or without a runtime, until the connection's thread is done.
fn wait_for<T>(work: impl Future<Output = T>) -> T {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut context, mut work) = (Context::from_waker(&waker), pin!(work));
    loop {
        match work.as_mut().poll(&mut context) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use paddlecloud_pfs::content::index::conformance;

    use super::*;

    #[test]
    fn the_index_conforms_and_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("index.db");
        conformance::check(&SqliteIndex::open(&file).unwrap());
        let (key, id) = (Digest::of(b"key"), "a".repeat(32).parse().unwrap());
        SqliteIndex::open(&file)
            .unwrap()
            .record_upload(&key, &id)
            .unwrap();
        let opened = SqliteIndex::open(&file).unwrap();
        assert_eq!(opened.upload(&key).unwrap(), Some(id));
    }

    #[test]
    fn a_damaged_index_starts_again_empty() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("index.db");
        std::fs::write(&file, "no database".repeat(1000)).unwrap();
        let index = SqliteIndex::open(&file).unwrap();
        assert_eq!(index.all().unwrap(), []);
        conformance::check(&index);
    }

    /// Queries that would be slow on a million rows use an index.
    #[test]
    fn no_query_reads_every_row() {
        let folder = tempfile::tempdir().unwrap();
        let index = SqliteIndex::open(&folder.path().join("index.db")).unwrap();
        for query in [
            "SELECT * FROM file WHERE size > 1048576 AND digest = ? AND space IN (?, ?)",
            "SELECT * FROM file WHERE space = ? AND path IN (?, ?) ORDER BY path",
            "DELETE FROM file WHERE space = ? AND path > ? AND path < ?",
            "DELETE FROM upload WHERE id IN (?, ?)",
            "UPDATE file SET space = ?, path = CAST(? || substr(path, ?) AS BLOB) WHERE space = ? AND path > ? AND path < ?",
        ] {
            let plan = format!("EXPLAIN QUERY PLAN {query}");
            let plan = sqlx::query(sqlx::AssertSqlSafe(plan));
            let steps = index.fetch(plan, |row| row.try_get::<String, _>(3)).unwrap();
            assert!(
                steps.iter().all(|step| step.starts_with("SEARCH")),
                "{query}: {steps:?}"
            );
        }
    }
}
