//! Uploads of large files: started, resumed, finished or dropped.

use paddlecloud_pfs::content::{ChunkName, Op};
use paddlecloud_pfs::staging::StagedId;
use paddlecloud_pfs::{Digest, Mtime};
use serde::{Deserialize, Serialize};

use super::WirePath;

/// Starts an upload in chunks, or resumes one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UploadRequest {
    pub path: WirePath,
    pub size: u64,
    #[serde(default)]
    pub executable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<i64>))]
    pub mtime: Option<Mtime>,
    /// Identifies this version of this file on the sender's side: the same key resumes where the last attempt ended.
    pub key: String,
    #[serde(default)]
    pub no_overwrite: bool,
}

/// The state of an upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UploadReply {
    /// Identifies the upload in all further requests.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub id: StagedId,
    /// Missing ranges, `[from, to)`, ascending.
    pub missing: Vec<(u64, u64)>,
    /// Size of the file to be replaced; parts that the new file shares with it need not be sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_size: Option<u64>,
    /// Chunks received in an earlier attempt, with their names; only when an upload is resumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<(u64, String)>))]
    pub names: Vec<(u64, ChunkName)>,
    /// Milliseconds since the upload was started, when it is resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
}

/// Copies ranges of the old file to other positions of the new one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReuseRequest {
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub ops: Vec<Op>,
}

/// Finishes an upload: the file appears.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CommitRequest {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub digest: Digest,
    #[serde(default)]
    pub no_overwrite: bool,
}

/// An unfinished upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnfinishedUpload {
    /// Identifies it when it is dropped.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub id: StagedId,
    /// Where the file will appear.
    pub path: WirePath,
    /// Size of the whole file, which is reserved for it.
    pub size: u64,
    /// Bytes received.
    pub arrived: u64,
    /// When its last bytes were received.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub touched: jiff::Timestamp,
}
