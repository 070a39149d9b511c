//! Tokens that were handed out, by their digests.

use paddlecloud_core::names::UserName;
use paddlecloud_core::ports::StoreError;
use sqlx::{AnyConnection, Row as _};

use super::writer::Row;
use super::{Store, read_failed};

/// A token that was handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRow {
    /// Of the token, in hexadecimal.
    pub digest: String,
    pub owner: String,
    /// Of what the owner proved to get it; it ends with the password.
    pub credential: String,
    /// Unix seconds.
    pub expires: i64,
}

impl Store {
    /// Keeps a token and drops those that expired before `now`.
    pub async fn token_save(&self, token: TokenRow, now: i64) -> Result<(), StoreError> {
        self.write(vec![Row::RemoveTokensBefore(now), Row::SaveToken(token)])
            .await
    }

    pub async fn token_find(&self, digest: &str) -> Result<Option<TokenRow>, StoreError> {
        let query = sqlx::query("SELECT digest, owner, credential, expires FROM tokens WHERE digest = $1");
        let row = query
            .bind(digest)
            .fetch_optional(&self.reads)
            .await
            .map_err(|error| self.read_failed(error))?;
        let read = |row: sqlx::any::AnyRow| {
            Ok(TokenRow {
                digest: row.try_get(0)?,
                owner: row.try_get(1)?,
                credential: row.try_get(2)?,
                expires: row.try_get(3)?,
            })
        };
        row.map(read).transpose().map_err(read_failed)
    }
}

impl TokenRow {
    /// For the user the token belongs to.
    pub fn user(&self) -> Option<UserName> {
        self.owner.parse().ok()
    }

    pub(super) async fn save(&self, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        sqlx::query("INSERT INTO tokens (digest, owner, credential, expires) VALUES ($1, $2, $3, $4) ON CONFLICT (digest) DO NOTHING")
            .bind(&self.digest)
            .bind(&self.owner)
            .bind(&self.credential)
            .bind(self.expires)
            .execute(connection)
            .await?;
        Ok(())
    }

    pub(super) async fn remove_before(time: i64, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        sqlx::query("DELETE FROM tokens WHERE expires < $1")
            .bind(time)
            .execute(connection)
            .await?;
        Ok(())
    }
}
