//! Backups: all tables of the database as lines of JSON. SQLite and PostgreSQL write and read the same format.
//!
//! A backup is a consistent snapshot of a database that may be in use. The first line has the schema version; a line with a
//! table's columns precedes the table's rows; the last line has the digest of everything before it. Keys are separate files, so
//! they are not included.
//!
//! A restore replaces the database in one transaction and then merges newer data of the old database: newer states of jobs, newer
//! jobs and accounts, and the rest of the audit log stay, and tokens revoked since the backup stay revoked. A database that was
//! created after the backup, for example by an accidental start, revokes none.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use paddlecloud_core::job::{Job, Outcome, Phase};
use paddlecloud_core::names::JobId;
use paddlecloud_pfs::durable;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Executor as _, Row as _};

use super::connect::DatabaseTarget;
use super::jobs::JobRow;
use super::{DatabaseUrl, OpenError, deleted_since, schema};

/// The version of the format.
const FORMAT: u32 = 1;
/// The table with the schema version, which a backup has in its first line.
const VERSION_TABLE: &str = "schema_version";
/// Tables of the replaced database, while a restore merges them.
pub(super) const BEFORE: &str = "before_restore_";
/// The columns of `jobs` that exist in every schema version, without the idempotency key.
const JOB_COLUMNS: &str = "id, owner, name, status, is_final, snapshot, place, submitted, finished, document";

/// Why a backup was not taken or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("there is no database at `{0}`")]
    NoDatabase(String),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("cannot write `{path}`", path = .0.display())]
    Write(PathBuf, #[source] io::Error),
    #[error("cannot read `{path}`", path = .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("`{path}` cannot be restored: {problem}", path = .path.display())]
    Unusable { path: PathBuf, problem: String },
    #[error("the database refused")]
    Sql(#[from] sqlx::Error),
}

impl BackupError {
    fn unusable(path: &Path, problem: impl ToString) -> BackupError {
        BackupError::Unusable {
            path: path.to_owned(),
            problem: problem.to_string(),
        }
    }
}

/// One line of a backup.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Backup {
        format: u32,
        schema: i64,
        time: Timestamp,
        version: String,
    },
    Table {
        name: String,
        columns: Vec<String>,
    },
    Row(Vec<Value>),
    End {
        rows: u64,
        digest: String,
    },
}

/// A table as the database describes it.
struct Table {
    name: String,
    /// Each column's name, and whether it holds numbers.
    columns: Vec<(String, bool)>,
}

/// Writes a backup of a database that may be in use. Returns the number of rows.
pub async fn back_up(url: &DatabaseUrl, path: &Path) -> Result<u64, BackupError> {
    if url.sqlite_path().is_some_and(|file| !file.exists()) {
        return Err(BackupError::NoDatabase(super::shown(url)));
    }
    let mut connection = DatabaseTarget::new(url)?.connect_to_read().await?;
    let begin = match url.sqlite_path() {
        Some(_) => "BEGIN",
        None => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    };
    connection.execute(begin).await?;
    let written = write_all(&mut connection, url, path).await;
    // The transaction only read.
    let _ = connection.execute("ROLLBACK").await;
    connection.close().await?;
    written
}

async fn write_all(
    connection: &mut AnyConnection,
    url: &DatabaseUrl,
    path: &Path,
) -> Result<u64, BackupError> {
    let failed = |error| BackupError::Write(path.to_owned(), error);
    let tables = tables(connection, url).await?;
    if !tables.iter().any(|table| table.name == VERSION_TABLE) {
        return Err(BackupError::NoDatabase(super::shown(url)));
    }
    let row = sqlx::query("SELECT COALESCE(MAX(version), 0) FROM schema_version")
        .fetch_one(&mut *connection)
        .await?;
    let mut writer = Writer::create(path).map_err(failed)?;
    writer
        .line(&Line::Backup {
            format: FORMAT,
            schema: row.try_get(0)?,
            time: Timestamp::now(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })
        .map_err(failed)?;
    for table in tables.iter().filter(|table| table.name != VERSION_TABLE) {
        let columns: Vec<String> = table.columns.iter().map(|(name, _)| name.clone()).collect();
        let text = format!("SELECT {} FROM {}", columns.join(", "), table.name);
        let name = table.name.clone();
        writer.line(&Line::Table { name, columns }).map_err(failed)?;
        let mut rows = sqlx::query(AssertSqlSafe(text)).fetch(&mut *connection);
        while let Some(row) = rows.try_next().await? {
            writer.line(&Line::Row(values(&row, table)?)).map_err(failed)?;
        }
    }
    writer.finish().map_err(failed)
}

/// The tables of the database, as it describes them. Columns are text or whole numbers, see `schema`.
async fn tables(connection: &mut AnyConnection, url: &DatabaseUrl) -> Result<Vec<Table>, sqlx::Error> {
    let query = match url.sqlite_path() {
        Some(_) => {
            "SELECT m.name, p.name, p.type FROM sqlite_master m, pragma_table_info(m.name) p \
             WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, p.cid"
        }
        None => {
            "SELECT CAST(table_name AS TEXT), CAST(column_name AS TEXT), CAST(data_type AS TEXT) \
             FROM information_schema.columns WHERE table_schema = current_schema() \
             ORDER BY table_name, ordinal_position"
        }
    };
    let mut tables: Vec<Table> = Vec::new();
    for row in sqlx::query(query).fetch_all(connection).await? {
        let (name, column, kind): (String, String, String) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let column = (column, kind.eq_ignore_ascii_case("bigint"));
        match tables.last_mut().filter(|table| table.name == name) {
            Some(table) => table.columns.push(column),
            None => tables.push(Table {
                name,
                columns: vec![column],
            }),
        }
    }
    Ok(tables)
}

fn values(row: &AnyRow, table: &Table) -> Result<Vec<Value>, sqlx::Error> {
    let columns = table.columns.iter().enumerate();
    columns
        .map(|(index, (_, is_number))| match is_number {
            true => row.try_get::<Option<i64>, _>(index).map(Value::from),
            false => row.try_get::<Option<String>, _>(index).map(Value::from),
        })
        .collect()
}

/// Replaces the database with a backup and merges newer data of the old database. `is_known` says of a job that had not ended
/// whether its state in the backup is still true.
pub async fn restore(
    url: &DatabaseUrl,
    path: &Path,
    is_known: &(dyn Fn(&Job) -> bool + Sync),
) -> Result<u64, BackupError> {
    let backup = Header::check(path)?;
    let mut connection = DatabaseTarget::new(url)?
        .connect_to_write()
        .await
        .map_err(OpenError::from)?;
    let mut change = connection.begin().await?;
    let before = set_aside(&mut change, url).await?;
    schema::version(&mut change).await?;
    schema::raise(&mut change, 0, backup.schema).await?;
    load(&mut change, url, path).await?;
    schema::raise(&mut change, backup.schema, schema::NEWEST).await?;
    let newest: Option<String> = sqlx::query("SELECT MAX(id) FROM jobs")
        .fetch_one(&mut *change)
        .await?
        .try_get(0)?;
    merge(&mut change, &before).await?;
    settle_jobs(&mut change, &before, is_known, backup.time).await?;
    for table in &before {
        execute(&mut change, format!("DROP TABLE {BEFORE}{table}")).await?;
    }
    let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
    sqlx::query("INSERT INTO unknown_runs (after_id, upto_id) VALUES ($1, $2)")
        .bind(newest.unwrap_or_default())
        .bind(JobId::new(now, u32::MAX).as_str().to_owned())
        .execute(&mut *change)
        .await?;
    change.commit().await?;
    connection.close().await?;
    Ok(backup.rows)
}

/// Reads and checks a whole backup without changing anything, for the fuzzer.
pub fn check(path: &Path) -> Result<(), BackupError> {
    Header::check(path).map(drop)
}

/// Copies the tables that are merged later, then drops all tables. Returns the names of the copies. Renaming would not
/// work, because indexes keep their names.
async fn set_aside(change: &mut AnyConnection, url: &DatabaseUrl) -> Result<Vec<&'static str>, sqlx::Error> {
    let found = tables(change, url).await?;
    let mut kept = Vec::new();
    for table in ["jobs", "tokens", "accounts", "secrets", "audit", "audit_head"] {
        if found.iter().any(|one| one.name == table) {
            execute(
                change,
                format!("CREATE TABLE {BEFORE}{table} AS SELECT * FROM {table}"),
            )
            .await?;
            kept.push(table);
        }
    }
    for table in &found {
        execute(change, format!("DROP TABLE {}", table.name)).await?;
    }
    Ok(kept)
}

async fn load(change: &mut AnyConnection, url: &DatabaseUrl, path: &Path) -> Result<(), BackupError> {
    let tables = tables(change, url).await?;
    let (mut insert, mut numbers) = (String::new(), Vec::new());
    for line in lines(path)? {
        match line? {
            (_, Line::Table { name, columns }) => {
                insert = insert_into(path, &name, &columns)?;
                numbers = numbers_among(&tables, &name, &columns);
            }
            (_, Line::Row(row)) => {
                let mut query = sqlx::query(AssertSqlSafe(insert.clone()));
                for (value, is_number) in row.iter().zip(&numbers) {
                    query = match is_number {
                        true => query.bind(value.as_i64()),
                        false => query.bind(value.as_str().map(str::to_owned)),
                    };
                }
                query.execute(&mut *change).await?;
            }
            (_, Line::Backup { .. } | Line::End { .. }) => {}
        }
    }
    Ok(())
}

/// Which of these columns hold numbers.
fn numbers_among(tables: &[Table], name: &str, columns: &[String]) -> Vec<bool> {
    let known = tables.iter().find(|table| table.name == name);
    let is_number = |column: &String| {
        let mut known = known.iter().flat_map(|table| &table.columns);
        known.any(|(name, is_number)| name == column && *is_number)
    };
    columns.iter().map(is_number).collect()
}

/// Only plain names are accepted, because they become part of a statement.
fn insert_into(path: &Path, table: &str, columns: &[String]) -> Result<String, BackupError> {
    let is_name = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    if columns.is_empty() || !is_name(table) || !columns.iter().all(|name| is_name(name)) {
        return Err(BackupError::unusable(path, "a table has an impossible name"));
    }
    let places: Vec<String> = (1..=columns.len()).map(|number| format!("${number}")).collect();
    let columns = columns.join(", ");
    Ok(format!(
        "INSERT INTO {table} ({columns}) VALUES ({})",
        places.join(", ")
    ))
}

async fn merge(change: &mut AnyConnection, before: &[&'static str]) -> Result<(), BackupError> {
    if before.contains(&"accounts") {
        deleted_since::keep_deletions(change).await?;
    }
    if before.contains(&"jobs") {
        // If both have a job, the old database has its newer state.
        let now = format!("{BEFORE}jobs n");
        let same = "n.id = jobs.id AND n.owner = jobs.owner";
        execute(
            change,
            format!("DELETE FROM jobs WHERE EXISTS (SELECT 1 FROM {now} WHERE {same})"),
        )
        .await?;
        let (columns, key) = (JOB_COLUMNS, "j.owner = n.owner AND j.idem_key = n.idem_key");
        let values = columns.replace(", ", ", n.");
        execute(
            change,
            format!(
                "INSERT INTO jobs ({columns}, idem_key) SELECT n.{values}, \
                 CASE WHEN EXISTS (SELECT 1 FROM jobs j WHERE {key}) THEN NULL ELSE n.idem_key END FROM {now} \
                 WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = n.id)"
            ),
        )
        .await?;
    }
    if before.contains(&"tokens") && has_log_of_backup(change, before).await? {
        let known = format!("SELECT digest FROM {BEFORE}tokens");
        execute(
            change,
            format!("DELETE FROM tokens WHERE digest NOT IN ({known})"),
        )
        .await?;
    }
    if before.contains(&"accounts") {
        merge_accounts(change, before.contains(&"secrets")).await?;
    }
    if before.contains(&"audit") {
        merge_audit(change).await?;
    }
    Ok(())
}

/// Whether the old database has the first row of the backup's audit log: it is the same database as in the backup, so tokens
/// that it lacks were revoked. A backup without such a row is assumed to be of the same database.
async fn has_log_of_backup(change: &mut AnyConnection, before: &[&'static str]) -> Result<bool, BackupError> {
    let first = sqlx::query("SELECT digest FROM audit ORDER BY seq LIMIT 1");
    let Some(first) = first.fetch_optional(&mut *change).await? else {
        return Ok(true);
    };
    if !before.contains(&"audit") {
        return Ok(false);
    }
    let text = format!("SELECT COUNT(*) FROM {BEFORE}audit WHERE digest = $1");
    let same = sqlx::query(AssertSqlSafe(text)).bind(first.try_get::<String, _>(0)?);
    Ok(same.fetch_one(change).await?.try_get::<i64, _>(0)? > 0)
}

/// Keeps accounts that were added since the backup. If the backup gives an account's name to another one, the account
/// is marked as deleted, so that its number is not reused.
async fn merge_accounts(change: &mut AnyConnection, has_secrets: bool) -> Result<(), BackupError> {
    let text = format!(
        "SELECT n.id, n.folded, n.document, (SELECT COUNT(*) FROM accounts a WHERE a.folded = n.folded) \
         FROM {BEFORE}accounts n WHERE NOT EXISTS (SELECT 1 FROM accounts a WHERE a.id = n.id)"
    );
    for row in sqlx::query(AssertSqlSafe(text)).fetch_all(&mut *change).await? {
        let (id, mut folded, mut document): (i64, String, String) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let mut owner = None;
        if let Ok(Value::Object(mut record)) = serde_json::from_str(&document) {
            if record.get("deleted") != Some(&Value::Bool(true)) {
                owner = record.get("name").and_then(Value::as_str).map(str::to_owned);
            }
            if row.try_get::<i64, _>(3)? > 0 {
                owner = None;
                record.insert("deleted".to_owned(), true.into());
                record.insert("disabled".to_owned(), true.into());
                document = Value::Object(record).to_string();
                folded = format!("{folded}~{id}");
            }
        }
        sqlx::query("INSERT INTO accounts (id, folded, document) VALUES ($1, $2, $3)")
            .bind(id)
            .bind(folded)
            .bind(document)
            .execute(&mut *change)
            .await?;
        if let Some(owner) = owner.filter(|_| has_secrets) {
            deleted_since::keep_secrets(change, &owner).await?;
        }
    }
    Ok(())
}

/// Keeps the newer rows of the audit log if the old database had all rows of the backup and more.
async fn merge_audit(change: &mut AnyConnection) -> Result<(), BackupError> {
    let differing = format!(
        "SELECT COUNT(*) FROM audit a WHERE NOT EXISTS \
         (SELECT 1 FROM {BEFORE}audit n WHERE n.seq = a.seq AND n.digest = a.digest)"
    );
    let row = sqlx::query(AssertSqlSafe(differing))
        .fetch_one(&mut *change)
        .await?;
    if row.try_get::<i64, _>(0)? > 0 {
        return Ok(());
    }
    for table in ["audit", "audit_head"] {
        execute(change, format!("DELETE FROM {table}")).await?;
        execute(
            change,
            format!("INSERT INTO {table} SELECT * FROM {BEFORE}{table}"),
        )
        .await?;
    }
    Ok(())
}

/// Marks jobs as lost that had not ended at the time of the backup and whose fate is unknown: to run them again could overwrite
/// what they have written since.
async fn settle_jobs(
    change: &mut AnyConnection,
    before: &[&'static str],
    is_known: &(dyn Fn(&Job) -> bool + Sync),
    time: Timestamp,
) -> Result<(), BackupError> {
    let mut text = "SELECT document FROM jobs WHERE is_final = 0".to_owned();
    if before.contains(&"jobs") {
        text += &format!(" AND id NOT IN (SELECT id FROM {BEFORE}jobs)");
    }
    for row in sqlx::query(AssertSqlSafe(text)).fetch_all(&mut *change).await? {
        let document: String = row.try_get(0)?;
        let Ok(mut job) = serde_json::from_str::<Job>(&document) else {
            continue;
        };
        if is_known(&job) {
            continue;
        }
        job.phase = Phase::Final(Outcome::Lost);
        job.finished_at = Some(job.changed_at);
        job.message = format!("the database was restored from a backup of {time:.0}; its end is not known");
        if let Ok(row) = JobRow::new(&job) {
            JobRow::save(&[&row], change).await?;
        }
    }
    Ok(())
}

/// Ranges of ids in which runs without a record may exist.
pub(super) async fn unknown_runs(
    connection: &mut AnyConnection,
) -> Result<Vec<(String, String)>, sqlx::Error> {
    let rows = sqlx::query("SELECT after_id, upto_id FROM unknown_runs")
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect()
}

/// Executes a statement that is built from our own names only.
async fn execute(change: &mut AnyConnection, text: String) -> Result<(), sqlx::Error> {
    sqlx::query(AssertSqlSafe(text)).execute(change).await?;
    Ok(())
}

/// The metadata of an intact backup.
struct Header {
    schema: i64,
    time: Timestamp,
    rows: u64,
}

impl Header {
    /// Reads and checks the whole file before anything is changed.
    fn check(path: &Path) -> Result<Header, BackupError> {
        let mut lines = lines(path)?;
        let first = lines.next().transpose()?;
        let Some((
            text,
            Line::Backup {
                format, schema, time, ..
            },
        )) = first
        else {
            return Err(BackupError::unusable(path, "it is not a backup"));
        };
        if format != FORMAT || !(1..=schema::NEWEST).contains(&schema) {
            return Err(BackupError::unusable(path, "a newer program wrote it"));
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(text.as_bytes());
        let mut count = 0;
        while let Some(line) = lines.next() {
            match line? {
                (_, Line::End { .. }) if lines.next().is_some() => {
                    let problem = "more follows its last line: there may be several backups in the file";
                    return Err(BackupError::unusable(path, problem));
                }
                (_, Line::End { rows, digest }) => {
                    let sound = rows == count && digest == hasher.finalize().to_hex().as_str();
                    return match sound {
                        true => Ok(Header { schema, time, rows }),
                        false => Err(BackupError::unusable(
                            path,
                            "its digest does not match, it is damaged",
                        )),
                    };
                }
                (text, line) => {
                    count += u64::from(matches!(line, Line::Row(_)));
                    hasher.update(text.as_bytes());
                }
            }
        }
        Err(BackupError::unusable(
            path,
            "it is truncated: its last line is missing",
        ))
    }
}

type ReadLine = Result<(String, Line), BackupError>;

/// The parsed lines of a backup, each with its text.
fn lines(path: &Path) -> Result<impl Iterator<Item = ReadLine> + use<>, BackupError> {
    let path = path.to_owned();
    let mut file = BufReader::new(File::open(&path).map_err(|error| BackupError::Read(path.clone(), error))?);
    let mut number = 0;
    Ok(std::iter::from_fn(move || {
        let mut text = String::new();
        number += 1;
        match file.read_line(&mut text) {
            Ok(0) => None,
            Ok(_) => Some(match serde_json::from_str(&text) {
                Ok(line) => Ok((text, line)),
                Err(error) if error.is_eof() => Err(BackupError::unusable(
                    &path,
                    format!("it is truncated in line {number}"),
                )),
                Err(error) => Err(BackupError::unusable(&path, format!("line {number}: {error}"))),
            }),
            Err(error) => Some(Err(BackupError::Read(path.clone(), error))),
        }
    }))
}

/// A backup being written to a temporary file beside its final path.
struct Writer {
    path: PathBuf,
    partial: PathBuf,
    file: BufWriter<File>,
    hasher: blake3::Hasher,
    rows: u64,
}

impl Writer {
    fn create(path: &Path) -> io::Result<Writer> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(true).mode(0o600);
        Ok(Writer {
            file: BufWriter::new(file.open(&partial)?),
            path: path.to_owned(),
            partial,
            hasher: blake3::Hasher::new(),
            rows: 0,
        })
    }

    fn line(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        self.rows += u64::from(matches!(line, Line::Row(_)));
        self.hasher.update(text.as_bytes());
        self.file.write_all(text.as_bytes())
    }

    /// Renames the finished backup to its final path.
    fn finish(mut self) -> io::Result<u64> {
        let rows = self.rows;
        let digest = self.hasher.finalize().to_hex().to_string();
        self.line(&Line::End { rows, digest })?;
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        std::fs::rename(&self.partial, &self.path)?;
        durable::sync_entry(&self.path)?;
        Ok(rows)
    }
}
