//! Operations of the file service: `{"do": "files", "call": {"do": "stat", "path": "/pfs/…"}}`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use paddlecloud_api::files::{WirePath, split_last};
use paddlecloud_connect::{ConnectError, chain};
use paddlecloud_pfs::{Existing, Made, PfsPath};
use paddlecloud_transfer::{
    Download, FileClient, ListOptions, RemoveOptions, Summary, TransferError, TransferOptions, Upload, walk,
};
use serde::Deserialize;

use super::failure::Failure;
use super::operation::{Reply, reply};

#[derive(Clone, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum FileOperation {
    Stat {
        path: WirePath,
        digest: bool,
    },
    List {
        path: WirePath,
        recursive: bool,
        digests: bool,
    },
    Glob {
        pattern: String,
    },
    Mkdir {
        path: WirePath,
        parents: bool,
    },
    Remove {
        paths: Vec<WirePath>,
        recursive: bool,
        dry_run: bool,
    },
    Rename {
        source: WirePath,
        target: WirePath,
        overwrite: bool,
    },
    Copy {
        source: WirePath,
        target: WirePath,
        overwrite: bool,
    },
    Usage {
        path: WirePath,
    },
    Quota,
    Read {
        path: WirePath,
        start: u64,
        /// `None`: to the end.
        end: Option<u64>,
    },
    Upload {
        local: PathBuf,
        remote: WirePath,
        overwrite: bool,
        checksum: bool,
    },
    Download {
        remote: WirePath,
        local: PathBuf,
        overwrite: bool,
        checksum: bool,
    },
    Publish {
        path: WirePath,
        seconds: u64,
    },
    Published,
    Unpublish {
        id: String,
    },
    Fsck,
}

impl FileOperation {
    pub async fn run(self, files: FileClient<'_>) -> Result<Reply, Failure> {
        match self {
            FileOperation::Stat { path, digest: true } => reply(&files.stat_digest(&path.0).await?),
            FileOperation::Stat { path, .. } => reply(&files.stat(&path.0).await?),
            FileOperation::List {
                path,
                recursive,
                digests,
            } => {
                let listing = files.list(&path.0, ListOptions { recursive, digests }).await?;
                reply(&listing.collect().await?)
            }
            FileOperation::Glob { pattern } => reply(&files.glob(&pattern).await?),
            FileOperation::Mkdir { path, parents } => {
                files.mkdir(&path.0, parents).await?;
                reply(&())
            }
            FileOperation::Remove {
                paths,
                recursive,
                dry_run,
            } => {
                let paths: Vec<PfsPath> = paths.into_iter().map(|path| path.0).collect();
                let options = RemoveOptions { recursive, dry_run };
                reply(&files.remove(&paths, options).await?)
            }
            FileOperation::Rename {
                source,
                target,
                overwrite,
            } => reply(&files.rename(&source.0, &target.0, existing(overwrite)).await?),
            FileOperation::Copy {
                source,
                target,
                overwrite,
            } => reply(&files.copy(&source.0, &target.0, existing(overwrite)).await?),
            FileOperation::Usage { path } => reply(&files.du(&path.0).await?),
            FileOperation::Quota => reply(&files.quota().await?),
            FileOperation::Read { path, start, end } => read(files, &path.0, start, end).await,
            FileOperation::Upload {
                local,
                remote,
                overwrite,
                checksum,
            } => {
                let mut options = transfer(overwrite, checksum);
                let (upload, unread) = uploaded(files, local, remote.0, &mut options).await?;
                transfer_reply(files.upload(vec![upload], &options, &()).await, unread)
            }
            FileOperation::Download {
                remote,
                local,
                overwrite,
                checksum,
            } => {
                let options = transfer(overwrite, checksum);
                let (download, unread) = downloaded(files, remote.0, local).await?;
                transfer_reply(files.download(vec![download], &options, &()).await, unread)
            }
            FileOperation::Publish { path, seconds } => {
                reply(&files.publish(&path.0, Duration::from_secs(seconds)).await?)
            }
            FileOperation::Published => reply(&files.published().await?),
            FileOperation::Unpublish { id } => reply(&files.unpublish(&id).await?),
            FileOperation::Fsck => reply(&files.fsck().await?),
        }
    }
}

fn existing(overwrite: bool) -> Existing {
    if overwrite {
        Existing::Replace
    } else {
        Existing::Keep
    }
}

fn transfer(overwrite: bool, checksum: bool) -> TransferOptions {
    TransferOptions {
        checksum,
        no_overwrite: !overwrite,
        ..TransferOptions::default()
    }
}

/// A whole file is verified at its end.
async fn read(files: FileClient<'_>, path: &PfsPath, start: u64, end: Option<u64>) -> Result<Reply, Failure> {
    let mut reader = match (start, end) {
        (0, None) => files.cat(path).await?,
        (start, end) => files.read_range(path, start..end.unwrap_or(u64::MAX)).await?,
    };
    let mut bytes = Vec::new();
    while let Some(piece) = reader.next().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(Reply::Bytes(bytes))
}

/// The paths that were not transferred, and why.
#[derive(serde::Serialize)]
struct Left {
    path: String,
    message: String,
}

/// What to upload so that a local file or folder becomes exactly `remote`. Parent folders are created. Sockets, pipes, devices
/// and leftovers of interrupted downloads are skipped.
async fn uploaded(
    files: FileClient<'_>,
    local: PathBuf,
    remote: PfsPath,
    options: &mut TransferOptions,
) -> Result<(Upload, Vec<Left>), Failure> {
    let mut make = async |folder: &PfsPath| {
        if files.mkdir(folder, true).await? == Made::New {
            options.new_folders.insert(folder.clone());
        }
        Ok::<_, Failure>(())
    };
    let meta = std::fs::metadata(&local).map_err(|error| unusable(&local, &error))?;
    if !meta.is_dir() {
        if let Some((folder, _)) = split_last(&remote) {
            make(&folder).await?;
        }
        return Ok((Upload::File { local, remote }, Vec::new()));
    }
    let folder = local.clone();
    let walked = tokio::task::spawn_blocking(move || walk(&folder)).await;
    let walked = walked.map_err(|error| unusable(&local, &error))?;
    let walked = walked.map_err(|error| unusable(&local, &error))?;
    make(&remote).await?;
    let unread = walked.unread.iter().map(|error| Left {
        path: local.display().to_string(),
        message: chain(error),
    });
    let unread = unread.collect();
    let upload = Upload::Tree {
        local,
        remote,
        entries: walked.entries,
    };
    Ok((upload, unread))
}

/// What to download so that a file or folder of the cluster becomes exactly `local`. Parent folders are created.
async fn downloaded(
    files: FileClient<'_>,
    remote: PfsPath,
    local: PathBuf,
) -> Result<(Download, Vec<Left>), Failure> {
    let meta = files.stat(&remote).await?;
    if meta.is_file() {
        let folder = local.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(folder).map_err(|error| unusable(folder, &error))?;
        return Ok((Download::File { remote, local, meta }, Vec::new()));
    }
    let options = ListOptions {
        recursive: true,
        digests: false,
    };
    let mut listing = files.list(&remote, options).await?;
    let mut entries = Vec::new();
    while let Some(listed) = listing.next_readable().await? {
        entries.extend(listed.entry());
    }
    let unread = listing.take_unread().into_iter().map(|unread| Left {
        path: unread.path.to_string(),
        message: unread.error.msg,
    });
    std::fs::create_dir_all(&local).map_err(|error| unusable(&local, &error))?;
    let download = Download::Tree {
        remote,
        local,
        entries,
    };
    Ok((download, unread.collect()))
}

fn unusable(path: &Path, error: &dyn std::error::Error) -> Failure {
    let message = format!("cannot use `{}`: {}", path.display(), chain(error));
    Failure::from(ConnectError::Refused {
        message,
        hints: Vec::new(),
    })
}

/// The summary, including unreadable paths. If the whole result is one error of the server, that error is returned.
fn transfer_reply(mut summary: Summary, unread: Vec<Left>) -> Result<Reply, Failure> {
    if let [only] = summary.failures.as_slice()
        && unread.is_empty()
        && summary.transferred + summary.unchanged + summary.kept == 0
        && matches!(only.error, TransferError::Server(_))
        && let Some(failure) = summary.failures.pop()
        && let TransferError::Server(error) = failure.error
    {
        return Err(error.into());
    }
    let failed = summary.failures.iter().map(|failure| Left {
        path: failure.path.clone(),
        message: chain(&failure.error),
    });
    let failures: Vec<Left> = failed.chain(unread).collect();
    reply(&serde_json::json!({
        "transferred": summary.transferred,
        "unchanged": summary.unchanged,
        "kept": summary.kept,
        "bytes": summary.bytes,
        "moved": summary.moved,
        "failures": failures,
    }))
}
