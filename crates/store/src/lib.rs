//! Jobs, accounts, tokens and the audit log in SQL: a SQLite file or a PostgreSQL server, with the same statements for both.
//!
//! All writes go through one writer that commits the rows of many callers together; reads use a separate small pool. This is the
//! only crate that uses the SQL crate. It stores what it is given: who may change what, and what a record means, is decided above.

mod accounts;
mod audit;
mod backup;
mod connect;
mod damage;
mod deleted_since;
mod file_index;
mod jobs;
mod limits;
mod record;
mod reserve;
mod schema;
mod secrets;
mod tokens;
mod url;
mod usage;
mod writer;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::StoreError;
use sqlx::AnyPool;

pub use accounts::Heir;
pub use audit::{AuditEntry, AuditRecord, AuditState};
#[doc(hidden)]
pub use backup::check as check_backup;
pub use backup::{BackupError, back_up, restore};
pub use damage::{Damaged, damage, hint};
pub use file_index::SqliteIndex;
pub use limits::{LimitError, Limits};
pub use record::{Group, ProviderUser, RETIRED, Record, UserCertificate, folded, retired_name};
pub use secrets::SecretRow;
pub use tokens::{Renewed, TokenRow};
pub use url::{DatabaseUrl, DatabaseUrlError};
pub use usage::Used;
pub use writer::WriterCounts;

use audit::AuditChain;
use connect::ConnectError;
use reserve::Reserve;
use writer::{Row, Writer};

/// The database.
#[derive(Clone)]
pub struct Store {
    reads: AnyPool,
    writer: Writer,
    /// The database's path or URL, for messages.
    place: Arc<str>,
    /// Only for a database that is a file.
    reserve: Option<Arc<Reserve>>,
    audit: Arc<AuditChain>,
    /// Set once the database has reported damage.
    damaged: Arc<AtomicBool>,
    /// Ranges of ids in which the database may lack runs, see [`Store::may_be_unknown`].
    unknown: Arc<[(String, String)]>,
}

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "the database has version {found}, but this program supports versions up to {known}: it was written by a newer program"
    )]
    Newer { found: i64, known: i64 },
    #[error("cannot prepare the folder of the database")]
    Folder(#[source] std::io::Error),
    #[error(transparent)]
    Damaged(Damaged),
    #[error("`{0}` is a folder, where the database should be a file")]
    IsFolder(String),
    #[error("the database `{place}` is empty, but the data folder has the folders of {}", counted(*.jobs))]
    Emptied { place: String, jobs: usize },
    #[error("cannot open the database `{0}`")]
    Unusable(String, #[source] Arc<sqlx::Error>),
    #[error("another server uses the database `{0}`")]
    InUse(String),
    #[error("the database refused")]
    Sql(#[from] sqlx::Error),
}

impl From<ConnectError> for OpenError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Sql(error) => OpenError::Sql(error),
            ConnectError::InUse => OpenError::InUse(String::new()),
        }
    }
}

impl OpenError {
    /// Adds the database's path or URL, and distinguishes errors by their remedy.
    fn at(self, place: &DatabaseUrl) -> OpenError {
        let shown = shown(place);
        match self {
            OpenError::Sql(error) => match Damaged::of(&shown, Arc::new(error)) {
                Ok(damaged) => OpenError::Damaged(damaged),
                Err(error) => OpenError::Unusable(shown, error),
            },
            OpenError::Emptied { jobs, .. } => OpenError::Emptied { place: shown, jobs },
            OpenError::InUse(_) => OpenError::InUse(shown),
            other => other,
        }
    }

    /// How to fix it.
    pub fn hint(&self) -> Option<String> {
        match self {
            OpenError::Newer { .. } => {
                Some("start the newer program, or restore the database from a backup".to_owned())
            }
            OpenError::Damaged(damaged) => Some(damaged.hint()),
            OpenError::IsFolder(_) => Some(
                "move the folder away, or name another file in `database` of the configuration".to_owned(),
            ),
            OpenError::Emptied { .. } => Some(
                "restore the database from a backup; to continue with an empty history, move the folder \
                 `attempts` out of the server's data folder (it contains the logs; packages and outputs are elsewhere)"
                    .to_owned(),
            ),
            OpenError::InUse(_) => Some(
                "stop the other server, or give this one its own database; if the other server's machine failed, \
                 try again in a minute"
                    .to_owned(),
            ),
            OpenError::Unusable(place, _) if place.starts_with("postgres") => {
                Some("check `database` in the configuration, and that PostgreSQL runs there".to_owned())
            }
            _ => None,
        }
    }
}

fn counted(jobs: usize) -> String {
    match jobs {
        1 => "1 job".to_owned(),
        jobs => format!("{jobs} jobs"),
    }
}

/// The database's path or URL, for messages.
fn shown(place: &DatabaseUrl) -> String {
    match place.sqlite_path() {
        Some(path) => path.display().to_string(),
        None => place.to_string(),
    }
}

impl Store {
    /// Opens the database, creates it if it is a file, and migrates it to the current schema.
    pub async fn open(url: &DatabaseUrl) -> Result<Store, OpenError> {
        Store::open_knowing(url, 0).await
    }

    /// The same, but refuses an empty database if traces of `jobs` earlier jobs exist: it was emptied or replaced.
    pub async fn open_knowing(url: &DatabaseUrl, jobs: usize) -> Result<Store, OpenError> {
        let opened = Store::open_target(url, jobs).await;
        opened.map_err(|error| error.at(url))
    }

    async fn open_target(url: &DatabaseUrl, jobs: usize) -> Result<Store, OpenError> {
        let place = connect::DatabaseTarget::new(url)?;
        let mut connection = place.connect_to_write().await?;
        schema::migrate(&mut connection, jobs).await?;
        place.sync_folder().map_err(OpenError::Folder)?;
        let reserve = url.sqlite_path().map(|path| Arc::new(Reserve::take(path)));
        let audit = Arc::new(AuditChain::of(&mut connection).await?);
        let unknown = backup::unknown_runs(&mut connection).await?;
        Ok(Store {
            unknown: unknown.into(),
            reads: place.pool(),
            writer: Writer::start(place, connection, reserve.clone(), audit.clone()),
            audit,
            damaged: Arc::default(),
            place: shown(url).into(),
            reserve,
        })
    }

    /// Whether the run may lack a record because an older backup was restored. Its logs and files must stay.
    pub fn may_be_unknown(&self, run: &JobId) -> bool {
        let id = run.as_str();
        self.unknown
            .iter()
            .any(|(after, upto)| after.as_str() < id && id <= upto.as_str())
    }

    /// Whether the disk has room for more than killing and removing jobs.
    pub fn has_room(&self) -> bool {
        self.reserve.as_ref().is_none_or(|reserve| reserve.has_room())
    }

    /// Returns when the database answers.
    pub async fn ping(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1")
            .fetch_one(&self.reads)
            .await
            .map_err(|error| self.read_failed(error))?;
        Ok(())
    }

    /// Whether the database has reported damage since it was opened. Only a restart with an intact one ends that.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// The number of commits and rows since the server started.
    pub fn counts(&self) -> WriterCounts {
        self.writer.counts()
    }

    /// Finishes pending writes and closes every connection.
    pub async fn close(&self) {
        self.writer.close().await;
        self.reads.close().await;
    }

    async fn write(&self, rows: Vec<Row>) -> Result<(), StoreError> {
        let written = self.writer.write(rows).await;
        written.map_err(|error| match error {
            WriteError::Sql(error) => match self.damage_of(error) {
                Ok(damaged) => StoreError::Write(damaged.into()),
                Err(error) => StoreError::Write(WriteError::Sql(error).into()),
            },
            closed => StoreError::Write(closed.into()),
        })
    }

    fn read_failed(&self, error: sqlx::Error) -> StoreError {
        match self.damage_of(Arc::new(error)) {
            Ok(damaged) => StoreError::Read(damaged.into()),
            Err(error) => StoreError::Read(error.into()),
        }
    }

    /// The damage that an error reports, if it does.
    fn damage_of(&self, error: Arc<sqlx::Error>) -> Result<Damaged, Arc<sqlx::Error>> {
        let damaged = Damaged::of(&self.place, error)?;
        self.damaged.store(true, Ordering::Relaxed);
        Ok(damaged)
    }
}

/// Whether a store failed because its disk is full.
pub fn is_full(error: &StoreError) -> bool {
    let StoreError::Write(source) = error else {
        return false;
    };
    matches!(source.downcast_ref(), Some(WriteError::Sql(error)) if is_full_error(error))
}

/// Whether the database reports a full disk.
fn is_full_error(error: &sqlx::Error) -> bool {
    const SQLITE_FULL: &str = "13";
    const SQLITE_NO_ROOM_FOR_ITS_INDEX: &str = "4874";
    const POSTGRES_DISK_FULL: &str = "53100";
    let code = error.as_database_error().and_then(|error| error.code());
    matches!(
        code.as_deref(),
        Some(SQLITE_FULL | SQLITE_NO_ROOM_FOR_ITS_INDEX | POSTGRES_DISK_FULL)
    )
}

/// Why rows were not written. Shared, because one failed commit fails many callers.
#[derive(Debug, Clone, thiserror::Error)]
enum WriteError {
    #[error("the database refused the change")]
    Sql(#[source] Arc<sqlx::Error>),
    #[error("another server uses the same database")]
    InUse,
    #[error("the server is stopping")]
    Closed,
    #[error("the token was revoked meanwhile")]
    Gone,
}

impl From<ConnectError> for WriteError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Sql(error) => error.into(),
            ConnectError::InUse => WriteError::InUse,
        }
    }
}

impl From<sqlx::Error> for WriteError {
    fn from(error: sqlx::Error) -> Self {
        WriteError::Sql(Arc::new(error))
    }
}

/// Whether what a change builds on is gone.
fn is_gone(source: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    matches!(source.downcast_ref(), Some(WriteError::Gone))
}

fn read_failed(error: sqlx::Error) -> StoreError {
    StoreError::Read(error.into())
}
