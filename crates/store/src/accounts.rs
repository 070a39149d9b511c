//! Accounts and groups as rows. Their meaning is defined in `accounts`.

use paddlecloud_core::names::UserName;
use paddlecloud_core::ports::{JobStore, PageRequest, StoreError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::{AnyConnection, Row as _};

use super::audit::{AuditEntry, AuditRow};
use super::jobs::JobRow;
use super::writer::Row;
use super::{Group, Record, Store, read_failed};

/// Jobs to read at a time when they get a new owner.
const PAGE: usize = 500;

/// An account as stored in the table.
#[derive(Debug)]
pub(super) struct AccountRow {
    id: i64,
    folded: String,
    document: String,
}

/// Who gets the jobs of a deleted account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heir {
    pub from: UserName,
    pub to: UserName,
}

impl AccountRow {
    fn new(record: &Record) -> Result<AccountRow, StoreError> {
        Ok(AccountRow {
            id: i64::try_from(record.id).unwrap_or(i64::MAX),
            folded: record.folded(),
            document: document(record)?,
        })
    }

    pub async fn save(&self, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        sqlx::query(
            "INSERT INTO accounts (id, folded, document) VALUES ($1, $2, $3) \
             ON CONFLICT (id) DO UPDATE SET folded = excluded.folded, document = excluded.document",
        )
        .bind(self.id)
        .bind(&self.folded)
        .bind(&self.document)
        .execute(connection)
        .await?;
        Ok(())
    }
}

/// A group as stored in the table.
#[derive(Debug)]
pub(super) struct GroupRow {
    name: String,
    document: String,
}

impl GroupRow {
    pub async fn save(&self, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        sqlx::query(
            "INSERT INTO account_groups (name, document) VALUES ($1, $2) \
             ON CONFLICT (name) DO UPDATE SET document = excluded.document",
        )
        .bind(&self.name)
        .bind(&self.document)
        .execute(connection)
        .await?;
        Ok(())
    }

    pub async fn remove(name: &str, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        sqlx::query("DELETE FROM account_groups WHERE name = $1")
            .bind(name)
            .execute(connection)
            .await?;
        Ok(())
    }
}

impl Store {
    /// Writes accounts and the audit entry in one transaction.
    pub async fn accounts_save(&self, records: &[Record], entry: AuditEntry) -> Result<(), StoreError> {
        let rows = records
            .iter()
            .map(AccountRow::new)
            .collect::<Result<Vec<_>, _>>()?;
        let rows = rows.into_iter().map(Row::SaveAccount);
        self.write(rows.chain([Row::Audit(AuditRow::new(entry))]).collect())
            .await
    }

    /// Retires an account in one transaction: revokes its tokens and, if there is an heir, gives its jobs to them.
    pub async fn account_retire(
        &self,
        record: &Record,
        heir: Option<&Heir>,
        entry: AuditEntry,
    ) -> Result<(), StoreError> {
        let mut rows = vec![
            Row::SaveAccount(AccountRow::new(record)?),
            Row::RemoveTokensOf(i64::try_from(record.id).unwrap_or(i64::MAX)),
            Row::RemoveSecretsOf(record.name.to_string()),
            Row::GiveUse {
                from: record.name.to_string(),
                to: record.retired_name().to_string(),
            },
        ];
        if let Some(heir) = heir {
            rows.extend(self.given(record, heir).await?.into_iter().map(Row::GiveJob));
        }
        rows.push(Row::Audit(AuditRow::new(entry)));
        self.write(rows).await
    }

    async fn given(&self, record: &Record, heir: &Heir) -> Result<Vec<JobRow>, StoreError> {
        let mut request = PageRequest {
            user: Some(heir.from.clone()),
            name: None,
            before: None,
            limit: PAGE,
        };
        let mut rows = Vec::new();
        let is_kept = heir.to == record.retired_name();
        loop {
            let page = self.page(&request).await?;
            request.before = page.jobs.last().map(|job| job.id.clone());
            for job in &page.jobs {
                let mut given = (**job).clone();
                given.user = heir.to.clone();
                if !is_kept {
                    let earlier = given.given_in.map(|folder| format!("/{folder}"));
                    given.given_in = Some(record.given_folder() + &earlier.unwrap_or_default());
                }
                // Another owner's idempotency keys are meaningless.
                given.key = None;
                rows.push(JobRow::new(&given)?);
            }
            if !page.more {
                return Ok(rows);
            }
        }
    }

    /// All accounts ever added, including deleted ones.
    pub async fn accounts_load(&self) -> Result<Vec<Record>, StoreError> {
        self.documents("SELECT document FROM accounts ORDER BY id").await
    }

    pub async fn group_save(&self, group: &Group, entry: AuditEntry) -> Result<(), StoreError> {
        let row = GroupRow {
            name: group.name.clone(),
            document: document(group)?,
        };
        self.write(vec![Row::SaveGroup(row), Row::Audit(AuditRow::new(entry))])
            .await
    }

    pub async fn group_remove(
        &self,
        name: &str,
        members: &[Record],
        entry: AuditEntry,
    ) -> Result<(), StoreError> {
        let members = members
            .iter()
            .map(AccountRow::new)
            .collect::<Result<Vec<_>, _>>()?;
        let mut rows: Vec<Row> = members.into_iter().map(Row::SaveAccount).collect();
        rows.push(Row::RemoveGroup(name.to_owned()));
        rows.push(Row::Audit(AuditRow::new(entry)));
        self.write(rows).await
    }

    pub async fn groups_load(&self) -> Result<Vec<Group>, StoreError> {
        self.documents("SELECT document FROM account_groups ORDER BY name")
            .await
    }

    async fn documents<T: DeserializeOwned>(&self, query: &'static str) -> Result<Vec<T>, StoreError> {
        let rows = sqlx::query(query)
            .fetch_all(&self.reads)
            .await
            .map_err(|error| self.read_failed(error))?;
        let read = |row: &sqlx::any::AnyRow| {
            let text: String = row.try_get(0).map_err(read_failed)?;
            serde_json::from_str(&text).map_err(|error| StoreError::Read(error.into()))
        };
        rows.iter().map(read).collect()
    }
}

fn document(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Write(error.into()))
}
