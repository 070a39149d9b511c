//! The manifest of a package, and the package id derived from it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::entry::{Entry, Node};
use crate::links::{LinkOutside, Links};
use crate::order::{OrderError, TreeOrder};
use crate::relpath::RelPath;

/// Every file, folder and link of a package, in order; files with their digests.
///
/// Always valid: deserializing checks it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Raw")]
pub struct Manifest {
    version: u32,
    entries: Vec<Entry>,
}

/// The id of a package: the digest of its contents.
///
/// Times are not included, so two checkouts of one commit are the same package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PackageId(Digest);

/// Why a list of entries is not a manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("manifest version {0} is not supported")]
    Version(u32),
    #[error("the file `{0}` has no digest")]
    NoDigest(RelPath),
    #[error(transparent)]
    Order(#[from] OrderError),
    #[error(transparent)]
    LinkOutside(#[from] LinkOutside),
}

impl Manifest {
    const VERSION: u32 = 1;

    /// Checks a list of entries, which must be in order.
    pub fn new(entries: Vec<Entry>) -> Result<Self, ManifestError> {
        let mut order = TreeOrder::default();
        let mut links = Links::default();
        for entry in &entries {
            order.accept(entry)?;
            match &entry.node {
                Node::File { digest: None, .. } => return Err(ManifestError::NoDigest(entry.path.clone())),
                Node::Symlink { target } => links.insert(entry.path.clone(), target.clone()),
                Node::File { .. } | Node::Dir => {}
            }
        }
        links.check()?;
        Ok(Self {
            version: Self::VERSION,
            entries,
        })
    }

    /// The entries; every folder precedes its contents.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry at a path.
    pub fn get(&self, path: &RelPath) -> Option<&Entry> {
        Entry::find(&self.entries, path)
    }

    /// The package's id.
    pub fn id(&self) -> PackageId {
        let mut hasher = blake3::Hasher::new_derive_key("paddlecloud package id v1");
        for entry in &self.entries {
            hash_entry(&mut hasher, entry);
        }
        PackageId(hasher.finalize().into())
    }

    /// Canonical JSON: the same manifest always gives the same bytes.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers always become JSON")
    }
}

/// Each length precedes its bytes, so that different manifests never hash the same input.
fn hash_entry(hasher: &mut blake3::Hasher, entry: &Entry) {
    let mut sized = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    sized(entry.path.as_bytes());
    match &entry.node {
        Node::Dir => sized(b"dir"),
        Node::Symlink { target } => {
            sized(b"symlink");
            sized(target.as_bytes());
        }
        Node::File {
            size,
            executable,
            digest,
        } => {
            sized(if *executable { b"program" } else { b"file" });
            sized(&size.to_le_bytes());
            sized(digest.as_ref().map_or(&[], |digest| digest.as_bytes().as_slice()));
        }
    }
}

#[derive(Deserialize)]
struct Raw {
    version: u32,
    entries: Vec<Entry>,
}

impl TryFrom<Raw> for Manifest {
    type Error = ManifestError;

    fn try_from(raw: Raw) -> Result<Self, Self::Error> {
        if raw.version != Self::VERSION {
            return Err(ManifestError::Version(raw.version));
        }
        Self::new(raw.entries)
    }
}

impl fmt::Display for PackageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for PackageId {
    type Err = crate::digest::DigestSyntaxError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{LinkTarget, Mtime};

    fn file(path: &str, content: &[u8], mtime: i64) -> Entry {
        let digest = Some(Digest::of(content));
        Entry {
            path: path.parse().unwrap(),
            node: Node::File {
                size: content.len() as u64,
                executable: false,
                digest,
            },
            mtime: Mtime::from_nanos(mtime),
        }
    }

    #[test]
    fn the_name_depends_on_content_and_not_on_time() {
        let id = |entries| Manifest::new(entries).unwrap().id();
        assert_eq!(id(vec![file("a", b"1", 1)]), id(vec![file("a", b"1", 2)]));
        assert_ne!(id(vec![file("a", b"1", 1)]), id(vec![file("a", b"2", 1)]));
        assert_ne!(id(vec![file("a", b"1", 1)]), id(vec![file("b", b"1", 1)]));
    }

    #[test]
    fn json_is_canonical_and_comes_back_whole() {
        let manifest = Manifest::new(vec![file("a", b"1", 1), file("b", b"2", 2)]).unwrap();
        let back: Manifest = serde_json::from_slice(&manifest.to_json()).unwrap();
        assert_eq!(back, manifest);
        assert_eq!(back.to_json(), manifest.to_json());
    }

    #[test]
    fn hostile_json_is_refused() {
        let link = |path: &str, target: &str| Entry {
            path: path.parse().unwrap(),
            node: Node::Symlink {
                target: target.parse::<LinkTarget>().unwrap(),
            },
            mtime: Mtime::default(),
        };
        let refused = |entries: Vec<Entry>| {
            let text = serde_json::json!({"version": 1, "entries": entries}).to_string();
            serde_json::from_str::<Manifest>(&text).unwrap_err().to_string()
        };
        assert!(refused(vec![file("a", b"1", 1), file("a", b"1", 1)]).contains("is listed twice"));
        assert!(refused(vec![link("a", "/etc")]).contains("points outside"));
        assert!(refused(vec![link("a", "b"), file("a/x", b"", 0)]).contains("not a listed folder"));
        let climbing = r#"{"version":1,"entries":[{"path":"../a","kind":"dir","mtime":0}]}"#;
        assert!(
            serde_json::from_str::<Manifest>(climbing)
                .unwrap_err()
                .to_string()
                .contains("`..`")
        );
        let newer = r#"{"version":2,"entries":[]}"#;
        assert!(
            serde_json::from_str::<Manifest>(newer)
                .unwrap_err()
                .to_string()
                .contains("version 2")
        );
    }
}
