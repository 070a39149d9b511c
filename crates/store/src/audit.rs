//! The audit log: each row is written in the transaction of the change it records, and is chained to the row before it.
//!
//! A row's digest is keyed with a key that is not in the database and covers the digest of the row before it. The head names the
//! last row and is sealed with the same key, so that truncation is detected too. A log that is emptied together with its head is
//! detected by the accounts, none of which exists without a row, and by a server that runs meanwhile; rows that are added later
//! leave a gap.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use paddlecloud_core::ports::StoreError;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row as _};

use super::writer::Row;
use super::{Store, read_failed};

/// What the chain of rows builds on.
#[derive(Debug, Default)]
pub(super) struct AuditChain {
    /// The key of the digests; set once, before the first entry.
    key: OnceLock<[u8; 32]>,
    /// The number of a row that the log must have.
    reached: AtomicI64,
}

impl AuditChain {
    /// Reads how far the log of a database has come.
    pub async fn of(connection: &mut AnyConnection) -> Result<AuditChain, sqlx::Error> {
        let head = sqlx::query("SELECT seq FROM audit_head WHERE one = 1");
        let reached = match head.fetch_optional(&mut *connection).await? {
            Some(row) => row.try_get(0)?,
            None => {
                let account = sqlx::query("SELECT id FROM accounts LIMIT 1");
                i64::from(account.fetch_optional(connection).await?.is_some())
            }
        };
        let chain = AuditChain::default();
        chain.has_row(reached);
        Ok(chain)
    }

    /// A row with this number has been committed.
    pub fn has_row(&self, seq: i64) {
        self.reached.fetch_max(seq, Ordering::Relaxed);
    }

    fn reached(&self) -> i64 {
        self.reached.load(Ordering::Relaxed)
    }

    fn key(&self) -> [u8; 32] {
        self.key.get().copied().unwrap_or_default()
    }
}

/// The prefix of row ids whose head is sealed. Older heads contain the last row's plain digest.
const SEALED: char = 's';
/// The digest before the first row.
const BEGINNING: &str = "";
/// Rows read by one step of a verification.
const STEP: u32 = 1000;

/// An event that has not been written yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditEntry {
    /// The user who did it; empty if unknown.
    pub actor: String,
    /// The action, as `noun.verb`.
    pub action: String,
    /// The target of the action.
    pub subject: String,
    pub detail: String,
    /// The request id, as in the reply and the server's log.
    pub request: String,
}

/// An entry with its own id, so that writing it twice adds one row.
#[derive(Debug)]
pub(super) struct AuditRow {
    id: String,
    at: i64,
    entry: AuditEntry,
}

/// A row of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    pub seq: i64,
    /// Unix milliseconds.
    pub at: i64,
    pub entry: AuditEntry,
    id: String,
    digest: String,
}

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditState {
    /// Every row is as it was written; has the number and digest of the last row.
    Sound { rows: i64, digest: String },
    /// The first row that is missing or was changed.
    Broken { seq: i64, problem: String },
}

impl AuditRow {
    pub fn new(entry: AuditEntry) -> AuditRow {
        let mut id = [0u8; 16];
        // Without randomness two ids may be equal, and the second entry is not added.
        let _ = rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty());
        AuditRow {
            id: std::iter::once(SEALED.to_string())
                .chain(id.iter().map(|byte| format!("{byte:02x}")))
                .collect(),
            at: Timestamp::now().as_millisecond(),
            entry,
        }
    }

    /// Adds the row; returns its number.
    pub async fn append(
        &self,
        chain: &AuditChain,
        connection: &mut AnyConnection,
    ) -> Result<i64, sqlx::Error> {
        let known = sqlx::query("SELECT seq FROM audit WHERE id = $1").bind(&self.id);
        if let Some(row) = known.fetch_optional(&mut *connection).await? {
            return row.try_get(0);
        }
        let last = sqlx::query(
            "SELECT audit_head.seq, audit.digest FROM audit_head LEFT JOIN audit ON audit.seq = audit_head.seq \
             WHERE one = 1",
        );
        let last = last.fetch_optional(&mut *connection).await?;
        let (last, before): (i64, Option<String>) = match last {
            Some(row) => (row.try_get(0)?, row.try_get(1)?),
            None => (0, None),
        };
        // If the last row is missing, or the whole log, the chain is visibly broken here.
        let last = last.max(chain.reached());
        let before = before.unwrap_or_else(|| BEGINNING.to_owned());
        let record = AuditRecord {
            seq: last + 1,
            at: self.at,
            entry: self.entry.clone(),
            id: self.id.clone(),
            digest: String::new(),
        };
        let digest = record.chained(chain, &before);
        let entry = &self.entry;
        sqlx::query(
            "INSERT INTO audit (seq, id, at, actor, action, subject, detail, request, digest) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        )
        .bind(record.seq)
        .bind(&self.id)
        .bind(self.at)
        .bind(&entry.actor)
        .bind(&entry.action)
        .bind(&entry.subject)
        .bind(&entry.detail)
        .bind(&entry.request)
        .bind(&digest)
        .execute(&mut *connection)
        .await?;
        sqlx::query(
            "INSERT INTO audit_head (one, seq, digest) VALUES (1, $1, $2) \
             ON CONFLICT (one) DO UPDATE SET seq = excluded.seq, digest = excluded.digest",
        )
        .bind(record.seq)
        .bind(sealed(chain, record.seq, &digest))
        .execute(connection)
        .await?;
        Ok(record.seq)
    }
}

/// Seals the head. Without the key, a head for an earlier row cannot be forged.
fn sealed(chain: &AuditChain, seq: i64, digest: &str) -> String {
    let mut hasher = blake3::Hasher::new_keyed(&chain.key());
    hasher.update(format!("head {seq} {digest}").as_bytes());
    hasher.finalize().to_hex().to_string()
}

impl AuditRecord {
    fn read(row: &AnyRow) -> Result<AuditRecord, sqlx::Error> {
        Ok(AuditRecord {
            seq: row.try_get(0)?,
            id: row.try_get(1)?,
            at: row.try_get(2)?,
            entry: AuditEntry {
                actor: row.try_get(3)?,
                action: row.try_get(4)?,
                subject: row.try_get(5)?,
                detail: row.try_get(6)?,
                request: row.try_get(7)?,
            },
            digest: row.try_get(8)?,
        })
    }

    /// The digest of this row, chained to the row before it. Each field is prefixed with its length.
    fn chained(&self, chain: &AuditChain, before: &str) -> String {
        let mut hasher = blake3::Hasher::new_keyed(&chain.key());
        let (seq, at, entry) = (self.seq.to_string(), self.at.to_string(), &self.entry);
        let fields = [
            before,
            &seq,
            &self.id,
            &at,
            &entry.actor,
            &entry.action,
            &entry.subject,
            &entry.detail,
            &entry.request,
        ];
        for field in fields {
            hasher.update(&(field.len() as u64).to_le_bytes());
            hasher.update(field.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }
}

impl Store {
    /// Sets the key of the audit log's digests. Must be called before the first change.
    pub fn set_audit_key(&self, key: [u8; 32]) {
        let _ = self.audit.key.set(key);
    }

    /// Adds an entry that does not belong to a change of the database.
    pub async fn audit(&self, entry: AuditEntry) -> Result<(), StoreError> {
        self.write(vec![Row::Audit(AuditRow::new(entry))]).await
    }

    /// Entries, latest first; with `before`, only those with smaller numbers.
    pub async fn audit_list(&self, before: Option<i64>, limit: u32) -> Result<Vec<AuditRecord>, StoreError> {
        let query = sqlx::query(
            "SELECT seq, id, at, actor, action, subject, detail, request, digest FROM audit \
             WHERE seq < $1 ORDER BY seq DESC LIMIT $2",
        );
        let rows = query
            .bind(before.unwrap_or(i64::MAX))
            .bind(i64::from(limit))
            .fetch_all(&self.reads)
            .await
            .map_err(|error| self.read_failed(error))?;
        rows.iter()
            .map(AuditRecord::read)
            .collect::<Result<_, _>>()
            .map_err(read_failed)
    }

    /// Reads the whole log and verifies every digest.
    pub async fn audit_verify(&self) -> Result<AuditState, StoreError> {
        // These are read first: rows that are added meanwhile come after them.
        let reached = self.audit.reached();
        let head = sqlx::query("SELECT seq, digest FROM audit_head WHERE one = 1")
            .fetch_optional(&self.reads)
            .await
            .map_err(|error| self.read_failed(error))?;
        let head: Option<(i64, String)> = head
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
            .transpose()
            .map_err(read_failed)?;
        let (mut seq, mut before) = (0, BEGINNING.to_owned());
        loop {
            let rows = self.audit_after(seq).await?;
            let done = rows.len() < STEP as usize;
            for record in rows {
                if record.seq != seq + 1 {
                    return Ok(broken(seq + 1, "the row is missing"));
                }
                if record.chained(&self.audit, &before) != record.digest {
                    return Ok(broken(record.seq, "the row was altered"));
                }
                (seq, before) = (record.seq, record.digest);
                let expected = match record.id.starts_with(SEALED) {
                    true => sealed(&self.audit, seq, &before),
                    false => before.clone(),
                };
                if head
                    .as_ref()
                    .is_some_and(|(last, seal)| *last == seq && *seal != expected)
                {
                    return Ok(broken(seq, "the head names another last row"));
                }
            }
            if done {
                break;
            }
        }
        match head {
            Some((last, _)) if last > seq => Ok(broken(seq + 1, "the rows from here on are missing")),
            _ if reached > seq => Ok(broken(seq + 1, "the rows from here on are missing")),
            None if seq > 0 => Ok(broken(seq, "the head is missing")),
            _ => Ok(AuditState::Sound {
                rows: seq,
                digest: before,
            }),
        }
    }

    async fn audit_after(&self, seq: i64) -> Result<Vec<AuditRecord>, StoreError> {
        let query = sqlx::query(
            "SELECT seq, id, at, actor, action, subject, detail, request, digest FROM audit \
             WHERE seq > $1 ORDER BY seq LIMIT $2",
        );
        let rows = query
            .bind(seq)
            .bind(i64::from(STEP))
            .fetch_all(&self.reads)
            .await
            .map_err(|error| self.read_failed(error))?;
        rows.iter()
            .map(AuditRecord::read)
            .collect::<Result<_, _>>()
            .map_err(read_failed)
    }
}

fn broken(seq: i64, problem: &str) -> AuditState {
    AuditState::Broken {
        seq,
        problem: problem.to_owned(),
    }
}
