//! Copies inside the file system: by shared extents if possible, else in the kernel, else by reading and writing.
//!
//! The copy is staged and published like any other write.

use std::fs::File;
use std::io::{self, Write};

use super::staged::{hold, in_staging, publish_node, sync_tree, tidy_staging};
use super::{DirEntry, Durability, Existing, FileAttributes, Kind, Meta, Root, RootError, Stamp, timestamps};
use crate::content::hash_file;
use crate::digest::Digest;
use crate::quota::Amount;
use crate::relpath::RelPath;
use crate::source::Source;
use crate::staging::{StagedId, remove_staged, staged_path};
use crate::sys::{self, AtFlags, Errno, FileExt, Mode, OFlags, OwnedFd};

/// How often to copy a file that changes during the copy.
const ATTEMPTS: usize = 3;

impl Root {
    /// Copies one file, with its time and executable bit, to a path below `target`. Starts again if the file is written to
    /// meanwhile, and fails if it keeps changing.
    pub fn copy_file(
        &self,
        from: &RelPath,
        target: &Root,
        to: &RelPath,
        existing: Existing,
    ) -> Result<Amount, RootError> {
        self.copy_file_by(copy_content, from, target, to, existing)
    }

    /// Like [`Self::copy_file`], with the given function to copy the content.
    pub(super) fn copy_file_by(
        &self,
        copy: impl Fn(&File, &File, u64) -> io::Result<u64>,
        from: &RelPath,
        target: &Root,
        to: &RelPath,
        existing: Existing,
    ) -> Result<Amount, RootError> {
        for _ in 0..ATTEMPTS {
            let (source, meta) = self.open_file(from)?;
            let attributes = FileAttributes {
                executable: meta.executable,
                mtime: Some(meta.mtime),
            };
            let staged = target.stage_file(attributes)?;
            let bytes = copy(&source, staged.file(), meta.size)
                .map_err(|error| RootError::io("copy", from, error))?;
            if bytes == meta.size && self.is_as_opened(&source, &meta, from)? {
                staged.publish(to, existing)?;
                return Ok(Amount { bytes, files: 1 });
            }
        }
        Err(RootError::Changing(from.clone()))
    }

    /// Whether an open file was not written to since it was opened. Removing the file or renaming another over it changes only
    /// its ctime.
    fn is_as_opened(&self, file: &File, meta: &Meta, path: &RelPath) -> Result<bool, RootError> {
        let (before, now) = (meta.stamp, self.look_again(file, path)?.stamp);
        if (before.size, before.mtime) != (now.size, now.mtime) {
            return Ok(false);
        }
        let number = |stamp: &Stamp| (stamp.device, stamp.inode);
        let is_named = || match self.stat(path) {
            Ok(there) => number(&there.stamp) == number(&before),
            Err(_) => false,
        };
        Ok(before.ctime == now.ctime || !is_named())
    }

    /// Creates a file in an unpublished tree as a copy of `source`, replacing an existing node, without syncing. Returns whether
    /// the copy has the expected digest; otherwise it is removed.
    pub fn fill_from(
        &self,
        path: &RelPath,
        source: &File,
        attributes: FileAttributes,
        digest: Digest,
    ) -> Result<bool, RootError> {
        let failed = |errno| RootError::errno("write", path, errno);
        let (folder, name) = self.open_parent(path)?;
        match sys::unlinkat(&folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file: File = sys::openat(&folder, name, flags, attributes.mode())
            .map_err(failed)?
            .into();
        let copied = copy_content(source, &file, u64::MAX).and_then(|_| hash_file(&file));
        if copied.map_err(|error| RootError::io("copy to", path, error))? != digest {
            sys::unlinkat(&folder, name, AtFlags::empty()).map_err(failed)?;
            return Ok(false);
        }
        if let Some(mtime) = attributes.mtime {
            sys::futimens(&file, &timestamps(mtime)).map_err(failed)?;
        }
        Ok(true)
    }

    /// Copies a file, link or whole folder to `to`. A folder is merged into an existing one.
    ///
    /// Links are copied as links (their targets are checked when they are followed); sockets and devices are left out.
    pub fn copy_all(
        &self,
        from: &RelPath,
        target: &Root,
        to: &RelPath,
        existing: Existing,
    ) -> Result<Amount, RootError> {
        let meta = self.stat(from)?;
        if !meta.is_dir() {
            return self.copy_file(from, target, to, existing);
        }
        if self.is(target.fd()) && target.lies_within(to, &self.real_folder(from)?) {
            return Err(RootError::IntoItself {
                from: from.clone(),
                to: to.clone(),
            });
        }
        match target.exists(to)? {
            true => self.copy_below(from, target, to, existing),
            false => self.copy_whole(from, target, to),
        }
    }

    /// Copies a folder to a free path. It is published when the copy is complete.
    fn copy_whole(&self, from: &RelPath, target: &Root, to: &RelPath) -> Result<Amount, RootError> {
        if let Some(parent) = to.parent() {
            target.make_dirs(&parent)?;
        }
        let id = StagedId::fresh();
        let (folder, ()) = in_staging(target, |folder| {
            sys::mkdirat(folder, id.as_str(), Mode::from_raw_mode(0o755))
        })?;
        let copied = self.copy_staged(from, target, (&folder, &id), to);
        if copied.is_err() {
            // What cannot be removed now has no owner and is swept.
            let _ = remove_staged(target, &id);
        }
        tidy_staging(target);
        copied
    }

    fn copy_staged(
        &self,
        from: &RelPath,
        target: &Root,
        (folder, id): (&OwnedFd, &StagedId),
        to: &RelPath,
    ) -> Result<Amount, RootError> {
        let staged = staged_path(id);
        // The tree is synced as a whole before it is published, not file by file.
        let tree = target.descend(&staged)?.with_durability(Durability::Relaxed);
        let _ = hold(tree.fd());
        let copied = self.copy_below(from, &tree, &RelPath::root(), Existing::Replace)?;
        sync_tree(target, &staged)?;
        let (parent, name) = target.open_parent(to)?;
        publish_node((folder, id.as_str().as_bytes()), (&parent, name), Existing::Keep)
            .map_err(|errno| RootError::errno("copy to", to, errno))?;
        target.sync_fd(&parent, to)?;
        Ok(copied)
    }

    /// Copies the contents of a folder into another. Files removed meanwhile are left out.
    fn copy_below(
        &self,
        from: &RelPath,
        target: &Root,
        to: &RelPath,
        existing: Existing,
    ) -> Result<Amount, RootError> {
        let mut copied = Amount::default();
        for entry in self.walk(from) {
            let entry = entry?;
            let rest = entry
                .path
                .strip_prefix(from)
                .expect("the walk stays below its start");
            let place = to.join(&rest)?;
            match self.copy_node(&entry, target, &place, existing) {
                Err(RootError::NotFound(gone)) if gone == entry.path => {}
                done => copied = copied.plus(done?),
            }
        }
        Ok(copied)
    }

    fn copy_node(
        &self,
        entry: &DirEntry,
        target: &Root,
        place: &RelPath,
        existing: Existing,
    ) -> Result<Amount, RootError> {
        match &entry.meta.kind {
            Kind::File => return self.copy_file(&entry.path, target, place, existing),
            Kind::Symlink(link) => {
                target.publish_link(link, place, existing)?;
                return Ok(Amount { bytes: 0, files: 1 });
            }
            Kind::Dir => target.make_dirs(place)?,
            Kind::Special => {}
        }
        Ok(Amount::default())
    }

    /// Whether a folder is inside another after following links. A dangling link is not inside.
    fn lies_within(&self, path: &RelPath, real: &RelPath) -> bool {
        self.real_folder(path).is_ok_and(|path| path.is_within(real))
    }
}

/// Copies up to `size` bytes into an empty file and returns the number copied.
pub(crate) fn copy_content(source: &File, target: &File, size: u64) -> io::Result<u64> {
    if sys::share_content(target, source).is_ok() {
        let shared = target.metadata()?.len();
        if shared > size {
            // The source has grown since it was opened, and all its current extents were shared.
            target.set_len(size)?;
        }
        return Ok(shared.min(size));
    }
    copy_range(source, 0, target, 0, size)
}

/// Copies a range between files and returns the number of bytes copied before the source ended.
pub(crate) fn copy_range(
    source: &File,
    source_offset: u64,
    target: &File,
    target_offset: u64,
    len: u64,
) -> io::Result<u64> {
    let (mut from, mut to) = (source_offset, target_offset);
    let mut left = len;
    while left > 0 {
        let step = usize::try_from(left.min(1 << 30)).expect("at most 1 GiB");
        match sys::copy_file_range(source, Some(&mut from), target, Some(&mut to), step) {
            Ok(0) => return Ok(len - left),
            Ok(copied) => left -= copied as u64,
            Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => {
                return Ok(len - left + copy_by_hand(source, from, target, to, left)?);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(len)
}

/// Copies a range of any source; in the kernel if it is a file.
pub(crate) fn copy_source(
    source: &(impl Source + ?Sized),
    from: u64,
    target: &File,
    to: u64,
    len: u64,
) -> io::Result<u64> {
    match source.file() {
        Some(file) => copy_range(file, from, target, to, len),
        None => copy_by_hand(source, from, target, to, len),
    }
}

fn copy_by_hand(
    source: &(impl Source + ?Sized),
    from: u64,
    target: &File,
    to: u64,
    len: u64,
) -> io::Result<u64> {
    let mut buffer = vec![0; 256 << 10];
    let mut done = 0;
    while done < len {
        let step = buffer
            .len()
            .min(usize::try_from(len - done).unwrap_or(usize::MAX));
        let read = source.read_at(&mut buffer[..step], from + done)?;
        if read == 0 {
            break;
        }
        target.write_all_at(&buffer[..read], to + done)?;
        done += read as u64;
    }
    (&*target).flush()?;
    Ok(done)
}
