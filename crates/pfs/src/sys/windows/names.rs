//! Converts names of the cluster to Windows paths and back.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::Errno;
use crate::sys::windows_names::{is_allowed, link_from_windows, link_to_windows};

/// Names joined by `/`, as a local path.
pub(crate) fn local_path(bytes: &[u8]) -> Result<Cow<'_, Path>, Errno> {
    let text = std::str::from_utf8(bytes).map_err(|_| Errno::ILSEQ)?;
    if text.is_empty() {
        return Ok(Cow::Borrowed(Path::new("")));
    }
    if !text.split('/').all(is_allowed) {
        return Err(Errno::ILSEQ);
    }
    match text.contains('/') {
        true => Ok(Cow::Owned(text.split('/').collect())),
        false => Ok(Cow::Borrowed(Path::new(text))),
    }
}

/// A path to match against patterns; never opened.
pub(crate) fn path_to_match(bytes: &[u8]) -> Cow<'_, Path> {
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => Cow::Borrowed(Path::new(text)),
        Cow::Owned(text) => Cow::Owned(PathBuf::from(text)),
    }
}

/// The target of a link in the cluster's notation.
pub(super) fn link_text(target: &Path) -> Vec<u8> {
    link_from_windows(&target.to_string_lossy()).into_bytes()
}

/// The target of a cluster link in Windows notation.
pub(super) fn link_path(target: &[u8]) -> Result<PathBuf, Errno> {
    let text = std::str::from_utf8(target).ok().and_then(link_to_windows);
    text.map(PathBuf::from).ok_or(Errno::ILSEQ)
}
