//! Creates a file from one that the server already has, so that its content is not sent again.
//!
//! Uses only files in spaces that the caller may read: a digest gives no access to another user's file.

use super::hash::hash_file;
use super::index::FileIndex;
use crate::digest::Digest;
use crate::path::Space;
use crate::relpath::RelPath;
use crate::root::{Existing, FileAttributes, Meta, RootError, copy_source};
use crate::store::{OpenSpace, ReadAt};

/// A file that a caller is about to upload.
#[derive(Debug, Clone, Copy)]
pub struct AnnouncedFile {
    pub digest: Digest,
    pub size: u64,
    pub attributes: FileAttributes,
}

/// How many files to try for one digest: jobs may have changed any of them.
const CANDIDATES: usize = 16;

/// The spaces that a caller may read, opened.
pub type ReadableSpaces = [(Space, OpenSpace)];

/// Copies a file with the announced content to `path` and returns its metadata; `None` if the index has no such file.
///
/// The row of a file that is gone or changed stays in the index, so that a check reports it.
pub fn reuse(
    index: &dyn FileIndex,
    announced: &AnnouncedFile,
    readable: &ReadableSpaces,
    (target, path): (&OpenSpace, &RelPath),
    existing: Existing,
) -> Result<Option<Meta>, RootError> {
    for file in candidates(index, announced.digest, announced.size, readable) {
        if let Some(made) = try_copy(announced, &*file, (target, path), existing)? {
            return Ok(Some(made));
        }
    }
    Ok(None)
}

/// Whether the caller may read a file with this content, judged by its stamp.
pub fn is_stored(index: &dyn FileIndex, digest: Digest, size: u64, readable: &ReadableSpaces) -> bool {
    candidates(index, digest, size, readable).next().is_some()
}

/// Opened readable files that have this content, judged by their stamps.
fn candidates<'a>(
    index: &dyn FileIndex,
    digest: Digest,
    size: u64,
    readable: &'a ReadableSpaces,
) -> impl Iterator<Item = std::sync::Arc<dyn ReadAt>> + 'a {
    let spaces: Vec<Space> = readable.iter().map(|(space, _)| space.clone()).collect();
    // If the index fails, the content is sent instead.
    let known = index.with_digest(digest, &spaces, CANDIDATES).unwrap_or_default();
    known.into_iter().filter_map(move |file| {
        let (_, root) = readable.iter().find(|(space, _)| *space == file.place.space)?;
        let opened = root.open_no_links(&file.place.path).ok()?;
        (opened.meta().stamp == file.stamp && file.stamp.size == size).then_some(opened)
    })
}

fn try_copy(
    announced: &AnnouncedFile,
    file: &dyn ReadAt,
    (target, path): (&OpenSpace, &RelPath),
    existing: Existing,
) -> Result<Option<Meta>, RootError> {
    let staged = target.staging().stage_file(announced.attributes)?;
    let failed = |error| RootError::io("copy to", path, error);
    copy_source(file, 0, staged.file(), 0, announced.size).map_err(failed)?;
    if hash_file(staged.file()).map_err(failed)? != announced.digest {
        // The disk is damaged, or a job is writing to the file. The row stays, so that a check finds the damage.
        return Ok(None);
    }
    target.publish_staged(staged, path, existing).map(Some)
}

#[cfg(test)]
mod tests;
