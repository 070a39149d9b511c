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
/// A stamp as a value: five numbers of eight bytes.
const STAMP: usize = 5 * 8;
/// What the keys of files in homes begin with; the name of the owner follows.
const HOME: &[u8] = b"home/";
/// What the keys of public files begin with.
const PUBLIC: &[u8] = b"public";

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
        .page_size(16 << 10)
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
                let mut query = QueryBuilder::<Sqlite>::new("INSERT OR REPLACE INTO content ");
                query.push_values(files, |mut row, file| {
                    row.push_bind(key(&file.place.space, &file.place.path));
                    row.push_bind(stamp_value(&file.stamp));
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
            let keys: Vec<Vec<u8>> = paths.iter().map(|path| key(space, path)).collect();
            let mut query = QueryBuilder::<Sqlite>::new("SELECT * FROM content WHERE place IN (");
            let mut list = query.separated(", ");
            for key in &keys {
                list.push_bind(&key[..]);
            }
            query.push(") ORDER BY place");
            let is_common = matches!(paths.len(), 1 | ROWS);
            let rows = self.fetch(query.build().persistent(is_common), read_content)?;
            found.extend(keys.iter().map(|key| {
                let at = rows.binary_search_by(|(place, _)| place.cmp(key));
                at.ok().map(|at| rows[at].1)
            }));
        }
        Ok(found)
    }

    fn forget(&self, place: &Place) -> io::Result<()> {
        self.run(async |connection| {
            let mut change = connection.begin().await?;
            forget(&mut change, &key(&place.space, &place.path)).await?;
            change.commit().await
        })
    }

    fn replace(&self, row: &IndexedFile, found: Option<(Stamp, Digest)>) -> io::Result<()> {
        let query = match &found {
            Some((stamp, digest)) => {
                let update =
                    "UPDATE content SET stamp = ?, digest = ? WHERE place = ? AND stamp = ? AND digest = ?";
                let update = sqlx::query(update).bind(stamp_value(stamp));
                update.bind(&digest.as_bytes()[..])
            }
            None => sqlx::query("DELETE FROM content WHERE place = ? AND stamp = ? AND digest = ?"),
        };
        let query = query.bind(key(&row.place.space, &row.place.path));
        let query = query.bind(stamp_value(&row.stamp));
        self.execute(query.bind(&row.digest.as_bytes()[..]))
    }

    fn moved(&self, moved: &Moved) -> io::Result<()> {
        let [from, to] = [&moved.from, &moved.to].map(|place| key(&place.space, &place.path));
        self.run(async |connection| {
            let mut change = connection.begin().await?;
            forget(&mut change, &to).await?;
            if let Some((before, after)) = &moved.file {
                let query = "UPDATE content SET place = ?, stamp = ? WHERE place = ? AND stamp = ?";
                let query = sqlx::query(query).bind(&to).bind(stamp_value(after));
                let query = query.bind(&from).bind(stamp_value(before));
                query.execute(&mut *change).await?;
                // A remaining row at the old path is stale.
                forget(&mut change, &from).await?;
            } else {
                // `||` concatenates two blobs to a text, byte by byte. A folder has no row of its own.
                let query = "UPDATE content SET place = CAST(? || substr(place, ?) AS BLOB) \
                     WHERE place > ? AND place < ?";
                let query = sqlx::query(query).bind(&to).bind(from.len() as i64 + 1);
                let (above, below) = below(&from);
                query.bind(above).bind(below).execute(&mut *change).await?;
            }
            change.commit().await
        })
    }

    fn all(&self) -> io::Result<Vec<IndexedFile>> {
        self.fetch(sqlx::query("SELECT * FROM content"), read_file)
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

/// Forgets a file, or all files below a folder, with two statements: with `OR`, SQLite would read every row.
async fn forget(change: &mut SqliteConnection, key: &[u8]) -> sqlx::Result<()> {
    let itself = sqlx::query("DELETE FROM content WHERE place = ?").bind(key);
    itself.execute(&mut *change).await?;
    let (above, below) = below(key);
    let inside = sqlx::query("DELETE FROM content WHERE place > ? AND place < ?");
    inside.bind(above).bind(below).execute(change).await.map(drop)
}

/// The exclusive bounds between which the keys of all files below a folder sort.
fn below(folder: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let after_slash = b'/' + 1;
    ([folder, b"/"].concat(), [folder, &[after_slash]].concat())
}

/// A place as a key. The displayed name is not used because it escapes odd characters.
fn key(space: &Space, path: &RelPath) -> Vec<u8> {
    let (space, owner) = match space {
        Space::Home(owner) => (HOME, owner.as_str()),
        Space::Public => (PUBLIC, ""),
    };
    let slash: &[u8] = if path.is_root() { b"" } else { b"/" };
    [space, owner.as_bytes(), slash, path.as_bytes()].concat()
}

fn stamp_value(stamp: &Stamp) -> Vec<u8> {
    let [mtime, ctime] = [stamp.mtime, stamp.ctime].map(|time| time.as_nanos().cast_unsigned());
    let numbers = [stamp.device, stamp.inode, stamp.size, mtime, ctime];
    numbers.map(u64::to_be_bytes).concat()
}

fn read_stamp(value: &[u8; STAMP]) -> Stamp {
    let (numbers, _) = value.as_chunks::<8>();
    let number = |index: usize| u64::from_be_bytes(numbers[index]);
    let time = |index: usize| Mtime::from_nanos(number(index).cast_signed());
    Stamp {
        device: number(0),
        inode: number(1),
        size: number(2),
        mtime: time(3),
        ctime: time(4),
    }
}

type Unreadable = Box<dyn std::error::Error + Send + Sync>;

/// A row: its key, and the content.
fn read_content(row: &SqliteRow) -> sqlx::Result<(Vec<u8>, (Stamp, Digest))> {
    let unreadable = |error: std::array::TryFromSliceError| sqlx::Error::Decode(error.into());
    let stamp = row.try_get::<&[u8], _>(1)?.try_into().map_err(unreadable)?;
    let digest: [u8; Digest::LEN] = row.try_get::<&[u8], _>(2)?.try_into().map_err(unreadable)?;
    let digest = blake3::Hash::from_bytes(digest).into();
    Ok((row.try_get(0)?, (read_stamp(stamp), digest)))
}

fn read_file(row: &SqliteRow) -> sqlx::Result<IndexedFile> {
    let (key, (stamp, digest)) = read_content(row)?;
    let place = read_place(&key).map_err(sqlx::Error::Decode)?;
    Ok(IndexedFile { place, stamp, digest })
}

fn read_place(key: &[u8]) -> Result<Place, Unreadable> {
    let (space, path) = match key.strip_prefix(HOME) {
        Some(rest) => {
            let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            (Space::Home(str::from_utf8(&rest[..end])?.parse()?), &rest[end..])
        }
        None => (Space::Public, key.strip_prefix(PUBLIC).unwrap_or_default()),
    };
    let path = RelPath::from_bytes(path.strip_prefix(b"/").unwrap_or(path))?;
    Ok(Place { space, path })
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
            "SELECT * FROM content WHERE place IN (?, ?) ORDER BY place",
            "DELETE FROM content WHERE place > ? AND place < ?",
            "DELETE FROM upload WHERE id IN (?, ?)",
            "UPDATE content SET place = CAST(? || substr(place, ?) AS BLOB) WHERE place > ? AND place < ?",
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
