//! Records of unfinished multipart uploads on this machine. A service keeps the parts until the upload is completed or aborted, and
//! not every service lists them. The next server aborts what a killed one left.

use std::collections::HashSet;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use object_store::path::Path as Key;

/// The folder of the records, and the uploads of this process.
#[derive(Clone)]
pub(super) struct UploadRecords {
    folder: PathBuf,
    ours: Arc<Mutex<HashSet<PathBuf>>>,
}

/// The record of one upload. If it is dropped without [`UploadRecord::forget`], the upload counts as left over.
pub(super) struct UploadRecord {
    pub(super) key: Key,
    pub(super) id: String,
    file: PathBuf,
    ours: Arc<Mutex<HashSet<PathBuf>>>,
}

impl UploadRecords {
    pub(super) fn open(folder: &Path) -> io::Result<UploadRecords> {
        std::fs::create_dir_all(folder)?;
        Ok(UploadRecords {
            folder: folder.to_owned(),
            ours: Arc::default(),
        })
    }

    /// Records an upload durably; must be called before its first part is sent.
    pub(super) fn note(&self, key: &Key, id: &str) -> io::Result<UploadRecord> {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let file = self.folder.join(format!("{:016x}", hasher.finish()));
        let note = self.claim(file, key.clone(), id.to_owned());
        let mut written = File::create(&note.file)?;
        written.write_all(format!("{id}\n{key}").as_bytes())?;
        written.sync_all()?;
        File::open(&self.folder)?.sync_all()?;
        Ok(note)
    }

    /// Uploads that no process works on.
    pub(super) fn left(&self) -> io::Result<Vec<UploadRecord>> {
        let mut left = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let file = entry?.path();
            if lock(&self.ours).contains(&file) {
                continue;
            }
            // An upload may end after it was listed.
            let Some(text) = if_exists(std::fs::read_to_string(&file))? else {
                continue;
            };
            match text.split_once('\n').map(|(id, key)| (id, Key::parse(key))) {
                Some((id, Ok(key))) => left.push(self.claim(file, key, id.to_owned())),
                // Truncated by a full disk or a power cut; no part was sent before the record was complete.
                _ => if_exists(std::fs::remove_file(file)).map(drop)?,
            }
        }
        Ok(left)
    }

    fn claim(&self, file: PathBuf, key: Key, id: String) -> UploadRecord {
        lock(&self.ours).insert(file.clone());
        UploadRecord {
            key,
            id,
            file,
            ours: self.ours.clone(),
        }
    }
}

impl UploadRecord {
    /// Removes the record: the upload was completed or aborted.
    pub(super) fn forget(self) {
        if let Err(error) = std::fs::remove_file(&self.file) {
            tracing::warn!(%error, "a note of an upload that is over stays");
        }
    }
}

impl Drop for UploadRecord {
    fn drop(&mut self) {
        lock(&self.ours).remove(&self.file);
    }
}

fn if_exists<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn lock(ours: &Mutex<HashSet<PathBuf>>) -> MutexGuard<'_, HashSet<PathBuf>> {
    ours.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_uploads_of_earlier_processes_are_left_over() {
        let folder = tempfile::tempdir().unwrap();
        let upload_records = UploadRecords::open(folder.path()).unwrap();
        let key = Key::from("top/home/ann/a b");
        let note = upload_records.note(&key, "first/id+=").unwrap();
        upload_records.note(&key, "second").unwrap().forget();
        assert!(upload_records.left().unwrap().is_empty());

        std::mem::forget(note);
        assert!(upload_records.left().unwrap().is_empty(), "this process is at it");
        let next = UploadRecords::open(folder.path()).unwrap();
        let mut left = next.left().unwrap();
        assert_eq!(left.len(), 1);
        let found = left.remove(0);
        assert_eq!((&found.key, found.id.as_str()), (&key, "first/id+="));
        assert!(next.left().unwrap().is_empty(), "it is being given up");
        drop(found);
        next.left().unwrap().remove(0).forget();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// A dangling link is listed and cannot be read, like a record that is removed at that moment.
    #[test]
    fn a_record_removed_during_reading_hides_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let upload_records = UploadRecords::open(folder.path()).unwrap();
        drop(upload_records.note(&Key::from("k"), "id").unwrap());
        for name in ["0", "z"] {
            std::os::unix::fs::symlink("nowhere", folder.path().join(name)).unwrap();
        }
        assert_eq!(upload_records.left().unwrap().len(), 1);
    }

    #[test]
    fn a_torn_record_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("0"), "an id without a k").unwrap();
        let upload_records = UploadRecords::open(folder.path()).unwrap();
        assert!(upload_records.left().unwrap().is_empty());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
