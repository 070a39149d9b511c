//! The input files of a subcommand: local ones, and those of the cluster, which are read in place.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paddlecloud_dataprep::Origin;
use paddlecloud_recordio::index_path;

use super::cluster::Cluster;
use crate::commands::Context;
use crate::error::CliError;

/// A file to read.
#[derive(Debug, Clone)]
pub struct InputFile {
    pub origin: Origin,
}

impl InputFile {
    /// Its name.
    pub fn named(&self) -> &Path {
        self.origin.name()
    }
}

/// Every file the arguments name, in their order: a folder means the files below it, and on the cluster a pattern means
/// its matches.
pub fn gather(paths: &[PathBuf], context: &mut Context<'_>) -> Result<Vec<InputFile>, CliError> {
    let mut cluster = None;
    let mut sources = Vec::new();
    for path in paths {
        if !is_remote(path) {
            let files = files_here(path)?;
            sources.extend(files.into_iter().map(|file| InputFile { origin: file.into() }));
            continue;
        }
        let cluster: &Arc<Cluster> = match &cluster {
            Some(cluster) => cluster,
            None => cluster.insert(Cluster::open(context)?),
        };
        for file in cluster.find(path)? {
            sources.push(InputFile {
                origin: cluster.origin(&file)?,
            });
        }
    }
    Ok(sources)
}

/// Inside a worker a path of the cluster is an ordinary path.
pub fn is_remote(path: &Path) -> bool {
    path.starts_with("/pfs") && !path.exists()
}

/// Whether an output path is on the cluster: inside a worker one of its parent folders exists locally.
pub fn is_written_there(path: &Path) -> bool {
    let storage = Path::new("/pfs");
    let on_the_way = path.ancestors().take_while(|folder| *folder != storage);
    path.starts_with(storage) && path != storage && !{ on_the_way }.any(Path::exists)
}

fn files_here(path: &Path) -> Result<Vec<PathBuf>, CliError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    walk(path, &mut files)?;
    let indexes: Vec<PathBuf> = files.iter().map(|file| index_path(file)).collect();
    files.retain(|file| !indexes.contains(file));
    match files.is_empty() {
        true => Err(CliError::refused(format!(
            "`{}` contains no files",
            path.display()
        ))),
        false => Ok(files),
    }
}

/// The files below a folder, in order, without hidden ones. Links to folders are not followed.
fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), CliError> {
    let failed =
        |error: std::io::Error| CliError::refused(format!("cannot read `{}`: {error}", folder.display()));
    let mut entries = fs::read_dir(folder)
        .and_then(|entries| {
            entries
                .map(|entry| Ok(entry?.path()))
                .collect::<Result<Vec<_>, _>>()
        })
        .map_err(failed)?;
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default();
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        match (path.is_dir(), path.is_symlink()) {
            (true, true) => {}
            (true, false) => walk(&path, files)?,
            (false, _) => files.push(path),
        }
    }
    Ok(())
}
