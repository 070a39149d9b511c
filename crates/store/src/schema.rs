//! The database schema and its migrations.
//!
//! Every version is a file that is never changed again; both databases use the same text.

use sqlx::{AnyConnection, Connection, Row};

use super::OpenError;

/// The migrations, oldest first.
const VERSIONS: [&str; 6] = [
    include_str!("schema/0001_jobs.sql"),
    include_str!("schema/0002_tokens.sql"),
    include_str!("schema/0003_token_scopes.sql"),
    include_str!("schema/0004_accounts.sql"),
    include_str!("schema/0005_secrets.sql"),
    include_str!("schema/0006_usage.sql"),
];

/// The current version.
pub(super) const NEWEST: i64 = VERSIONS.len() as i64;

/// Migrates the database to the current version, in one transaction.
///
/// If `jobs` earlier jobs are known, a database without a version was emptied or replaced: it is refused and stays as it is.
pub(super) async fn migrate(connection: &mut AnyConnection, jobs: usize) -> Result<(), OpenError> {
    let mut change = connection.begin().await?;
    let found = version(&mut change).await?;
    if found > NEWEST {
        return Err(OpenError::Newer { found, known: NEWEST });
    }
    if found == 0 && jobs > 0 {
        let place = String::new();
        return Err(OpenError::Emptied { place, jobs });
    }
    raise(&mut change, found, NEWEST).await?;
    change.commit().await?;
    Ok(())
}

/// The version of the database; 0 for an empty one.
pub(super) async fn version(change: &mut AnyConnection) -> Result<i64, sqlx::Error> {
    sqlx::raw_sql("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)")
        .execute(&mut *change)
        .await?;
    let row = sqlx::query("SELECT COALESCE(MAX(version), 0) FROM schema_version")
        .fetch_one(change)
        .await?;
    row.try_get(0)
}

/// Migrates a database from one version to a later one.
pub(super) async fn raise(change: &mut AnyConnection, from: i64, to: i64) -> Result<(), sqlx::Error> {
    let steps = VERSIONS.iter().zip(1i64..);
    for (text, step) in steps.filter(|(_, step)| from < *step && *step <= to) {
        sqlx::raw_sql(*text).execute(&mut *change).await?;
        sqlx::query("INSERT INTO schema_version (version) VALUES ($1)")
            .bind(step)
            .execute(&mut *change)
            .await?;
    }
    Ok(())
}
