//! The file service on the wire, below `/api/v1/pfs/`.
//!
//! Paths travel in their text form: bytes that are not UTF-8 as `\xNN`, a backslash as `\\`. Contents travel
//! as plain bytes, packs (`paddlecloud_pfs::pack`) and parts (see [`PARTS`]), never as JSON.

mod fsck;
mod uploads;

use std::fmt;
use std::str::FromStr;

use paddlecloud_pfs::root::{Kind, Meta, Stamp};
use paddlecloud_pfs::{Digest, Entry, LinkTarget, Mtime, Node, PfsPath, PfsPathError, RelPath, Space};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::fsck::{FsckEnd, FsckFinding, FsckLine, FsckReply, FsckVerdict};
pub use self::uploads::{
    CommitRequest, ReuseRequest, TakeRequest, UnfinishedUpload, UploadReply, UploadRequest,
};

/// Where all routes of the file service begin, below [`crate::PREFIX`].
pub const FILES: &str = "/pfs";

/// Parts of a file: for every chunk its bytes, then the 32 bytes of its name.
pub const PARTS: &str = "application/x-pfs-parts";

/// Carries the version of a file's content, and asks for it (`if-match`).
pub const VERSION_OF_FILE: &str = "etag";

/// Carries the digest of a whole file, where the server knows it.
pub const DIGEST_HEADER: &str = "pfs-digest";

/// Carries the size of the whole file that parts are of.
pub const SIZE_HEADER: &str = "pfs-size";

/// Files up to this size travel packed; bigger ones in chunks.
pub const SMALL_FILE: u64 = 1 << 20;

/// About how many bytes of content one pack holds: what a broken connection costs at most.
pub const PACK_BYTES: u64 = 16 << 20;

/// How many entries one pack holds at most.
pub const PACK_ENTRIES: usize = 8192;

/// Bytes the server copies inside its storage for one request; more would let the reply wait too long.
pub const COPY_AT_ONCE: u64 = 1 << 30;

/// Old files up to this size are searched for content that moved; in bigger ones only chunks that stayed in
/// their place are found.
pub const LARGEST_DELTA: u64 = 16 << 30;

/// A path of the file service in its text form.
#[derive(Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String))]
pub struct WirePath(pub PfsPath);

impl FromStr for WirePath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The target of a link is the type that reads the text form without judging what it reads.
        let bytes: LinkTarget = text
            .parse()
            .map_err(|_| format!("`{}` is not a path", text.escape_default()))?;
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

impl fmt::Debug for WirePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for WirePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WirePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// The path of something below a folder.
pub fn below(folder: &PfsPath, path: &RelPath) -> Result<PfsPath, PfsPathError> {
    at(folder, &folder.place().path.join(path)?)
}

/// The server's own folder in every home: read like anything else, changed by the server alone.
pub const OURS: &str = ".paddlecloud";

/// Whether something below a folder is the server's own: never compared, sent or removed with the user's files.
pub fn is_ours(folder: &PfsPath, path: &RelPath) -> bool {
    let place = folder.place();
    matches!(place.space, Space::Home(_))
        && place.path.is_root()
        && path.parts().next() == Some(OURS.as_bytes())
}

/// The folder a path lies in, and the last name; `None` for a home itself.
pub fn split_last(path: &PfsPath) -> Option<(PfsPath, RelPath)> {
    let (parent, name) = path.place().path.split_last()?;
    Some((at(path, &parent).ok()?, RelPath::from_bytes(name).ok()?))
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

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    File,
    Folder,
    Link,
    /// A socket, pipe or device: shown, never read.
    Special,
}

/// What is known of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileMeta {
    pub kind: FileKind,
    /// Bytes of content; zero for everything but files.
    #[serde(default)]
    pub size: u64,
    /// Last change, in nanoseconds since 1970.
    #[cfg_attr(feature = "openapi", schema(value_type = i64))]
    pub mtime: Mtime,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
    /// Where a link points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub target: Option<LinkTarget>,
    /// BLAKE3 of the content, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub digest: Option<Digest>,
    /// Changes whenever the content does; only `stat` tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl FileMeta {
    /// What the wire says of a node, without digest and version.
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

/// The version of a file's content, from what the file system says.
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
    /// As it travels; `None` for what cannot travel.
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

/// What a listing had to leave out, and why.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnreadEntry {
    pub path: WirePath,
    pub error: crate::error::ErrorBody,
}

/// A line of a streamed listing: entries, then exactly one end or error. A stream without either was cut.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ListLine {
    Entry(ListEntry),
    /// Something that could not be looked at; the rest follows.
    Unread(UnreadEntry),
    /// How many entries there were.
    End(u64),
    Error(crate::error::ErrorBody),
}

/// A node and its whole path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileView {
    pub path: WirePath,
    #[serde(flatten)]
    pub meta: FileMeta,
}

/// Asks what some paths below a folder are.
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

/// Asks for folders.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MkdirRequest {
    pub path: WirePath,
    /// Whether folders on the way are made, and one that is there is fine.
    #[serde(default)]
    pub parents: bool,
}

/// Asks for the removal of files, links and folders.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RemoveRequest {
    pub paths: Vec<WirePath>,
    /// Whether folders go with all they hold.
    #[serde(default)]
    pub recursive: bool,
    #[serde(default)]
    pub dry_run: bool,
    /// Whether only folders are meant that are empty, as rmdir(2) has it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub empty_folders: bool,
}

/// What became of one path.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Removed {
    pub path: WirePath,
    /// What went, or would go.
    pub usage: UsageView,
    /// Why it is still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<crate::error::ErrorBody>,
}

/// Asks for a move or a copy inside the storage.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MoveRequest {
    pub from: WirePath,
    pub to: WirePath,
    /// Whether what is there stays.
    #[serde(default)]
    pub no_overwrite: bool,
    /// Whether a link is copied as a link; else what it leads to is.
    #[serde(default)]
    pub keep_link: bool,
}

/// What a copy brought over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CopyReply {
    pub bytes: u64,
    pub files: u64,
}

/// What a place holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UsageView {
    pub bytes: u64,
    /// Files and links.
    pub files: u64,
    pub folders: u64,
    /// Folders that may not be read: what lies in them is not counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unread: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What a user may store and stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StorageView {
    pub bytes_used: u64,
    pub files_used: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_limit: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_limit: Option<u64>,
    /// What of the bytes used is set aside for unfinished uploads.
    #[serde(default)]
    pub unfinished_bytes: u64,
    /// How many uploads were begun and not ended; each is one of the files used.
    #[serde(default)]
    pub unfinished_uploads: u64,
}

/// Asks for small files below a folder, as a pack.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PackRequest {
    pub path: WirePath,
    /// Relative to `path`, ascending. What cannot be read is left out of the pack.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub files: Vec<RelPath>,
}

/// What became of a pack that was sent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PackReply {
    /// Files and links that took their place.
    pub stored: u64,
    /// Those that were there and were to stay, relative to the folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub kept: Vec<RelPath>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<PackFailure>,
}

/// One entry of a pack that could not take its place.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PackFailure {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub path: RelPath,
    pub error: crate::error::ErrorBody,
}

/// Asks for a link that anybody can read a file by.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShareRequest {
    pub path: WirePath,
    /// Seconds until it expires.
    pub seconds: u64,
}

/// A link that was given out.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShareView {
    /// Takes the link back.
    pub id: String,
    pub path: WirePath,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub expires: jiff::Timestamp,
    /// The path of the link on this server; absent in lists, as the link is a secret.
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
    fn what_leads_out_is_no_path() {
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
