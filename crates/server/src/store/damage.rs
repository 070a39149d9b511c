//! A database that cannot be what it was: damaged, emptied, or no file at all. Says which file it is and what to do.

use std::path::Path;
use std::sync::Arc;

use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::StoreError;

/// The database's own words for damage, with the place they lack.
#[derive(Debug, thiserror::Error)]
#[error("the database `{place}` is damaged")]
pub struct Damaged {
    place: String,
    #[source]
    source: Arc<sqlx::Error>,
}

impl Damaged {
    /// `Err` gives the error back when it speaks of something else.
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
            "put a backup in its place; without one, move `{place}`, the files beside it that begin with the same name \
             and the folder `attempts` away: the history of jobs and their logs are then empty, packages and outputs stay"
        )
    }
}

/// The damage behind a failure of the store, if that is what it was.
pub fn damage(error: &StoreError) -> Option<&Damaged> {
    match error {
        StoreError::Read(source) | StoreError::Write(source) => source.downcast_ref(),
        StoreError::Damaged { .. } => None,
    }
}

/// What to do about a database that is damaged, as a whole or in the record of one job.
pub fn hint(error: &StoreError) -> Option<String> {
    match error {
        StoreError::Damaged { job, .. } => Some(format!(
            "put a backup of the database in its place; without one, remove this record with \
             `DELETE FROM jobs WHERE id = '{job}'`: the job is then forgotten, its files stay"
        )),
        other => damage(other).map(Damaged::hint),
    }
}

/// SQLite's words for a file that is none of its own, or no longer.
pub(super) fn is_damaged(error: &sqlx::Error) -> bool {
    const CORRUPT: i64 = 11;
    const NOT_A_DATABASE: i64 = 26;
    let code = error.as_database_error().and_then(|error| error.code());
    let code = code.and_then(|code| code.parse::<i64>().ok());
    // The upper bits say where in SQLite it was noticed.
    code.is_some_and(|code| matches!(code & 0xff, CORRUPT | NOT_A_DATABASE))
}

/// How many jobs have left their folders in a data folder: a database that belongs to it is not empty.
pub fn jobs_below(data: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(data.join("attempts")) else {
        return 0;
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    names
        .filter(|name| name.to_str().is_some_and(|name| name.parse::<JobId>().is_ok()))
        .count()
}
