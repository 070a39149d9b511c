//! Large files on their way up: begun, gone on with, ended or given up.

use paddlecloud_pfs::content::{ChunkName, Op};
use paddlecloud_pfs::staging::StagedId;
use paddlecloud_pfs::{Digest, Mtime};
use serde::{Deserialize, Serialize};

use super::WirePath;

/// Begins an upload in chunks, or goes on with one.
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
    /// Names this state of this file on the sender's side: the same key goes on where the last try ended.
    pub key: String,
    /// The content's digest if it is known: a file that has it already need not be sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub digest: Option<Digest>,
    #[serde(default)]
    pub no_overwrite: bool,
}

/// Where an upload stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UploadReply {
    /// Names the upload in all further requests; absent when there is nothing left to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub id: Option<StagedId>,
    /// Ranges that have not arrived, `[from, to)`, ascending.
    pub missing: Vec<(u64, u64)>,
    /// Size of the file that is there now; what it shares with the new one need not be sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_size: Option<u64>,
    /// Chunks that arrived in an earlier try, with their names; told only when an upload is gone on with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<(u64, String)>))]
    pub names: Vec<(u64, ChunkName)>,
    /// Milliseconds since the upload was begun, when it is gone on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
}

/// Takes chunks of the old file that are the same in the new one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TakeRequest {
    /// Chunk numbers and their names in the new file.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<(u64, String)>))]
    pub chunks: Vec<(u64, ChunkName)>,
}

/// Copies ranges of the old file to other places of the new one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReuseRequest {
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub ops: Vec<Op>,
}

/// Ends an upload: the file appears.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CommitRequest {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub digest: Digest,
    #[serde(default)]
    pub no_overwrite: bool,
}

/// An upload that was begun and not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnfinishedUpload {
    /// Names it when it is given up.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub id: StagedId,
    /// Where the file will appear.
    pub path: WirePath,
    /// Bytes of the whole file, which are set aside for it.
    pub size: u64,
    /// Bytes that are here.
    pub arrived: u64,
    /// When something of it last came in.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub touched: jiff::Timestamp,
}
