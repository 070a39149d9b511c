//! The file service on the wire, below `/api/v1/pfs/`.
//!
//! Paths are sent as text: bytes that are not UTF-8 as `\xNN`, a backslash as `\\`. Contents are sent as plain bytes and
//! packs (`paddlecloud_pfs::pack`), never as JSON.

mod fsck;
mod uploads;

use std::fmt;
use std::str::FromStr;

use paddlecloud_pfs::root::{Kind, Meta, Stamp};
use paddlecloud_pfs::{Digest, Entry, LinkTarget, Mtime, Node, PfsPath, PfsPathError, RelPath, Space};
use serde::{Deserialize, Serialize};

pub use self::fsck::{FsckEnd, FsckFinding, FsckLine, FsckReply, FsckVerdict};
pub use self::uploads::{CommitRequest, ReuseRequest, UnfinishedUpload, UploadReply, UploadRequest};

/// Prefix of all routes of the file service, below [`crate::PREFIX`].
pub const FILES: &str = "/pfs";

/// Contains the digest of a whole file, if the server knows it.
pub const DIGEST_HEADER: &str = "pfs-digest";

/// Files up to this size are sent in packs; larger ones in chunks.
pub const SMALL_FILE: u64 = 1 << 20;

/// Approximate bytes of content in one pack: the most that a lost connection costs.
pub const PACK_BYTES: u64 = 16 << 20;

/// Most entries of one pack.
pub const PACK_ENTRIES: usize = 8192;

/// Bytes the server copies inside its storage for one request; with more the reply would take too long.
pub const COPY_AT_ONCE: u64 = 1 << 30;

/// A path of the file service as text.
#[derive(Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String))]
pub struct WirePath(pub PfsPath);

impl FromStr for WirePath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The target of a link is the type that parses the text form without checking the path.
        let bytes: LinkTarget = text
            .parse()
            .map_err(|_| format!("`{}` is not a path", text.escape_debug()))?;
        PfsPath::from_bytes(bytes.as_bytes())
            .map(WirePath)
            .map_err(|error| error.to_string())
    }
}

impl From<PfsPath> for WirePath {
    fn from(path: PfsPath) -> Self {
        WirePath(path)
    }
}

impl From<&PfsPath> for WirePath {
    fn from(path: &PfsPath) -> Self {
        WirePath(path.clone())
    }
}

impl fmt::Display for WirePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

paddlecloud_pfs::as_text!(WirePath);

/// The path of something below a folder.
pub fn below(folder: &PfsPath, path: &RelPath) -> Result<PfsPath, PfsPathError> {
    at(folder, &folder.place().path.join(path)?)
}

/// The server's own folder in every home: readable like anything else, changed by the server only.
pub const OURS: &str = ".paddlecloud";

/// Whether something below a folder belongs to the server: never compared, sent or removed with the user's files.
pub fn is_ours(folder: &PfsPath, path: &RelPath) -> bool {
    let place = folder.place();
    matches!(place.space, Space::Home(_))
        && place.path.is_root()
        && path.parts().next() == Some(OURS.as_bytes())
}

/// The parent folder of a path and the last name; `None` for a home itself.
pub fn split_last(path: &PfsPath) -> Option<(PfsPath, RelPath)> {
    let (parent, name) = path.place().path.split_last()?;
    Some((at(path, &parent).ok()?, RelPath::from_bytes(name).ok()?))
}

/// The home or public folder of a path.
pub fn space_of(path: &PfsPath) -> PfsPath {
    at(path, &RelPath::root()).unwrap_or_else(|_| path.clone())
}

/// Another path in the space of `near`.
fn at(near: &PfsPath, path: &RelPath) -> Result<PfsPath, PfsPathError> {
    let space = near.place().space.folder();
    let parts: Vec<&[u8]> = [b"/pfs".as_slice()]
        .into_iter()
        .chain(near.datacenter().map(str::as_bytes))
        .chain([space.as_bytes(), path.as_bytes()])
        .collect();
    PfsPath::from_bytes(&parts.join(&b'/'))
}

/// The type of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    File,
    Folder,
    Link,
    /// A socket, pipe or device: listed, never read.
    Special,
}

/// Metadata of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileMeta {
    pub kind: FileKind,
    /// Bytes of content; zero for everything except files.
    #[serde(default)]
    pub size: u64,
    /// Last change, in nanoseconds since 1970.
    #[cfg_attr(feature = "openapi", schema(value_type = i64))]
    pub mtime: Mtime,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
    /// The target of a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub target: Option<LinkTarget>,
    /// BLAKE3 of the content, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub digest: Option<Digest>,
    /// Changes whenever the content does; only `stat` returns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl FileMeta {
    /// A node on the wire, without digest and version.
    pub fn of(meta: &Meta) -> FileMeta {
        let (kind, target) = match &meta.kind {
            Kind::File => (FileKind::File, None),
            Kind::Dir => (FileKind::Folder, None),
            Kind::Symlink(target) => (FileKind::Link, Some(target.clone())),
            Kind::Special => (FileKind::Special, None),
        };
        FileMeta {
            kind,
            size: meta.size,
            mtime: meta.mtime,
            executable: meta.executable,
            target,
            digest: None,
            version: None,
        }
    }

    pub fn is_folder(&self) -> bool {
        self.kind == FileKind::Folder
    }

    pub fn is_file(&self) -> bool {
        self.kind == FileKind::File
    }
}

/// The version of a file's content, from the file system's metadata.
pub fn version_of(stamp: &Stamp) -> String {
    let mut hasher = blake3::Hasher::new();
    for number in [stamp.device, stamp.inode, stamp.size] {
        hasher.update(&number.to_le_bytes());
    }
    for time in [stamp.mtime, stamp.ctime] {
        hasher.update(&time.as_nanos().to_le_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

/// One line of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListEntry {
    /// Relative to the folder that was listed.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub path: RelPath,
    #[serde(flatten)]
    pub meta: FileMeta,
}

impl ListEntry {
    /// As it is sent; `None` if it cannot be.
    pub fn entry(&self) -> Option<Entry> {
        let node = match self.meta.kind {
            FileKind::Folder => Node::Dir,
            FileKind::File => Node::File {
                size: self.meta.size,
                executable: self.meta.executable,
                digest: self.meta.digest,
            },
            FileKind::Link => Node::Symlink {
                target: self.meta.target.clone()?,
            },
            FileKind::Special => return None,
        };
        Some(Entry {
            path: self.path.clone(),
            node,
            mtime: self.meta.mtime,
        })
    }
}

/// What a listing had to omit, and why.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnreadEntry {
    pub path: WirePath,
    pub error: crate::error::ErrorBody,
}

/// A line of a streamed listing: entries, then exactly one end or error. A stream without either was truncated.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ListLine {
    Entry(ListEntry),
    /// An unreadable entry; the rest follows.
    Unread(UnreadEntry),
    /// How many entries there were.
    End(u64),
    Error(crate::error::ErrorBody),
}

/// A node and its full path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileView {
    pub path: WirePath,
    #[serde(flatten)]
    pub meta: FileMeta,
}

/// Asks for the metadata of some paths below a folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StatsRequest {
    pub path: WirePath,
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub files: Vec<RelPath>,
    /// With digests of files.
    #[serde(default)]
    pub digest: bool,
}

/// Asks to create folders.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MkdirRequest {
    pub path: WirePath,
    /// Whether missing parent folders are created, and an existing folder is accepted.
    #[serde(default)]
    pub parents: bool,
}

/// Reply to `POST /api/v1/pfs/mkdir`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MkdirReply {
    pub code: u16,
    pub msg: String,
    /// Whether this request created the folder, so that nothing was in it. Omitted: it may have existed.
    #[serde(default)]
    pub created: bool,
}

/// Asks to remove files, links and folders.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RemoveRequest {
    pub paths: Vec<WirePath>,
    /// Whether folders are removed with their contents.
    #[serde(default)]
    pub recursive: bool,
    #[serde(default)]
    pub dry_run: bool,
    /// Whether only empty folders are removed, as by rmdir(2).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub empty_folders: bool,
}

/// The result for one path.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Removed {
    pub path: WirePath,
    /// What was removed, or would be.
    pub usage: UsageView,
    /// Why it was not removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<crate::error::ErrorBody>,
}

/// Asks for a move or a copy inside the storage.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MoveRequest {
    pub from: WirePath,
    pub to: WirePath,
    /// Whether an existing destination is kept.
    #[serde(default)]
    pub no_overwrite: bool,
    /// Whether a link is copied as a link; otherwise its target is copied.
    #[serde(default)]
    pub keep_link: bool,
}

/// The result of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CopyReply {
    pub bytes: u64,
    pub files: u64,
}

/// The contents of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UsageView {
    pub bytes: u64,
    /// Files and links.
    pub files: u64,
    pub folders: u64,
    /// Unreadable folders: their contents are not counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unread: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A user's storage limit and use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StorageView {
    pub bytes_used: u64,
    pub files_used: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_limit: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_limit: Option<u64>,
    /// The part of the used bytes that is reserved for unfinished uploads.
    #[serde(default)]
    pub unfinished_bytes: u64,
    /// Number of unfinished uploads; each counts as a used file.
    #[serde(default)]
    pub unfinished_uploads: u64,
}

/// Asks for small files below a folder, as a pack.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PackRequest {
    pub path: WirePath,
    /// Relative to `path`, ascending. Unreadable files are omitted from the pack.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub files: Vec<RelPath>,
}

/// The result of a pack upload.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PackReply {
    /// Files and links that were stored.
    pub stored: u64,
    /// Existing ones that were kept, relative to the folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub kept: Vec<RelPath>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<PackFailure>,
}

/// One entry of a pack that could not be stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PackFailure {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub path: RelPath,
    pub error: crate::error::ErrorBody,
}

/// Asks for a link that anyone can read a file by.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShareRequest {
    pub path: WirePath,
    /// Seconds until it expires.
    pub seconds: u64,
}

/// A link to a published file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShareView {
    /// Revokes the link.
    pub id: String,
    pub path: WirePath,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub expires: jiff::Timestamp,
    /// The path of the link on this server; omitted in lists, because the link is a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_utf8_survives_the_wire() {
        let path = PfsPath::from_bytes(b"/pfs/dc/home/me/caf\xe9/a\\b").unwrap();
        let text = serde_json::to_string(&WirePath(path.clone())).unwrap();
        assert_eq!(text, r#""/pfs/dc/home/me/caf\\xe9/a\\\\b""#);
        assert_eq!(serde_json::from_str::<WirePath>(&text).unwrap().0, path);
    }

    #[test]
    fn paths_are_joined_and_split_inside_their_space() {
        for text in ["/pfs/dc/home/me", "/pfs/public", "/pfs/dc/public"] {
            let folder: PfsPath = text.parse().unwrap();
            let deep = below(&folder, &RelPath::from_bytes(b"a/b\xff").unwrap()).unwrap();
            assert_eq!(deep.to_string(), format!("{text}/a/b\\xff"));
            let (parent, name) = split_last(&deep).unwrap();
            assert_eq!(
                (parent.to_string(), name.as_bytes()),
                (format!("{text}/a"), b"b\xff".as_slice())
            );
            assert!(split_last(&folder).is_none());
        }
    }

    #[test]
    fn only_the_folder_directly_in_a_home_is_the_servers_own() {
        let ours = |folder: &str, path: &str| is_ours(&folder.parse().unwrap(), &path.parse().unwrap());
        assert!(ours("/pfs/dc/home/me", ".paddlecloud/runs/j_1"));
        assert!(ours("/pfs/dc/user/me/", ".paddlecloud"));
        assert!(!ours("/pfs/dc/home/me", ".paddlecloud.txt"));
        assert!(!ours("/pfs/dc/home/me", "a/.paddlecloud"));
        assert!(!ours("/pfs/dc/home/me/a", ".paddlecloud"));
        assert!(!ours("/pfs/dc/public", ".paddlecloud"));
    }

    #[test]
    fn paths_leading_outside_are_refused() {
        for text in [
            "/pfs/dc/home/me/../you",
            "relative",
            "/etc/passwd",
            "/pfs/dc/home/me/a\\x00",
            "\\q",
        ] {
            assert!(text.parse::<WirePath>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_line_of_a_listing_is_one_flat_object() {
        let entry = ListEntry {
            path: "a/b".parse().unwrap(),
            meta: FileMeta {
                kind: FileKind::File,
                size: 3,
                mtime: Mtime::from_nanos(7),
                executable: true,
                target: None,
                digest: None,
                version: None,
            },
        };
        let line = serde_json::to_string(&ListLine::Entry(entry.clone())).unwrap();
        assert_eq!(
            line,
            r#"{"entry":{"path":"a/b","kind":"file","size":3,"mtime":7,"executable":true}}"#
        );
        let Ok(ListLine::Entry(back)) = serde_json::from_str(&line) else {
            panic!("{line}");
        };
        assert_eq!(back, entry);
    }
}
