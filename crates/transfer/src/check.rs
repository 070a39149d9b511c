//! Compares two trees by the digests of their files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use paddlecloud_api::client::ClientError;
use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::{FileKind, FileMeta, is_ours};
use paddlecloud_pfs::root::Kind;
use paddlecloud_pfs::{KEEPS_EXECUTABLE_BITS, PfsPath, RelPath, Root, RootError};

use super::local::hashed;
use super::mover::blocking;
use super::{FileClient, ListOptions, TransferError};

/// One of the two sides.
#[derive(Debug, Clone)]
pub enum Side {
    Local(PathBuf),
    Remote(PfsPath),
}

/// How two trees differ: by kind, content, executable bit or target, not by time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeDifference {
    pub only_left: Vec<RelPath>,
    pub only_right: Vec<RelPath>,
    pub different: Vec<RelPath>,
    /// Files that are damaged on the server's disk: they are not compared.
    pub damaged: Vec<RelPath>,
    /// Files and links that are the same.
    pub same: u64,
}

impl TreeDifference {
    /// Whether the trees are the same.
    pub fn is_empty(&self) -> bool {
        [&self.only_left, &self.only_right, &self.different, &self.damaged]
            .iter()
            .all(|paths| paths.is_empty())
    }
}

type Nodes = BTreeMap<RelPath, FileMeta>;

/// The content of one side.
#[derive(Debug, Default)]
struct Seen {
    nodes: Nodes,
    damaged: BTreeSet<RelPath>,
    /// The real path of a remote folder.
    place: Option<PfsPath>,
}

impl From<Nodes> for Seen {
    fn from(nodes: Nodes) -> Seen {
        Seen {
            nodes,
            ..Seen::default()
        }
    }
}

impl Seen {
    fn retain(&mut self, is_wanted: impl Fn(&RelPath) -> bool) {
        self.nodes.retain(|path, _| is_wanted(path));
        self.damaged.retain(is_wanted);
    }
}

impl FileClient<'_> {
    /// Compares two folders, or two files. Each side is read where it is. The server's own folder in a home is ignored.
    pub async fn check(&self, left: &Side, right: &Side) -> Result<TreeDifference, TransferError> {
        let files = self.patient();
        let (one, other) = tokio::join!(files.look(left), files.look(right));
        let (mut one, mut other) = (one?, other?);
        for place in [one.place.take(), other.place.take()].iter().flatten() {
            one.retain(|path| !is_ours(place, path));
            other.retain(|path| !is_ours(place, path));
        }
        Ok(compare_sound(one, other))
    }

    async fn look(&self, side: &Side) -> Result<Seen, TransferError> {
        match side {
            Side::Local(path) => {
                let path = path.clone();
                blocking(move || local_nodes(&path)).await.map(Seen::from)
            }
            Side::Remote(path) => self.look_there(path).await,
        }
    }

    async fn look_there(&self, path: &PfsPath) -> Result<Seen, TransferError> {
        let meta = self.stat(path).await?;
        let mut seen = Seen::default();
        if !meta.is_folder() {
            match self.stat_digest(path).await {
                Err(error) if error.refusal() == Some(ErrorName::Damaged) => {
                    seen.damaged.insert(RelPath::root());
                }
                meta => drop(seen.nodes.insert(RelPath::root(), meta?)),
            }
            return Ok(seen);
        }
        let place = self.real_path(path).await?;
        let options = ListOptions {
            recursive: true,
            digests: true,
        };
        let mut listing = self.list(path, options).await?;
        while let Some(entry) = listing.next_readable().await? {
            seen.nodes.insert(entry.path, entry.meta);
        }
        for unread in listing.take_unread() {
            let inside = unread.path.0.place().path.strip_prefix(&path.place().path);
            match inside {
                Some(inside) if is_ours(&place, &inside) => {}
                Some(inside) if unread.error.error == ErrorName::Damaged => drop(seen.damaged.insert(inside)),
                // An unreadable entry may hide further differences.
                _ => return Err(ClientError::Refused(unread.error).into()),
            }
        }
        seen.place = Some(place);
        Ok(seen)
    }
}

fn local_nodes(path: &Path) -> Result<Nodes, TransferError> {
    let failed = |source| TransferError::Io {
        action: "read",
        source,
    };
    let real = std::fs::canonicalize(path).map_err(failed)?;
    let mut nodes = Nodes::new();
    if !real.is_dir() {
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(TransferError::NotAFile);
        };
        let name = RelPath::from_bytes(name.as_encoded_bytes()).map_err(RootError::from)?;
        nodes.insert(RelPath::root(), local_meta(&Root::open(parent)?, &name)?);
        return Ok(nodes);
    }
    let root = Root::open(&real)?;
    for entry in root.walk(&RelPath::root()).only_finished() {
        let entry = entry?;
        let meta = match entry.meta.kind {
            Kind::File => local_meta(&root, &entry.path)?,
            _ => FileMeta::of(&entry.meta),
        };
        nodes.insert(entry.path, meta);
    }
    Ok(nodes)
}

fn local_meta(root: &Root, path: &RelPath) -> Result<FileMeta, TransferError> {
    let (digest, meta) = hashed(root, path)?;
    Ok(FileMeta {
        digest: Some(digest),
        ..FileMeta::of(&meta)
    })
}

/// Compares everything that is undamaged on both sides.
fn compare_sound(mut left: Seen, mut right: Seen) -> TreeDifference {
    let damaged: BTreeSet<RelPath> = left.damaged.union(&right.damaged).cloned().collect();
    left.retain(|path| !damaged.contains(path));
    right.retain(|path| !damaged.contains(path));
    TreeDifference {
        damaged: damaged.into_iter().collect(),
        ..compare(&left.nodes, &right.nodes)
    }
}

fn compare(left: &Nodes, right: &Nodes) -> TreeDifference {
    let mut difference = TreeDifference::default();
    for (path, here) in left {
        match right.get(path) {
            None => difference.only_left.push(path.clone()),
            Some(there) if !alike(here, there) => difference.different.push(path.clone()),
            Some(_) if here.kind == FileKind::Folder => {}
            Some(_) => difference.same += 1,
        }
    }
    let more = right.keys().filter(|path| !left.contains_key(*path));
    difference.only_right = more.cloned().collect();
    difference
}

fn alike(a: &FileMeta, b: &FileMeta) -> bool {
    let content = a.kind != FileKind::File || (a.digest.is_some() && a.digest == b.digest);
    let executable = a.executable == b.executable || !KEEPS_EXECUTABLE_BITS;
    (a.kind, a.size, &a.target) == (b.kind, b.size, &b.target) && executable && content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_differ_by_content_and_not_by_time() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (folder, files) in [
            (&a, [("same", "x"), ("other", "1"), ("here", "")]),
            (&b, [("same", "x"), ("other", "2"), ("there", "")]),
        ] {
            for (name, text) in files {
                std::fs::write(folder.path().join(name), text).unwrap();
            }
        }
        let difference = compare(&local_nodes(a.path()).unwrap(), &local_nodes(b.path()).unwrap());
        let path = |text: &str| vec![text.parse::<RelPath>().unwrap()];
        assert_eq!(
            difference,
            TreeDifference {
                only_left: path("here"),
                only_right: path("there"),
                different: path("other"),
                damaged: Vec::new(),
                same: 1,
            }
        );
    }
}
