//! Issued tokens, by their digests.

use paddlecloud_core::access::Scopes;
use paddlecloud_core::names::UserName;
use paddlecloud_core::ports::StoreError;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row as _};

use super::audit::{AuditEntry, AuditRow};
use super::writer::Row;
use super::{Store, is_gone, read_failed};

/// An issued token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenRow {
    /// The digest of the token, in hexadecimal.
    pub digest: String,
    /// The public id by which users refer to it; reveals nothing about the token.
    pub id: String,
    pub name: String,
    pub owner: String,
    /// The number of the owner's account; 0 for an account of the configuration.
    pub account: i64,
    /// The fingerprint of the owner's password; the token ends when it changes.
    pub credential: String,
    /// The granted scopes, separated by commas.
    pub scopes: String,
    /// Unix seconds, here and below.
    pub created: i64,
    /// When the first token in this chain of renewals was issued.
    pub since: i64,
    pub expires: i64,
}

/// A token that is exchanged for a new one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewed {
    pub digest: String,
    /// When it ends at the latest, in Unix seconds.
    pub expires: i64,
}

const COLUMNS: &str = "digest, id, name, owner, account, credential, scopes, created, since, expires";

impl Store {
    /// Stores a token, and removes those that it replaces and those that expired before `now`.
    pub async fn token_save(
        &self,
        token: TokenRow,
        now: i64,
        replaces: Vec<String>,
        entry: AuditEntry,
    ) -> Result<(), StoreError> {
        let mut rows = vec![Row::RemoveTokensBefore(now), Row::SaveToken(token)];
        rows.extend(replaces.into_iter().map(Row::RemoveToken));
        rows.push(Row::Audit(AuditRow::new(entry)));
        self.write(rows).await
    }

    /// Stores a token like [`Store::token_save`] if the one that it is exchanged for still exists. Returns `false` if that was revoked
    /// meanwhile.
    pub async fn token_renew(
        &self,
        token: TokenRow,
        now: i64,
        old: Renewed,
        replaces: Vec<String>,
        entry: AuditEntry,
    ) -> Result<bool, StoreError> {
        let mut rows = vec![Row::RemoveTokensBefore(now), Row::RenewToken(token, old)];
        rows.extend(replaces.into_iter().map(Row::RemoveToken));
        rows.push(Row::Audit(AuditRow::new(entry)));
        match self.write(rows).await {
            Err(StoreError::Write(error)) if is_gone(error.as_ref()) => Ok(false),
            written => written.map(|()| true),
        }
    }

    pub async fn token_remove(&self, digest: String, entry: AuditEntry) -> Result<(), StoreError> {
        self.write(vec![Row::RemoveToken(digest), Row::Audit(AuditRow::new(entry))])
            .await
    }

    pub async fn token_find(&self, digest: &str) -> Result<Option<TokenRow>, StoreError> {
        let text = format!("SELECT {COLUMNS} FROM tokens WHERE digest = $1");
        let row = sqlx::query(sqlx::AssertSqlSafe(text))
            .bind(digest)
            .fetch_optional(&self.reads)
            .await
            .map_err(|error| self.read_failed(error))?;
        row.as_ref().map(TokenRow::read).transpose().map_err(read_failed)
    }

    /// The tokens of a user, latest first.
    pub async fn tokens_of(&self, owner: &UserName) -> Result<Vec<TokenRow>, StoreError> {
        let text = format!("SELECT {COLUMNS} FROM tokens WHERE owner = $1 ORDER BY created DESC, id");
        let rows = sqlx::query(sqlx::AssertSqlSafe(text))
            .bind(owner.as_str())
            .fetch_all(&self.reads)
            .await
            .map_err(|error| self.read_failed(error))?;
        rows.iter()
            .map(TokenRow::read)
            .collect::<Result<_, _>>()
            .map_err(read_failed)
    }
}

/// Lifetime, in seconds, of tokens that predate accounts. Their rows have no id and no creation time.
const OLD_LIFETIME: i64 = 30 * 24 * 60 * 60;
/// Length of an id.
const ID_LENGTH: usize = 12;

impl TokenRow {
    fn read(row: &AnyRow) -> Result<TokenRow, sqlx::Error> {
        let mut token = TokenRow {
            digest: row.try_get(0)?,
            id: row.try_get(1)?,
            name: row.try_get(2)?,
            owner: row.try_get(3)?,
            account: row.try_get(4)?,
            credential: row.try_get(5)?,
            scopes: row.try_get(6)?,
            created: row.try_get(7)?,
            since: row.try_get(8)?,
            expires: row.try_get(9)?,
        };
        if token.id.is_empty() {
            token.id = token.digest.chars().take(ID_LENGTH).collect();
            token.created = token.expires - OLD_LIFETIME;
            token.since = token.created;
        }
        Ok(token)
    }

    /// The owner of the token.
    pub fn user(&self) -> Option<UserName> {
        self.owner.parse().ok()
    }

    /// The granted scopes. A set that this version cannot parse grants nothing.
    pub fn scopes(&self) -> Scopes {
        self.scopes.parse().unwrap_or_default()
    }

    /// Saves a token if `old` exists, which then ends at its new time. Otherwise nothing is written, and the transaction has to fail.
    pub(super) async fn renew(
        &self,
        old: &Renewed,
        connection: &mut AnyConnection,
    ) -> Result<bool, sqlx::Error> {
        // The rows may be written a second time, after the first has removed the old token.
        let known = sqlx::query("SELECT digest FROM tokens WHERE digest = $1 OR digest = $2")
            .bind(&old.digest)
            .bind(&self.digest)
            .fetch_optional(&mut *connection)
            .await?;
        if known.is_none() {
            return Ok(false);
        }
        sqlx::query("UPDATE tokens SET expires = $2 WHERE digest = $1 AND expires > $2")
            .bind(&old.digest)
            .bind(old.expires)
            .execute(&mut *connection)
            .await?;
        self.save(connection).await?;
        Ok(true)
    }

    pub(super) async fn save(&self, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        let text = format!(
            "INSERT INTO tokens ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
             ON CONFLICT (digest) DO NOTHING"
        );
        sqlx::query(sqlx::AssertSqlSafe(text))
            .bind(&self.digest)
            .bind(&self.id)
            .bind(&self.name)
            .bind(&self.owner)
            .bind(self.account)
            .bind(&self.credential)
            .bind(&self.scopes)
            .bind(self.created)
            .bind(self.since)
            .bind(self.expires)
            .execute(connection)
            .await?;
        Ok(())
    }

    pub(super) async fn remove(digest: &str, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        sqlx::query("DELETE FROM tokens WHERE digest = $1")
            .bind(digest)
            .execute(connection)
            .await?;
        Ok(())
    }

    pub(super) async fn remove_of(account: i64, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        sqlx::query("DELETE FROM tokens WHERE account = $1")
            .bind(account)
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
