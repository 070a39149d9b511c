//! Computes digests of files.

use std::io;

use crate::digest::Digest;
use crate::source::Source;

const BUFFER: usize = 256 << 10;
/// Bytes per step for callers that check a deadline between steps.
const STRETCH: u64 = 4 << 20;

/// BLAKE3 of a whole file, independent of the position of the handle.
pub fn hash_file(file: &(impl Source + ?Sized)) -> io::Result<Digest> {
    let mut hasher = blake3::Hasher::new();
    hash_range(file, 0, u64::MAX, &mut hasher)?;
    Ok(hasher.finalize().into())
}

/// Incremental BLAKE3 of a file, for callers that must not block until the whole file is read.
#[derive(Debug, Clone, Default)]
pub struct Hashing {
    hasher: blake3::Hasher,
    done: u64,
}

impl Hashing {
    /// Reads the next few megabytes; returns the digest at the end of the file.
    pub fn read_on(&mut self, file: &(impl Source + ?Sized)) -> io::Result<Option<Digest>> {
        let read = hash_range(file, self.done, STRETCH, &mut self.hasher)?;
        self.done += read;
        Ok((read < STRETCH).then(|| self.hasher.finalize().into()))
    }
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
        let read = match file.read_at(&mut buffer[..step], offset + done) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        done += read as u64;
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_read_a_stretch_at_a_time_has_the_same_digest() {
        let stretch = usize::try_from(STRETCH).unwrap();
        for (len, steps) in [(0, 1), (5, 1), (stretch, 2), (2 * stretch + 7, 3)] {
            let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let mut file = tempfile::tempfile().unwrap();
            io::Write::write_all(&mut file, &bytes).unwrap();
            let mut hashing = Hashing::default();
            let mut digests = std::iter::repeat_with(|| hashing.read_on(&file).unwrap());
            let (at, digest) = digests
                .by_ref()
                .enumerate()
                .find_map(|(at, digest)| Some((at, digest?)))
                .unwrap();
            assert_eq!((at + 1, digest), (steps, Digest::of(&bytes)), "{len}");
        }
    }
}
