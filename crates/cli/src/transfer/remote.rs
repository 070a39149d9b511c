//! The cluster's side of a transfer: the sources that an argument names, and the contents of folders.

use futures_util::{StreamExt, TryStreamExt, stream};
use paddlecloud_api::client::ClientError;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::files::{FileKind, FileMeta, FileView, UnreadEntry, WirePath, is_ours};
use paddlecloud_pfs::sync::Compare;
use paddlecloud_pfs::{Entry, Mtime, Node, PfsPath, RelPath};
use paddlecloud_transfer::{FileClient, ListOptions};

use super::location::{Remote, name_of};
use super::report::TransferTotals;
use super::rules::{Kind, Target, TransferSource};

/// How many links that match a pattern are followed at a time.
pub const LINKS_AT_A_TIME: usize = 16;

/// A source on the cluster.
#[derive(Debug)]
pub struct RemoteSource {
    pub path: PfsPath,
    pub meta: FileMeta,
    pub source: TransferSource,
}

/// The contents of a folder, and which of them cannot be copied.
#[derive(Debug, Default)]
pub struct Listed {
    pub entries: Vec<Entry>,
    /// Sockets, pipes and devices.
    pub special: Vec<RelPath>,
    /// Entries that could not be read.
    pub unread: Vec<UnreadEntry>,
}

impl Listed {
    /// Omits the server's own folders in a home, readable or not. `place` is the folder's real path.
    pub fn leave_ours(&mut self, folder: &PfsPath, place: &PfsPath) {
        self.entries.retain(|entry| !is_ours(place, &entry.path));
        self.special.retain(|path| !is_ours(place, path));
        self.unread
            .retain(|unread| !path_in(folder, unread).is_some_and(|path| is_ours(place, &path)));
    }

    /// Damaged files count as different from every other file.
    pub fn take_damaged(&mut self, folder: &PfsPath) {
        let is_damaged = |unread: &UnreadEntry| unread.error.error == ErrorName::Damaged;
        let (damaged, unread) = self.unread.drain(..).partition(is_damaged);
        self.unread = unread;
        let damaged: Vec<UnreadEntry> = damaged;
        let paths = damaged.iter().filter_map(|damaged| path_in(folder, damaged));
        self.entries.extend(paths.map(unknown_file));
        self.entries.sort_by(|a, b| a.path.cmp(&b.path));
    }
}

/// The path of an unreadable entry, relative to the listed folder.
pub fn path_in(folder: &PfsPath, unread: &UnreadEntry) -> Option<RelPath> {
    unread.path.0.place().path.strip_prefix(&folder.place().path)
}

fn unknown_file(path: RelPath) -> Entry {
    Entry {
        path,
        node: Node::file(0, false),
        mtime: Mtime::default(),
    }
}

/// What an argument names: everything that matches if it is a pattern, otherwise that path. Never empty; only folders if it ends
/// with a slash.
pub async fn find(files: &FileClient<'_>, remote: &Remote) -> Result<Vec<FileView>, ClientError> {
    if let Some(pattern) = remote.pattern() {
        let mut found = files.glob(pattern).await?;
        if remote.path.has_trailing_slash() {
            found = folders_among(files, found).await?;
        }
        if !found.is_empty() {
            return Ok(found);
        }
    }
    // Nothing matches: the wildcards may be part of the name.
    let meta = match files.stat_link(&remote.path).await {
        Err(error) if remote.is_pattern() && error.refusal() == Some(ErrorName::NotFound) => {
            return Err(ClientError::Refused(ErrorBody::new(
                ErrorName::NotFound,
                "nothing matches it",
            )));
        }
        other => other?,
    };
    if !meta.is_folder() {
        must_suit_slash(files, &remote.path).await?;
    }
    Ok(vec![FileView {
        path: WirePath(remote.path.clone()),
        meta,
    }])
}

/// Keeps folders and links to folders, as a shell does.
async fn folders_among(files: &FileClient<'_>, found: Vec<FileView>) -> Result<Vec<FileView>, ClientError> {
    let looked = stream::iter(found).map(async |view| {
        let behind = match view.meta.kind {
            FileKind::Link => files.stat(&view.path.0).await,
            _ => Ok(view.meta.clone()),
        };
        match behind {
            Ok(meta) => Ok(meta.is_folder().then_some(view)),
            // A broken link.
            Err(error) if is_about_one_path(&error) => Ok(None),
            Err(error) => Err(error),
        }
    });
    let looked: Vec<Option<FileView>> = looked.buffered(LINKS_AT_A_TIME).try_collect().await?;
    Ok(looked.into_iter().flatten().collect())
}

/// Refuses a path that ends with a slash and is not a folder.
pub async fn must_suit_slash(files: &FileClient<'_>, path: &PfsPath) -> Result<(), ClientError> {
    match path.has_trailing_slash() {
        true => as_typed(path, files.stat(path).await?).map(drop),
        false => Ok(()),
    }
}

/// The target of a path; refused if the path ends with a slash and the target is not a folder.
pub fn as_typed(path: &PfsPath, behind: FileMeta) -> Result<FileMeta, ClientError> {
    match path.has_trailing_slash() && !behind.is_folder() {
        true => Err(ClientError::Refused(ErrorBody::new(
            ErrorName::BadRequest,
            format!("`{path}` is not a folder"),
        ))),
        false => Ok(behind),
    }
}

/// Everything the arguments name; missing paths are reported and do not stop the rest.
pub async fn find_all(
    files: &FileClient<'_>,
    arguments: &[Remote],
    tally: &mut TransferTotals,
) -> Result<Vec<FileView>, ClientError> {
    let mut found = Vec::new();
    for argument in arguments {
        let views = tally.pass(&argument.path, find(files, argument).await)?;
        found.extend(views.unwrap_or_default());
    }
    Ok(found)
}

/// The sources an argument names; links are replaced by their targets. A broken link is reported and does
/// not stop the rest.
pub async fn sources(
    files: &FileClient<'_>,
    remote: &Remote,
    tally: &mut TransferTotals,
) -> Result<Vec<RemoteSource>, ClientError> {
    let mut sources = Vec::new();
    for view in find_all(files, std::slice::from_ref(remote), tally).await? {
        let meta = match view.meta.target {
            Some(_) => files.stat(&view.path.0).await,
            None => Ok(view.meta),
        };
        let Some(meta) = tally.pass(&view.path.0, meta)? else {
            continue;
        };
        let mut source = node(view.path.0, meta);
        source.source.slash = remote.path.has_trailing_slash();
        if remote.is_contents {
            source.source.name = None;
        }
        sources.push(source);
    }
    Ok(sources)
}

/// A node as a source: a link is a source itself.
pub fn node(path: PfsPath, meta: FileMeta) -> RemoteSource {
    RemoteSource {
        source: TransferSource {
            shown: path.to_string(),
            name: name_of(&path).map(<[u8]>::to_vec),
            kind: if meta.is_folder() {
                Kind::Folder
            } else {
                Kind::File
            },
            slash: false,
        },
        path,
        meta,
    }
}

/// What is at a destination.
pub async fn target(files: &FileClient<'_>, path: &PfsPath) -> Result<Target, ClientError> {
    match files.stat(path).await {
        Ok(meta) if meta.is_folder() => Ok(Target::Folder),
        Ok(_) => Ok(Target::File),
        // A path below a file is missing, too; creating it reports the reason.
        Err(error) if matches!(error.refusal(), Some(ErrorName::NotFound | ErrorName::BadRequest)) => {
            Ok(Target::Missing)
        }
        Err(error) => Err(error),
    }
}

/// Whether a path is inside another one or the same, comparing only the text.
pub fn is_written_within(path: &PfsPath, folder: &PfsPath) -> bool {
    let (path, folder) = (path.place(), folder.place());
    path.space == folder.space && path.path.is_within(&folder.path)
}

/// Whether a folder is inside another one or the same, with links resolved. A link that cannot be resolved counts as its own
/// path.
pub async fn lies_within(
    files: &FileClient<'_>,
    path: &PfsPath,
    folder: &PfsPath,
) -> Result<bool, ClientError> {
    if path.place().space != folder.place().space {
        return Ok(false);
    }
    let (path, folder) = (files.real_path(path).await?, files.real_path(folder).await?);
    Ok(is_written_within(&path, &folder))
}

/// Everything below a folder, sorted; an unreadable entry is an error.
pub async fn entries(files: &FileClient<'_>, folder: &PfsPath) -> Result<Listed, ClientError> {
    let mut listed = entries_to_compare(files, folder, Compare::default()).await?;
    match listed.unread.pop() {
        Some(unread) => Err(ClientError::Refused(unread.error)),
        None => Ok(listed),
    }
}

/// Every readable entry below a folder, sorted, with the metadata needed to compare it.
pub async fn entries_to_compare(
    files: &FileClient<'_>,
    folder: &PfsPath,
    compare: Compare,
) -> Result<Listed, ClientError> {
    let options = ListOptions {
        recursive: true,
        digests: compare == Compare::Digest,
    };
    let mut listing = files.list(folder, options).await?;
    let mut listed = Listed::default();
    while let Some(line) = listing.next_readable().await? {
        match line.entry() {
            Some(entry) => listed.entries.push(entry),
            None => listed.special.push(line.path),
        }
    }
    listed.unread = listing.take_unread();
    Ok(listed)
}

/// Whether this failure is about one path only; after others nothing more can succeed.
pub fn is_about_one_path(error: &ClientError) -> bool {
    error
        .refusal()
        .is_some_and(|name| name != ErrorName::Unauthorized && !name.is_temporary())
}
