//! Local copies of files of the cluster, for work that reads all of them and needs ordinary paths.
//!
//! Messages use the files' own names.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paddlecloud_recordio::ReadAt;
use tempfile::TempDir;

use super::cluster::{Cluster, Found};
use super::file_there::temporary_folder;
use super::progress::Progress;
use super::sources::is_remote;
use crate::commands::Context;
use crate::error::CliError;

const STEP: u64 = 8 << 20;

/// Local paths, in the order of the arguments. The copies are removed on drop.
pub struct Copies {
    /// What to open for an argument: a file, or a folder with the files below it.
    inputs: Vec<PathBuf>,
    /// The local path, and the original name.
    paths: Vec<(PathBuf, PathBuf)>,
    _folder: Option<TempDir>,
}

impl Copies {
    pub fn fetch(named: &[PathBuf], context: &mut Context<'_>) -> Result<Self, CliError> {
        if !named.iter().any(|path| is_remote(path)) {
            return Ok(Self {
                inputs: named.to_vec(),
                paths: named.iter().map(|path| (path.clone(), path.clone())).collect(),
                _folder: None,
            });
        }
        let folder = temporary_folder()?;
        let cluster = Cluster::open(context)?;
        let (mut inputs, mut paths) = (Vec::new(), Vec::new());
        for (number, path) in named.iter().enumerate() {
            if !is_remote(path) {
                inputs.push(path.clone());
                paths.push((path.clone(), path.clone()));
                continue;
            }
            let place = folder.path().join(number.to_string());
            for file in cluster.find(path)? {
                // A pattern may match files and folders: each folder gets its own local folder.
                let (here, input) = match &file.below {
                    Some(below) => (place.join("below").join(below), place.join("below")),
                    None => {
                        let here = place.join("itself").join(name_of(&file)?);
                        (here.clone(), here)
                    }
                };
                fetch(&cluster, &file, &here, context)?;
                if !inputs.contains(&input) {
                    inputs.push(input);
                }
                paths.push((here, PathBuf::from(file.path.to_string())));
            }
        }
        Ok(Self {
            inputs,
            paths,
            _folder: Some(folder),
        })
    }

    /// What to open.
    pub fn inputs(&self) -> &[PathBuf] {
        &self.inputs
    }

    /// The original name of the local file `here`.
    pub fn name_of(&self, here: &Path) -> PathBuf {
        let found = self.paths.iter().find(|(path, _)| path == here);
        found.map_or_else(|| here.to_owned(), |(_, named)| named.clone())
    }

    /// The error with the names the user knows.
    pub fn in_names(&self, error: CliError) -> CliError {
        match error {
            CliError::Refused { message, hints } => {
                let renamed = self.paths.iter().fold(message, |text, (here, named)| {
                    text.replace(&here.display().to_string(), &named.display().to_string())
                });
                CliError::Refused {
                    message: renamed,
                    hints,
                }
            }
            other => other,
        }
    }
}

fn name_of(file: &Found) -> Result<PathBuf, CliError> {
    let text = file.path.to_string();
    let name = Path::new(&text).file_name().map(PathBuf::from);
    name.ok_or_else(|| CliError::refused(format!("`{text}` does not name a file")))
}

fn fetch(
    cluster: &Arc<Cluster>,
    file: &Found,
    here: &Path,
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    let failed = |error: std::io::Error| CliError::refused(format!("cannot copy `{}`: {error}", file.path));
    let bytes = cluster.file(file.path.clone())?;
    let len = bytes.len().map_err(failed)?;
    fs::create_dir_all(here.parent().unwrap_or(here)).map_err(failed)?;
    let mut out = BufWriter::new(File::create_new(here).map_err(failed)?);
    let mut progress = Progress::new(&mut context.world.err, format!("Downloading {}", file.path));
    let mut at = 0;
    while at < len {
        let mut piece = vec![0; STEP.min(len - at) as usize];
        bytes.read_exact_at(&mut piece, at).map_err(failed)?;
        out.write_all(&piece).map_err(failed)?;
        at += piece.len() as u64;
        progress.tell(at, len);
    }
    out.flush().map_err(failed)?;
    progress.done();
    Ok(())
}
