//! A check of all known files on the wire: findings, one per line.

use serde::{Deserialize, Serialize};

/// The state of a file that the server knew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FsckVerdict {
    /// The same content with other times.
    Touched,
    /// Its content was changed outside the service.
    ChangedOutside,
    /// It was removed outside the service.
    RemovedOutside,
    /// It was not written, but its bytes differ.
    Damaged,
    /// It exists but cannot be read.
    Unreadable,
    /// It is written to all the time.
    Changing,
}

/// One finding of a check of all known files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FsckFinding {
    /// Space and path, such as `home/me/data/a.bin`.
    pub path: String,
    pub verdict: FsckVerdict,
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FsckReply {
    /// Files that were read.
    pub checked: u64,
    pub findings: Vec<FsckFinding>,
}

/// One line of a check in progress. Spaces before it only show that the check continues.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FsckLine {
    Found(FsckFinding),
    End(FsckEnd),
}

/// The end of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FsckEnd {
    /// Files that were read.
    pub checked: u64,
}
