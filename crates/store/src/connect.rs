//! Locates the database and connects to it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use paddlecloud_pfs::durable;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{AnyConnection, AnyPool, ConnectOptions, Connection, Executor, Row as _};
use tokio::time::Instant;

use super::{DatabaseUrl, OpenError};

/// Read connections. Few suffice: a page takes well under a millisecond.
const READERS: u32 = 4;
/// How long a read waits for a free connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// Durable commits (`FULL` syncs the log at each one) that do not block readers, and a small cache.
const SQLITE_SETTINGS: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA busy_timeout = 10000; \
     PRAGMA cache_size = -1024; PRAGMA journal_size_limit = 67108864";

/// The advisory lock of the only server that may write to a PostgreSQL database; `PaddleCl` in ASCII.
const POSTGRES_LOCK: i64 = 0x5061_6464_6c65_436c;
/// How long to wait for the lock: PostgreSQL may need a moment to notice that a dead server's connection is closed.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(100);
/// PostgreSQL frees the lock of a server whose machine vanished after about a minute, not after hours.
const POSTGRES_SETTINGS: &str =
    "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3";

/// Why the connection for writes failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    #[error("another server uses the same database")]
    InUse,
}

/// A database to connect to.
#[derive(Clone)]
pub(super) struct DatabaseTarget {
    options: AnyConnectOptions,
    file: Option<PathBuf>,
}

impl DatabaseTarget {
    pub fn new(url: &DatabaseUrl) -> Result<DatabaseTarget, OpenError> {
        sqlx::any::install_default_drivers();
        let file = url.sqlite_path().map(Path::to_owned);
        let address = match &file {
            Some(path) => {
                let path = std::path::absolute(path).map_err(OpenError::Folder)?;
                if path.is_dir() {
                    return Err(OpenError::IsFolder(path.display().to_string()));
                }
                durable::make_folders(path.parent().unwrap_or(Path::new("/")), 0o700)
                    .map_err(OpenError::Folder)?;
                format!("sqlite://{}?mode=rwc", escape(&path))
            }
            None => url.reveal().to_owned(),
        };
        let options = AnyConnectOptions::from_str(&address)?.disable_statement_logging();
        Ok(DatabaseTarget { options, file })
    }

    /// A read connection in addition to those of the server, which may be another process.
    pub async fn connect_to_read(&self) -> Result<AnyConnection, sqlx::Error> {
        let mut connection = AnyConnection::connect_with(&self.options).await?;
        if self.file.is_some() {
            connection.execute("PRAGMA busy_timeout = 10000").await?;
        }
        Ok(connection)
    }

    /// The connection for writes. On PostgreSQL it holds the database's lock while it lives, so that a server whose connection
    /// broke cannot write before it has the lock again. A SQLite file is protected by the lock of the data folder.
    pub async fn connect_to_write(&self) -> Result<AnyConnection, ConnectError> {
        let mut connection = AnyConnection::connect_with(&self.options).await?;
        if self.file.is_some() {
            connection.execute(SQLITE_SETTINGS).await?;
        } else {
            connection.execute(POSTGRES_SETTINGS).await?;
            lock(&mut connection).await?;
        }
        Ok(connection)
    }

    /// Connections are opened on first use and kept: no task wakes up to maintain them.
    pub fn pool(&self) -> AnyPool {
        let is_file = self.file.is_some();
        AnyPoolOptions::new()
            .max_connections(READERS)
            .idle_timeout(None)
            .max_lifetime(None)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(!is_file)
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    if is_file {
                        connection.execute(SQLITE_SETTINGS).await?;
                    }
                    Ok(())
                })
            })
            .connect_lazy_with(self.options.clone())
    }

    /// Makes the new file's directory entry durable; SQLite does so for its log, but not for the database file.
    pub fn sync_folder(&self) -> std::io::Result<()> {
        self.file.as_deref().map_or(Ok(()), durable::sync_entry)
    }
}

async fn lock(connection: &mut AnyConnection) -> Result<(), ConnectError> {
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        let query = sqlx::query("SELECT CASE WHEN pg_try_advisory_lock($1) THEN 1 ELSE 0 END");
        let row = query.bind(POSTGRES_LOCK).fetch_one(&mut *connection).await?;
        match row.try_get::<i32, _>(0)? {
            1 => return Ok(()),
            _ if Instant::now() >= until => return Err(ConnectError::InUse),
            _ => tokio::time::sleep(LOCK_PAUSE).await,
        }
    }
}

/// Escapes a path for use in a URL.
fn escape(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                text.push(char::from(*byte))
            }
            other => write!(text, "%{other:02X}").expect("writing to a string cannot fail"),
        }
    }
    text
}
