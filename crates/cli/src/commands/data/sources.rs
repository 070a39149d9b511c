//! The files a subcommand reads. Those of the cluster are brought here first; whatever is said about them
//! calls them by their own names.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use paddlecloud_pfs::PfsPath;
use tempfile::TempDir;

use super::progress::Progress;
use crate::commands::{Context, done, on_runtime};
use crate::error::CliError;
use crate::messages::Messages;
use crate::session::Session;
use crate::transfer::location::Remote;

/// Files to read, in the order they were named. Copies go when this does.
pub struct Sources {
    files: Vec<Source>,
    _copies: Option<TempDir>,
}

/// A file to read.
#[derive(Debug, Clone)]
pub struct Source {
    /// Where its bytes are.
    pub here: PathBuf,
    /// What it was called.
    pub named: PathBuf,
}

impl Sources {
    pub fn gather(paths: &[PathBuf], context: &mut Context<'_>) -> Result<Sources, CliError> {
        let mut files: Vec<Source> = paths
            .iter()
            .map(|path| Source {
                here: path.clone(),
                named: path.clone(),
            })
            .collect();
        if !files.iter().any(Source::is_remote) {
            return Ok(Sources { files, _copies: None });
        }
        let copies = tempfile::Builder::new()
            .prefix("paddlectl-data-")
            .tempdir()
            .map_err(|error| CliError::refused(format!("cannot make a temporary folder: {error}")))?;
        on_runtime(fetch_all(&mut files, copies.path(), context))?;
        Ok(Sources {
            files,
            _copies: Some(copies),
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = &Source> {
        self.files.iter()
    }

    /// The error in the names the user knows.
    pub fn in_names(&self, error: CliError) -> CliError {
        match error {
            CliError::Refused { message, hints } => CliError::Refused {
                message: self.renamed(&message),
                hints,
            },
            other => other,
        }
    }

    /// The name of a file that lies at `here`.
    pub fn name_of(&self, here: &Path) -> PathBuf {
        let found = self.files.iter().find(|source| source.here == here);
        found.map_or_else(|| here.to_owned(), |source| source.named.clone())
    }

    pub fn renamed(&self, text: &str) -> String {
        let fetched = self.files.iter().filter(|source| source.here != source.named);
        fetched.fold(text.to_owned(), |text, source| {
            text.replace(
                &source.here.display().to_string(),
                &source.named.display().to_string(),
            )
        })
    }
}

impl Source {
    /// Inside a worker a path of the cluster is an ordinary one.
    fn is_remote(&self) -> bool {
        is_remote(&self.named)
    }
}

pub fn is_remote(path: &Path) -> bool {
    path.starts_with("/pfs") && !path.exists()
}

async fn fetch_all(files: &mut [Source], folder: &Path, context: &mut Context<'_>) -> Result<u8, CliError> {
    let session = context.session().await?;
    for (number, source) in files.iter_mut().enumerate() {
        if source.is_remote() {
            let place = folder.join(number.to_string());
            std::fs::create_dir(&place).map_err(|error| unwritten(&place, &error))?;
            source.here = fetch(&session, &source.named, &place, &mut context.world.err).await?;
        }
    }
    done()
}

/// Brings a file here, and its index where it has one: with it a cut can be seen.
async fn fetch(
    session: &Session,
    named: &Path,
    folder: &Path,
    err: &mut Messages,
) -> Result<PathBuf, CliError> {
    let remote = Remote::parse(named.as_os_str())?;
    let name = named
        .file_name()
        .ok_or_else(|| CliError::refused(format!("`{}` names no file", named.display())))?;
    let here = folder.join(name);
    fetch_one(session, &remote.path, &here, err).await?;
    let index = Remote::parse(paddlecloud_recordio::index_path(named).as_os_str())?;
    if session.client.files().stat(&index.path).await.is_ok() {
        let beside = paddlecloud_recordio::index_path(&here);
        fetch_one(session, &index.path, &beside, err).await?;
    }
    Ok(here)
}

async fn fetch_one(
    session: &Session,
    path: &PfsPath,
    here: &Path,
    err: &mut Messages,
) -> Result<(), CliError> {
    let mut content = session.client.files().cat(path, None).await?;
    let total = content.left().unwrap_or(0);
    let failed = |error: std::io::Error| unwritten(here, &error);
    let mut out = BufWriter::new(File::create_new(here).map_err(failed)?);
    let mut progress = Progress::new(err, format!("Downloading {path}"));
    while let Some(bytes) = content.next().await? {
        out.write_all(&bytes).map_err(failed)?;
        progress.tell(total - content.left().unwrap_or(total).min(total), total);
    }
    out.flush().map_err(failed)?;
    progress.done();
    Ok(())
}

fn unwritten(path: &Path, error: &std::io::Error) -> CliError {
    CliError::refused(format!("cannot write `{}`: {error}", path.display()))
}
