//! Small files that are whole or ignored: a magic number, a body, a digest; written aside and renamed.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use crate::digest::Digest;

/// The body of a sealed file; `None` when it is missing, damaged or something else.
pub(super) fn read(path: &Path, magic: &[u8; 8]) -> Option<Vec<u8>> {
    let mut bytes = fs::read(path).ok()?;
    let (sealed, seal) = bytes.split_last_chunk::<{ Digest::LEN }>()?;
    if Digest::of(sealed).as_bytes() != seal || !sealed.starts_with(magic) {
        return None;
    }
    bytes.truncate(sealed.len());
    bytes.drain(..magic.len());
    Some(bytes)
}

/// Writes a sealed file in one step; a reader meanwhile sees the old one.
pub(super) fn write(path: &Path, magic: &[u8; 8], body: &[u8]) -> io::Result<()> {
    let mut bytes = [magic.as_slice(), body].concat();
    let seal = Digest::of(&bytes);
    bytes.extend_from_slice(seal.as_bytes());
    let temporary = path.with_extension(format!("{}.tmp", crate::root::fresh_name()));
    let written = fs::File::create(&temporary)
        .and_then(|mut file| file.write_all(&bytes))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}
