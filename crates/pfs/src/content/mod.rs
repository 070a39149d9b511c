//! What files contain: how it is hashed and what is remembered about it.

mod hash;
mod stat_cache;

pub use self::hash::hash_file;
pub use self::stat_cache::StatCache;
