//! Damaged, emptied or missing databases: the error names the file and how to fix it.

use std::sync::Arc;

use paddlecloud_core::ports::StoreError;

/// A database's report of damage, with the path that it lacks.
#[derive(Debug, thiserror::Error)]
#[error("the database `{place}` is damaged")]
pub struct Damaged {
    place: String,
    #[source]
    source: Arc<sqlx::Error>,
}

impl Damaged {
    /// Returns the error as `Err` if it does not report damage.
    pub(super) fn of(place: &str, error: Arc<sqlx::Error>) -> Result<Damaged, Arc<sqlx::Error>> {
        if !is_damaged(&error) {
            return Err(error);
        }
        Ok(Damaged {
            place: place.to_owned(),
            source: error,
        })
    }

    pub fn hint(&self) -> String {
        let place = &self.place;
        format!(
            "restore it from a backup; without one, move the files `{place}*` and the folder `attempts` elsewhere: the server then starts without job history and logs, packages and outputs stay"
        )
    }
}

/// The damage that caused a failure of the store, if any.
pub fn damage(error: &StoreError) -> Option<&Damaged> {
    match error {
        StoreError::Read(source) | StoreError::Write(source) => source.downcast_ref(),
        StoreError::Damaged { .. } => None,
    }
}

/// How to fix a damaged database or job record.
pub fn hint(error: &StoreError) -> Option<String> {
    match error {
        StoreError::Damaged { job, .. } => Some(format!(
            "restore the database from a backup; without one, remove this record with \
             `DELETE FROM jobs WHERE id = '{job}'`: the job is then forgotten, its files stay"
        )),
        other => damage(other).map(Damaged::hint),
    }
}

/// Whether SQLite reports a corrupt file, or one that is not a database.
pub(super) fn is_damaged(error: &sqlx::Error) -> bool {
    const CORRUPT: i64 = 11;
    const NOT_A_DATABASE: i64 = 26;
    let code = error.as_database_error().and_then(|error| error.code());
    let code = code.and_then(|code| code.parse::<i64>().ok());
    // The upper bits are SQLite's extended error code.
    code.is_some_and(|code| matches!(code & 0xff, CORRUPT | NOT_A_DATABASE))
}
