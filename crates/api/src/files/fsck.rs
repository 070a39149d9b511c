//! A check of all known files on the wire: what was found, line by line.

use serde::{Deserialize, Serialize};

/// What became of a file that the server knew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FsckVerdict {
    /// The same content with other times.
    Touched,
    /// Somebody gave it other content past the service.
    ChangedOutside,
    /// Somebody removed it past the service.
    RemovedOutside,
    /// Nobody changed it, and yet its bytes are others.
    Damaged,
    /// It is there and cannot be read.
    Unreadable,
    /// Somebody writes to it all the time.
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

/// One line of a check as it goes on. Spaces before it only say that it does.
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
    /// Names the check: whoever has told people what it found says so, and it is not found again.
    pub id: String,
}
