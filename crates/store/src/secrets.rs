//! Sealed secrets as rows. Their content is defined in `secrets`.

use paddlecloud_core::names::UserName;
use paddlecloud_core::ports::StoreError;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row as _};

use super::audit::{AuditEntry, AuditRow};
use super::writer::Row;
use super::{Store, read_failed};

/// A sealed secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRow {
    pub owner: String,
    /// `secret`, `registry` or `refresh-token`.
    pub kind: String,
    pub name: String,
    pub sealed: String,
    /// Unix seconds.
    pub created: i64,
}

impl SecretRow {
    fn read(row: &AnyRow) -> Result<SecretRow, sqlx::Error> {
        Ok(SecretRow {
            owner: row.try_get(0)?,
            kind: row.try_get(1)?,
            name: row.try_get(2)?,
            sealed: row.try_get(3)?,
            created: row.try_get(4)?,
        })
    }

    pub(super) async fn save(&self, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        sqlx::query(
            "INSERT INTO secrets (owner, kind, name, sealed, created) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (owner, kind, name) DO UPDATE SET sealed = excluded.sealed, created = excluded.created",
        )
        .bind(&self.owner)
        .bind(&self.kind)
        .bind(&self.name)
        .bind(&self.sealed)
        .bind(self.created)
        .execute(connection)
        .await?;
        Ok(())
    }

    pub(super) async fn remove(&self, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        sqlx::query("DELETE FROM secrets WHERE owner = $1 AND kind = $2 AND name = $3")
            .bind(&self.owner)
            .bind(&self.kind)
            .bind(&self.name)
            .execute(connection)
            .await?;
        Ok(())
    }

    pub(super) async fn remove_of(owner: &str, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        sqlx::query("DELETE FROM secrets WHERE owner = $1")
            .bind(owner)
            .execute(connection)
            .await?;
        Ok(())
    }
}

impl Store {
    pub async fn secret_save(&self, rows: Vec<SecretRow>, entry: AuditEntry) -> Result<(), StoreError> {
        let rows = rows.into_iter().map(Row::SaveSecret);
        self.write(rows.chain([Row::Audit(AuditRow::new(entry))]).collect())
            .await
    }

    pub async fn secret_remove(&self, row: SecretRow, entry: AuditEntry) -> Result<(), StoreError> {
        self.write(vec![Row::RemoveSecret(row), Row::Audit(AuditRow::new(entry))])
            .await
    }

    pub async fn secret_find(
        &self,
        owner: &UserName,
        kind: &str,
        name: &str,
    ) -> Result<Option<SecretRow>, StoreError> {
        let query = sqlx::query(
            "SELECT owner, kind, name, sealed, created FROM secrets WHERE owner = $1 AND kind = $2 AND name = $3",
        );
        let row = query
            .bind(owner.as_str())
            .bind(kind)
            .bind(name)
            .fetch_optional(&self.reads)
            .await
            .map_err(|error| self.read_failed(error))?;
        row.as_ref().map(SecretRow::read).transpose().map_err(read_failed)
    }

    /// A user's secrets of one kind, by name.
    pub async fn secrets_of(&self, owner: &UserName, kind: &str) -> Result<Vec<SecretRow>, StoreError> {
        let query = sqlx::query(
            "SELECT owner, kind, name, sealed, created FROM secrets WHERE owner = $1 AND kind = $2 ORDER BY name",
        );
        self.secret_rows(query.bind(owner.as_str()).bind(kind)).await
    }

    /// The secrets of all users, for resealing.
    pub async fn secrets_all(&self) -> Result<Vec<SecretRow>, StoreError> {
        let query =
            sqlx::query("SELECT owner, kind, name, sealed, created FROM secrets ORDER BY owner, kind, name");
        self.secret_rows(query).await
    }

    /// The registries of all users.
    pub async fn registries_all(&self) -> Result<Vec<SecretRow>, StoreError> {
        let query = sqlx::query(
            "SELECT owner, kind, name, sealed, created FROM secrets WHERE kind = 'registry' ORDER BY owner, name",
        );
        self.secret_rows(query).await
    }

    async fn secret_rows<'q>(
        &self,
        query: sqlx::query::Query<'q, sqlx::Any, sqlx::any::AnyArguments>,
    ) -> Result<Vec<SecretRow>, StoreError> {
        let rows = query
            .fetch_all(&self.reads)
            .await
            .map_err(|error| self.read_failed(error))?;
        rows.iter()
            .map(SecretRow::read)
            .collect::<Result<_, _>>()
            .map_err(read_failed)
    }
}
