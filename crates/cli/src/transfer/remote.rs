//! The side of a transfer that lies on the cluster: what an argument names, and what a folder holds.

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

/// What a folder holds, and what of it cannot travel.
#[derive(Debug, Default)]
pub struct Listed {
    pub entries: Vec<Entry>,
    /// Sockets, pipes and devices.
    pub special: Vec<RelPath>,
    /// What could not be looked at.
    pub unread: Vec<UnreadEntry>,
}

impl Listed {
    /// Leaves out what is the server's own in a home: it takes no part, whether it can be read or not. `place` is where the
    /// folder really lies.
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

/// Where something that could not be looked at lies in the folder that was listed.
pub fn path_in(folder: &PfsPath, unread: &UnreadEntry) -> Option<RelPath> {
    unread.path.0.place().path.strip_prefix(&folder.place().path)
}

fn unknown_file(path: RelPath) -> Entry {
    Entry {
        path,
        node: Node::File {
            size: 0,
            executable: false,
            digest: None,
        },
        mtime: Mtime::default(),
    }
}

/// What an argument names: everything that matches when it is a pattern, else itself. Never empty, and only folders where it
/// was typed with a slash at its end.
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
    // Nothing matches: the wildcards may belong to its name.
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

/// Those that are folders, also behind links, as a shell has it.
async fn folders_among(files: &FileClient<'_>, found: Vec<FileView>) -> Result<Vec<FileView>, ClientError> {
    let looked = stream::iter(found).map(async |view| {
        let behind = match view.meta.kind {
            FileKind::Link => files.stat(&view.path.0).await,
            _ => Ok(view.meta.clone()),
        };
        match behind {
            Ok(meta) => Ok(meta.is_folder().then_some(view)),
            // It leads nowhere.
            Err(error) if is_about_one_path(&error) => Ok(None),
            Err(error) => Err(error),
        }
    });
    let looked: Vec<Option<FileView>> = looked.buffered(LINKS_AT_A_TIME).try_collect().await?;
    Ok(looked.into_iter().flatten().collect())
}

/// Refuses a path that was typed with a slash at its end and leads to no folder.
pub async fn must_suit_slash(files: &FileClient<'_>, path: &PfsPath) -> Result<(), ClientError> {
    match path.has_trailing_slash() {
        true => as_typed(path, files.stat(path).await?).map(drop),
        false => Ok(()),
    }
}

/// What a path leads to, unless it was typed with a slash at its end and that is no folder.
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

/// The sources an argument names; links are taken for what they point at. A broken link is reported and does
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

/// A node as a source: a link is one of its own.
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

/// Whether a path lies in another, or is the same, as both are written.
pub fn is_written_within(path: &PfsPath, folder: &PfsPath) -> bool {
    let (path, folder) = (path.place(), folder.place());
    path.space == folder.space && path.path.is_within(&folder.path)
}

/// Whether a folder lies in another, or is the same, once links are followed. What cannot be followed lies where it says.
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

/// Everything below a folder, in order; what cannot be looked at is an error.
pub async fn entries(files: &FileClient<'_>, folder: &PfsPath) -> Result<Listed, ClientError> {
    let mut listed = entries_to_compare(files, folder, Compare::default()).await?;
    match listed.unread.pop() {
        Some(unread) => Err(ClientError::Refused(unread.error)),
        None => Ok(listed),
    }
}

/// Everything below a folder that can be looked at, in order, with what it takes to compare it.
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
