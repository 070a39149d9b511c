//! The shape of the database and how an older one becomes the present one.
//!
//! Every version is a file that is never changed again; both databases read the same text.

use sqlx::{AnyConnection, Connection, Row};

use super::OpenError;

/// What each version adds, the first one first.
const VERSIONS: [&str; 5] = [
    include_str!("schema/0001_jobs.sql"),
    include_str!("schema/0002_tokens.sql"),
    include_str!("schema/0003_token_scopes.sql"),
    include_str!("schema/0004_accounts.sql"),
    include_str!("schema/0005_secrets.sql"),
];

/// Brings the database to the present version. All steps happen, or none.
///
/// Where `jobs` of an earlier time are known, a database without a version was emptied or replaced, and stays as it is.
pub(super) async fn migrate(connection: &mut AnyConnection, jobs: usize) -> Result<(), OpenError> {
    let mut change = connection.begin().await?;
    sqlx::raw_sql("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)")
        .execute(&mut *change)
        .await?;
    let row = sqlx::query("SELECT COALESCE(MAX(version), 0) FROM schema_version")
        .fetch_one(&mut *change)
        .await?;
    let found: i64 = row.try_get(0)?;
    let known = VERSIONS.len() as i64;
    if found > known {
        return Err(OpenError::Newer { found, known });
    }
    if found == 0 && jobs > 0 {
        let place = String::new();
        return Err(OpenError::Emptied { place, jobs });
    }
    for (step, text) in VERSIONS.iter().enumerate().skip(found as usize) {
        sqlx::raw_sql(*text).execute(&mut *change).await?;
        sqlx::query("INSERT INTO schema_version (version) VALUES ($1)")
            .bind(step as i64 + 1)
            .execute(&mut *change)
            .await?;
    }
    change.commit().await?;
    Ok(())
}
