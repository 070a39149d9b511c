//! Computes digests of files.

use std::io;

use crate::digest::Digest;
use crate::source::Source;

const BUFFER: usize = 256 << 10;

/// BLAKE3 of a whole file, independent of the position of the handle.
pub fn hash_file(file: &(impl Source + ?Sized)) -> io::Result<Digest> {
    let mut hasher = blake3::Hasher::new();
    hash_range(file, 0, u64::MAX, &mut hasher)?;
    Ok(hasher.finalize().into())
}

/// Feeds a range of a file into a hasher and returns the number of bytes read.
pub(crate) fn hash_range(
    file: &(impl Source + ?Sized),
    offset: u64,
    len: u64,
    hasher: &mut blake3::Hasher,
) -> io::Result<u64> {
    let known = file.len()?.saturating_sub(offset).min(len);
    let mut buffer = vec![0; BUFFER.min(usize::try_from(known).unwrap_or(BUFFER).max(4096))];
    let mut done = 0;
    while done < len {
        let step = buffer
            .len()
            .min(usize::try_from(len - done).unwrap_or(usize::MAX));
        let read = file.read_full(&mut buffer[..step], offset + done)?;
        hasher.update(&buffer[..read]);
        done += read as u64;
        if read < step {
            break;
        }
    }
    Ok(done)
}
