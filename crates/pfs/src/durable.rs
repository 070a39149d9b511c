//! Durable folders: a durable file is useless if its folder's name is lost in a power cut.

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Creates the missing parts of a path and syncs each new name in its parent folder.
///
/// Safe for concurrent callers: an existing folder is treated like a new one.
pub fn make_folders(path: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => return sync_entry(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => return Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => make_folders(above, mode)?,
        _ => return Err(io::ErrorKind::NotFound.into()),
    }
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => sync_entry(path),
    }
}

/// Replaces the content of a small file atomically. After a power cut, the file has the old content or the new one; once this has
/// returned, the new one.
pub fn write_whole(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let fresh = temporary_name(path);
    let written = File::options()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&fresh)
        .and_then(|mut file| {
            file.write_all(content)?;
            file.sync_all()
        })
        .and_then(|()| std::fs::rename(&fresh, path));
    written.inspect_err(|_| {
        // On a full disk, a part of the file may exist.
        let _ = std::fs::remove_file(&fresh);
    })?;
    sync_entry(path)
}

/// A unique name in the same folder.
fn temporary_name(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    path.with_extension(format!("{}-{number}.new", std::process::id()))
}

/// Syncs the folder that contains a path's name.
pub fn sync_entry(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => File::open(above)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

/// Syncs the names in a folder and its own name in its parent, which a client may have just created. Folders that this program
/// may not read are older.
pub fn sync_names(path: &Path) {
    for made in path.ancestors().take(2).filter(|made| made.parent().is_some()) {
        let _ = sync_entry(made);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn missing_folders_get_the_mode_and_existing_ones_keep_theirs() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b/c");
        make_folders(&deep, 0o700).unwrap();
        make_folders(&deep, 0o755).unwrap();
        for made in [&deep, &folder.path().join("a")] {
            assert_eq!(made.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn write_whole_sets_the_mode_and_leaves_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        for content in ["old", "new"] {
            write_whole(&file, content.as_bytes(), 0o600).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), content);
        }
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::create_dir(folder.path().join("taken")).unwrap();
        assert!(write_whole(&folder.path().join("taken"), b"x", 0o600).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_in_the_way_of_a_folder_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(
            make_folders(&file, 0o700).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        assert!(make_folders(&file.join("below"), 0o700).is_err());
    }
}
