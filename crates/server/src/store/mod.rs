//! Jobs and tokens in SQL: SQLite in a file, or PostgreSQL by its address. One text serves both.
//!
//! All writes go through one writer that commits many callers' rows at once; reads have a small pool
//! beside it. This is the only module that knows the SQL crate.

mod connect;
mod jobs;
mod schema;
mod tokens;
mod writer;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use paddlecloud_core::ports::StoreError;
use sqlx::AnyPool;

pub use tokens::TokenRow;
pub use writer::WriterCounts;

use crate::config::DatabaseUrl;
use writer::{Row, Writer};

/// The database.
#[derive(Clone)]
pub struct Store {
    reads: AnyPool,
    writer: Writer,
}

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "the database is of version {found}, this program knows versions up to {known}: it was written by a newer program"
    )]
    Newer { found: i64, known: i64 },
    #[error("cannot prepare the folder of the database")]
    Folder(#[source] std::io::Error),
    #[error("the database `{0}` is damaged")]
    Damaged(String, #[source] sqlx::Error),
    #[error("cannot open the database `{0}`")]
    Unusable(String, #[source] sqlx::Error),
    #[error("the database refused")]
    Sql(#[from] sqlx::Error),
}

impl OpenError {
    /// The same with the place, and told apart by what can be done about it.
    fn at(self, place: &DatabaseUrl) -> OpenError {
        let shown = match place.sqlite_path() {
            Some(path) => path.display().to_string(),
            None => place.to_string(),
        };
        match self {
            OpenError::Sql(error) if is_damaged(&error) => OpenError::Damaged(shown, error),
            OpenError::Sql(error) => OpenError::Unusable(shown, error),
            other => other,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            OpenError::Newer { .. } => {
                Some("start the newer program, or put a backup of the database in its place".to_owned())
            }
            OpenError::Damaged(place, _) => Some(format!(
                "put a backup in its place; without one, move `{place}` and the files beside it that begin with \
                 the same name away: the history of jobs is then empty, packages and outputs stay"
            )),
            OpenError::Unusable(place, _) if place.starts_with("postgres") => {
                Some("check `database` in the configuration, and that PostgreSQL runs there".to_owned())
            }
            _ => None,
        }
    }
}

/// SQLite's words for a file that is none of its own, or no longer.
fn is_damaged(error: &sqlx::Error) -> bool {
    const CORRUPT: i64 = 11;
    const NOT_A_DATABASE: i64 = 26;
    let code = error.as_database_error().and_then(|error| error.code());
    let code = code.and_then(|code| code.parse::<i64>().ok());
    // The upper bits say where in SQLite it was noticed.
    code.is_some_and(|code| matches!(code & 0xff, CORRUPT | NOT_A_DATABASE))
}

impl Store {
    /// Opens the database, creates it where it is a file, and brings it to the present version.
    pub async fn open(url: &DatabaseUrl) -> Result<Store, OpenError> {
        Store::open_there(url).await.map_err(|error| error.at(url))
    }

    async fn open_there(url: &DatabaseUrl) -> Result<Store, OpenError> {
        let place = connect::Place::new(url)?;
        let mut connection = place.connect().await?;
        schema::migrate(&mut connection).await?;
        place.sync_folder().map_err(OpenError::Folder)?;
        let reads = place.pool();
        let writer = Writer::start(place, connection);
        Ok(Store { reads, writer })
    }

    /// Answers when the database does.
    pub async fn ping(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1")
            .fetch_one(&self.reads)
            .await
            .map_err(read_failed)?;
        Ok(())
    }

    /// How much was written since the server started.
    pub fn counts(&self) -> WriterCounts {
        self.writer.counts()
    }

    /// Finishes what was asked for and closes every connection.
    pub async fn close(&self) {
        self.writer.close().await;
        self.reads.close().await;
    }

    async fn write(&self, rows: Vec<Row>) -> Result<(), StoreError> {
        self.writer
            .write(rows)
            .await
            .map_err(|error| StoreError::Write(error.into()))
    }
}

/// Whether a store failed because its disk is full.
pub fn is_full(error: &StoreError) -> bool {
    const SQLITE_FULL: &str = "13";
    const POSTGRES_DISK_FULL: &str = "53100";
    let StoreError::Write(source) = error else {
        return false;
    };
    let code = source.downcast_ref::<WriteError>().and_then(WriteError::code);
    matches!(code.as_deref(), Some(SQLITE_FULL | POSTGRES_DISK_FULL))
}

/// Why rows were not written. Shared, because one failed commit fails many callers.
#[derive(Debug, Clone, thiserror::Error)]
enum WriteError {
    #[error("the database refused the change")]
    Sql(#[source] Arc<sqlx::Error>),
    #[error("the server is stopping")]
    Closed,
}

impl WriteError {
    fn code(&self) -> Option<String> {
        match self {
            WriteError::Sql(error) => Some(error.as_database_error()?.code()?.into_owned()),
            WriteError::Closed => None,
        }
    }
}

impl From<sqlx::Error> for WriteError {
    fn from(error: sqlx::Error) -> Self {
        WriteError::Sql(Arc::new(error))
    }
}

fn read_failed(error: sqlx::Error) -> StoreError {
    StoreError::Read(error.into())
}
