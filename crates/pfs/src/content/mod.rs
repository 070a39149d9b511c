//! What files contain: how it is named, remembered, compared and put together.

mod assembly;
mod buffers;
mod chunk;
mod delta;
mod hash;
mod hints;
mod journal;
mod known;
mod moved;
mod notes;
mod ranges;
mod rolling;
mod sealed;
mod stat_cache;
mod stored;

pub use self::assembly::{Assembly, AssemblyError, AssemblyPlan, ChunkWriter, Outline};
pub use self::buffers::{Buffer, Buffers};
pub use self::chunk::{CHUNK, ChunkHasher, ChunkName, ChunkTable, Layout, name_chunk};
pub use self::delta::{Op, Signature, SignatureError};
pub use self::hash::{Hashing, hash_file};
pub use self::hints::{Hint, HintStore, Remembered, Told, Wanted};
pub use self::moved::Moved;
pub use self::stat_cache::StatCache;
