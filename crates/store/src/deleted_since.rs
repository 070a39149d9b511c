//! Accounts that were deleted since a backup: a restore keeps deletions, so that a new account of the same name inherits nothing
//! of what the backup still has.

use sqlx::{AnyConnection, AssertSqlSafe, Row as _};

use super::Record;
use super::backup::{BEFORE, BackupError};

/// Keeps accounts deleted that were deleted since the backup. Their jobs stay with the account that received them.
pub(super) async fn keep_deletions(change: &mut AnyConnection) -> Result<(), BackupError> {
    let text = format!(
        "SELECT a.id, a.document, n.folded, n.document FROM accounts a JOIN {BEFORE}accounts n ON n.id = a.id"
    );
    for row in sqlx::query(AssertSqlSafe(text)).fetch_all(&mut *change).await? {
        let (id, then, folded, now): (i64, String, String, String) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
        let records = (serde_json::from_str(&then), serde_json::from_str(&now));
        let (Ok(then), Ok(after)): (Result<Record, _>, Result<Record, _>) = records else {
            continue;
        };
        // A backup of another server may have other accounts under these numbers.
        let is_same = then.name == after.name && then.created == after.created;
        if !is_same || then.deleted || !after.deleted {
            continue;
        }
        sqlx::query("UPDATE accounts SET folded = $2, document = $3 WHERE id = $1")
            .bind(id)
            .bind(folded)
            .bind(now)
            .execute(&mut *change)
            .await?;
        // The replaced database has those that were not removed, under their new owner.
        for table in ["jobs", "secrets"] {
            let text = format!("DELETE FROM {table} WHERE owner = $1");
            let delete = sqlx::query(AssertSqlSafe(text)).bind(then.name.to_string());
            delete.execute(&mut *change).await?;
        }
        sqlx::query("UPDATE usage_days SET owner = $2 WHERE owner = $1")
            .bind(then.name.to_string())
            .bind(after.retired_name().to_string())
            .execute(&mut *change)
            .await?;
    }
    Ok(())
}

/// Keeps the secrets of an account that was added since the backup.
pub(super) async fn keep_secrets(change: &mut AnyConnection, owner: &str) -> Result<(), BackupError> {
    let columns = "owner, kind, name, sealed, created";
    let text =
        format!("INSERT INTO secrets ({columns}) SELECT {columns} FROM {BEFORE}secrets WHERE owner = $1");
    sqlx::query(AssertSqlSafe(text))
        .bind(owner.to_owned())
        .execute(change)
        .await?;
    Ok(())
}
