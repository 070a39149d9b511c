//! Jobs as rows, and queries on them.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use paddlecloud_core::conductor::Write;
use paddlecloud_core::job::{IdempotencyKey, Job};
use paddlecloud_core::names::{JobId, JobName, UserName};
use paddlecloud_core::ports::{JobStore, Page, PageRequest, StoreError};
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, Row as _};

use super::writer::Row;
use super::{Store, read_failed};

/// Sorts after every id, because ids begin with `j_`.
const AFTER_EVERY_ID: &str = "k";

/// Most jobs that one statement saves.
const MOST_SAVED: usize = 64;

/// A job as stored in the table.
#[derive(Debug)]
pub(super) struct JobRow {
    id: String,
    owner: String,
    name: String,
    status: String,
    is_final: i64,
    key: Option<String>,
    snapshot: Option<String>,
    place: i64,
    submitted: i64,
    finished: Option<i64>,
    document: String,
}

impl JobRow {
    pub(super) fn new(job: &Job) -> Result<JobRow, StoreError> {
        let document = serde_json::to_string(job).map_err(|error| StoreError::Write(error.into()))?;
        Ok(JobRow {
            id: job.id.to_string(),
            owner: job.user.to_string(),
            name: job.spec.name.to_string(),
            status: job.phase.to_string(),
            is_final: i64::from(job.phase.is_final()),
            key: job.key.as_ref().map(ToString::to_string),
            snapshot: job.spec.snapshot.clone(),
            place: i64::try_from(job.order).unwrap_or(i64::MAX),
            submitted: job.submitted_at.as_millisecond(),
            finished: job.finished_at.map(Timestamp::as_millisecond),
            document,
        })
    }

    /// Saves jobs in this order, many with each statement.
    pub(super) async fn save(jobs: &[&JobRow], connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        let mut left = jobs;
        while !left.is_empty() {
            let power = distinct(left).ilog2();
            let (saved, later) = left.split_at(1 << power);
            let statement = SAVE[power as usize].as_str();
            let query = saved
                .iter()
                .fold(sqlx::query(statement), |query, job| job.bind_to(query));
            query.execute(&mut *connection).await?;
            left = later;
        }
        Ok(())
    }

    fn bind_to<'q>(&'q self, query: Query<'q, Any, AnyArguments>) -> Query<'q, Any, AnyArguments> {
        query
            .bind(&self.id)
            .bind(&self.owner)
            .bind(&self.name)
            .bind(&self.status)
            .bind(self.is_final)
            .bind(self.key.as_deref())
            .bind(self.snapshot.as_deref())
            .bind(self.place)
            .bind(self.submitted)
            .bind(self.finished)
            .bind(&self.document)
    }

    /// Changes the owner, which [`JobRow::save`] never does.
    pub(super) async fn give(&self, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        sqlx::query("UPDATE jobs SET owner = $2, idem_key = NULL, document = $3 WHERE id = $1")
            .bind(&self.id)
            .bind(&self.owner)
            .bind(&self.document)
            .execute(connection)
            .await?;
        Ok(())
    }

    pub(super) async fn remove(id: &str, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        sqlx::query("DELETE FROM jobs WHERE id = $1")
            .bind(id)
            .execute(connection)
            .await?;
        Ok(())
    }
}

/// The statements that save 1, 2, 4, … jobs: few enough that the database prepares each once.
static SAVE: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..=MOST_SAVED.ilog2()).map(|power| save(1 << power)).collect());

fn save(jobs: usize) -> String {
    const COLUMNS: usize = 11;
    let row = |row: usize| {
        let values: Vec<String> = (1..=COLUMNS)
            .map(|column| format!("${}", row * COLUMNS + column))
            .collect();
        format!("({})", values.join(", "))
    };
    let rows: Vec<String> = (0..jobs).map(row).collect();
    format!(
        "INSERT INTO jobs (id, owner, name, status, is_final, idem_key, snapshot, place, submitted, finished, document) \
         VALUES {} \
         ON CONFLICT (id) DO UPDATE SET status = excluded.status, is_final = excluded.is_final, \
         finished = excluded.finished, document = excluded.document",
        rows.join(", ")
    )
}

/// How many of the first jobs one statement can save: PostgreSQL refuses one that changes a row twice.
fn distinct(jobs: &[&JobRow]) -> usize {
    let mut seen = HashSet::new();
    jobs.iter()
        .take(MOST_SAVED)
        .take_while(|job| seen.insert(&job.id))
        .count()
}

impl JobStore for Store {
    async fn save(&self, writes: &[Write]) -> Result<(), StoreError> {
        let rows = writes.iter().map(row_of).collect::<Result<Vec<_>, _>>()?;
        if rows.is_empty() {
            return Ok(());
        }
        self.write(rows).await
    }

    async fn load_active(&self) -> Result<Vec<Job>, StoreError> {
        let query = sqlx::query("SELECT id, document FROM jobs WHERE is_final = 0 ORDER BY place");
        let rows = query
            .fetch_all(&self.reads)
            .await
            .map_err(|error| self.read_failed(error))?;
        rows.iter().map(job_of).collect()
    }

    async fn get(&self, job: &JobId) -> Result<Option<Arc<Job>>, StoreError> {
        let query = sqlx::query("SELECT id, document FROM jobs WHERE id = $1").bind(job.as_str());
        let row = query
            .fetch_optional(&self.reads)
            .await
            .map_err(|error| self.read_failed(error))?;
        row.map(|row| job_of(&row).map(Arc::new)).transpose()
    }

    async fn latest(&self, user: &UserName, name: Option<&JobName>) -> Result<Option<Arc<Job>>, StoreError> {
        let request = PageRequest {
            user: Some(user.clone()),
            name: name.cloned(),
            before: None,
            limit: 1,
        };
        Ok(self.page(&request).await?.jobs.pop())
    }

    async fn find_by_key(&self, user: &UserName, key: &IdempotencyKey) -> Result<Option<JobId>, StoreError> {
        let query = sqlx::query("SELECT id FROM jobs WHERE owner = $1 AND idem_key = $2");
        let query = query.bind(user.as_str()).bind(key.as_str());
        let row = query
            .fetch_optional(&self.reads)
            .await
            .map_err(|error| self.read_failed(error))?;
        row.map(|row| id_of(&row)).transpose()
    }

    async fn page(&self, request: &PageRequest) -> Result<Page, StoreError> {
        let before = request.before.as_ref().map_or(AFTER_EVERY_ID, JobId::as_str);
        // One extra row shows whether there are more.
        let limit = i64::try_from(request.limit).unwrap_or(i64::MAX - 1) + 1;
        let query = match (&request.user, &request.name) {
            (None, None) => {
                sqlx::query("SELECT id, document FROM jobs WHERE id < $1 ORDER BY id DESC LIMIT $2").bind(before)
            }
            (None, Some(name)) => sqlx::query(
                "SELECT id, document FROM jobs WHERE name = $1 AND id < $2 ORDER BY id DESC LIMIT $3",
            )
            .bind(name.as_str())
            .bind(before),
            (Some(user), None) => sqlx::query(
                "SELECT id, document FROM jobs WHERE owner = $1 AND id < $2 ORDER BY owner DESC, id DESC LIMIT $3",
            )
            .bind(user.as_str())
            .bind(before),
            (Some(user), Some(name)) => sqlx::query(
                "SELECT id, document FROM jobs WHERE owner = $1 AND name = $2 AND id < $3 \
                 ORDER BY owner DESC, name DESC, id DESC LIMIT $4",
            )
            .bind(user.as_str())
            .bind(name.as_str())
            .bind(before),
        };
        let rows = query
            .bind(limit)
            .fetch_all(&self.reads)
            .await
            .map_err(|error| self.read_failed(error))?;
        let more = rows.len() > request.limit;
        let jobs = rows
            .iter()
            .take(request.limit)
            .map(|row| job_of(row).map(Arc::new));
        Ok(Page {
            jobs: jobs.collect::<Result<_, _>>()?,
            more,
        })
    }
}

impl Store {
    /// Final jobs of a user that ended before a time, oldest first.
    pub async fn finished_before(
        &self,
        user: &UserName,
        time: Timestamp,
        limit: u32,
    ) -> Result<Vec<JobId>, StoreError> {
        let query = sqlx::query(
            "SELECT id FROM jobs WHERE owner = $1 AND is_final = 1 AND finished < $2 ORDER BY finished LIMIT $3",
        );
        let query = query
            .bind(user.as_str())
            .bind(time.as_millisecond())
            .bind(i64::from(limit));
        let rows = query
            .fetch_all(&self.reads)
            .await
            .map_err(|error| self.read_failed(error))?;
        rows.iter().map(id_of).collect()
    }

    /// The run of a user that ended last.
    pub async fn last_finished(&self, user: &UserName) -> Result<Option<Arc<Job>>, StoreError> {
        let query = sqlx::query(
            "SELECT id, document FROM jobs WHERE owner = $1 AND is_final = 1 ORDER BY finished DESC, id DESC LIMIT 1",
        );
        let row = query
            .bind(user.as_str())
            .fetch_optional(&self.reads)
            .await
            .map_err(|error| self.read_failed(error))?;
        row.map(|row| job_of(&row).map(Arc::new)).transpose()
    }

    /// Ids of the uploaded packages that a user's jobs were submitted with.
    pub async fn snapshots(&self, user: &UserName, except: &[JobId]) -> Result<HashSet<String>, StoreError> {
        let query = sqlx::query("SELECT id, snapshot FROM jobs WHERE owner = $1 AND snapshot IS NOT NULL");
        let except: HashSet<&str> = except.iter().map(JobId::as_str).collect();
        let rows = query
            .bind(user.as_str())
            .fetch_all(&self.reads)
            .await
            .map_err(|error| self.read_failed(error))?;
        let mut found = HashSet::new();
        for row in &rows {
            if !except.contains(row.try_get::<&str, _>(0).map_err(read_failed)?) {
                found.insert(row.try_get(1).map_err(read_failed)?);
            }
        }
        Ok(found)
    }
}

fn row_of(write: &Write) -> Result<Row, StoreError> {
    match write {
        Write::Save(job) => Ok(Row::SaveJob(JobRow::new(job)?)),
        Write::Remove(id) => Ok(Row::RemoveJob(id.to_string())),
    }
}

fn job_of(row: &AnyRow) -> Result<Job, StoreError> {
    let id: String = row.try_get(0).map_err(read_failed)?;
    let document: String = row.try_get(1).map_err(read_failed)?;
    serde_json::from_str(&document).map_err(|error| StoreError::Damaged {
        job: id,
        source: error.into(),
    })
}

fn id_of(row: &AnyRow) -> Result<JobId, StoreError> {
    let id: String = row.try_get(0).map_err(read_failed)?;
    id.parse()
        .map_err(|error: paddlecloud_core::names::NameError| StoreError::Damaged {
            job: id,
            source: error.into(),
        })
}
