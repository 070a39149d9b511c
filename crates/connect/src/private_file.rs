//! Files and folders that only the user may read.

use std::io::Write;
use std::path::Path;

/// Creates a folder, and missing parents, for the user only.
pub fn create_private_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Replaces a file atomically, and never with a wider mode.
pub fn replace_private_file(path: &Path, text: &str) -> std::io::Result<()> {
    let fresh = path.with_extension(format!("{}.new", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options
        .open(&fresh)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    let renamed = written.and_then(|()| std::fs::rename(&fresh, path));
    if renamed.is_err() {
        let _ = std::fs::remove_file(&fresh);
    }
    renamed
}
