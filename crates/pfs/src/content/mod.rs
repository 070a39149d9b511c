//! The content of files: names, index, comparison and assembly.

mod assembly;
mod buffers;
mod chunk;
mod delta;
mod hash;
pub mod index;
mod journal;
mod moved;
mod ranges;
mod rolling;
mod stat_cache;

pub use self::assembly::{Assembly, AssemblyError, AssemblyPlan, ChunkWriter, Outline};
pub use self::buffers::{Buffer, Buffers};
pub use self::chunk::{CHUNK, ChunkHasher, ChunkName, ChunkTable, Layout, name_chunk};
pub use self::delta::{Op, Signature, SignatureError};
pub use self::hash::hash_file;
pub use self::index::{FileIndex, IndexedFile};
pub use self::moved::Moved;
pub use self::stat_cache::StatCache;
