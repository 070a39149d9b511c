//! The folders of the nodes: staged, then renamed into place, so that an interrupted run can be repeated and a repeated
//! run duplicates nothing.
//!
//! A manifest (`MANIFEST`) says how many folders are ours, and whether they are being replaced: a run that finds it so
//! knows that replacing them was interrupted, and does it again. A replacement that fails is rolled back.

use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use paddlecloud_recordio::sync_names;
use serde::{Deserialize, Serialize};

use super::{DividedFile, PartCount, foreign};
use crate::error::DataError;

/// The manifest's name below `<out>`.
pub const MANIFEST: &str = ".paddle-data.json";
const LOCK: &str = ".paddle-data.lock";
const STAGE: &str = ".paddle-data.tmp";

/// The contents of the manifest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Manifest {
    pub(super) state: State,
    /// Folders `0` up to but excluding this contain split data.
    pub(super) parts: u32,
    /// Their files; while they are being replaced, those of both splits.
    pub(super) files: Vec<ManifestFile>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Exchanging,
    Done,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ManifestFile {
    pub(super) name: PathBuf,
    by: String,
    units: u64,
}

/// An output folder, locked against other splits.
pub(super) struct Tree {
    out: PathBuf,
    stage: PathBuf,
    parts: u32,
    /// How many folders an earlier run left.
    parts_before: u32,
    before: Option<Manifest>,
    /// Whether earlier data stays in the staging folder because it could not be restored.
    holds_old_data: bool,
    /// Whether the folder was created for this split, and is still empty.
    is_new: bool,
    _lock: File,
}

impl Tree {
    pub(super) fn open(out: &Path, parts: PartCount) -> Result<Self, DataError> {
        let is_new = out.symlink_metadata().is_err();
        fs::create_dir_all(out).map_err(|e| DataError::write(out, e))?;
        let lock = lock(out)?;
        let stage = out.join(STAGE);
        remove_folder(&stage)?;
        let before = Manifest::read(out)?;
        let tree = Self {
            out: out.to_owned(),
            stage,
            parts: parts.get(),
            parts_before: before.as_ref().map_or(0, |manifest| manifest.parts),
            before,
            holds_old_data: false,
            is_new,
            _lock: lock,
        };
        tree.refuse_foreign_data()?;
        tree.refuse_foreign_files()?;
        tree.refuse_what_is_no_folder()?;
        for part in 0..tree.parts {
            let folder = tree.stage.join(part.to_string()).join("data");
            fs::create_dir_all(&folder).map_err(|e| DataError::write(&folder, e))?;
        }
        Ok(tree)
    }

    pub(super) fn stage(&self) -> &Path {
        &self.stage
    }

    /// Renames the staged folders into place; returns the bytes in each.
    pub(super) fn publish(mut self, files: &[DividedFile]) -> Result<Vec<u64>, DataError> {
        let part_bytes = (0..self.parts)
            .map(|part| sync_folder(&self.staged(part)))
            .collect::<Result<Vec<_>, _>>()?;
        // Splitting takes time, in which files may have been added.
        self.refuse_foreign_files()?;
        if let Err(error) = self.exchange(files) {
            return Err(match self.take_back() {
                Ok(()) => error,
                Err(again) => {
                    self.holds_old_data = true;
                    let place = self.stage.display();
                    DataError::file(
                        &self.out,
                        format!(
                            "{error}; the previous data could not be restored ({again}) and is in `{place}`"
                        ),
                    )
                }
            });
        }
        let output = self.out.join("output");
        fs::create_dir_all(&output).map_err(|e| DataError::write(&output, e))?;
        sync_one(&self.out)?;
        Manifest::of(files, self.parts).write(&self.out, &self.stage)?;
        self.is_new = false;
        remove_folder(&self.stage)?;
        Ok(part_bytes)
    }

    fn exchange(&self, files: &[DividedFile]) -> Result<(), DataError> {
        let all = self.parts.max(self.parts_before);
        let note = Manifest::of(files, all).exchanging(all, self.before.as_ref());
        note.write(&self.out, &self.stage)?;
        for part in 0..all {
            self.put_aside(part)?;
            if part < self.parts {
                let place = self.place(part);
                fs::rename(self.staged(part), &place).map_err(|e| DataError::write(&place, e))?;
                sync_one(&self.out.join(part.to_string()))?;
            } else {
                self.remove_if_empty(part)?;
            }
        }
        Ok(())
    }

    /// Restores the earlier data, as far as it was replaced, and the manifest.
    fn take_back(&self) -> Result<(), DataError> {
        for part in 0..self.parts.max(self.parts_before) {
            let (place, aside) = (self.place(part), self.aside(part));
            let had_some = aside.symlink_metadata().is_ok();
            let is_exchanged = part < self.parts && self.staged(part).symlink_metadata().is_err();
            if is_exchanged {
                remove_folder(&place)?;
            }
            if had_some {
                let folder = self.out.join(part.to_string());
                fs::create_dir_all(&folder)
                    .and_then(|()| fs::rename(&aside, &place))
                    .map_err(|e| DataError::write(&place, e))?;
            } else if part >= self.parts_before {
                // Only an empty folder is removed, and only one that was just created can be empty.
                let _ = fs::remove_dir(self.out.join(part.to_string()));
            }
        }
        match &self.before {
            Some(manifest) => manifest.write(&self.out, &self.stage),
            None => remove_file(&self.out.join(MANIFEST)),
        }
    }

    fn staged(&self, part: u32) -> PathBuf {
        self.stage.join(part.to_string()).join("data")
    }

    fn aside(&self, part: u32) -> PathBuf {
        self.stage.join(format!("old-{part}"))
    }

    fn place(&self, part: u32) -> PathBuf {
        self.out.join(part.to_string()).join("data")
    }

    /// Data that no run of ours created is left alone.
    fn refuse_foreign_data(&self) -> Result<(), DataError> {
        let foreign = (self.parts_before..self.parts)
            .map(|part| self.place(part))
            .find(|place| place.symlink_metadata().is_ok());
        match foreign {
            None => Ok(()),
            Some(place) => Err(DataError::file(
                &place,
                "already exists and was not created by a split: move it away, or choose another output folder",
            )),
        }
    }

    /// So are files that were added to the output of a split.
    fn refuse_foreign_files(&self) -> Result<(), DataError> {
        let Some(before) = &self.before else {
            return Ok(());
        };
        let names = before.names();
        for part in 0..self.parts_before {
            if let Some(foreign) = foreign::find(&self.place(part), &names)? {
                return Err(DataError::file(&foreign, foreign::PROBLEM));
            }
        }
        Ok(())
    }

    fn refuse_what_is_no_folder(&self) -> Result<(), DataError> {
        let folders = (0..self.parts).map(|part| self.out.join(part.to_string()));
        match { folders }.find(|folder| folder.symlink_metadata().is_ok() && !folder.is_dir()) {
            None => Ok(()),
            Some(place) => Err(DataError::file(
                &place,
                "is not a folder, but a folder of that name is needed: move it away, or choose another output folder",
            )),
        }
    }

    fn put_aside(&self, part: u32) -> Result<(), DataError> {
        let place = self.place(part);
        let folder = self.out.join(part.to_string());
        fs::create_dir_all(&folder).map_err(|e| DataError::write(&folder, e))?;
        if place.symlink_metadata().is_err() {
            return Ok(());
        }
        fs::rename(&place, self.aside(part)).map_err(|e| DataError::write(&place, e))
    }

    /// The folder of a former node is removed, unless it contains other files.
    fn remove_if_empty(&self, part: u32) -> Result<(), DataError> {
        let folder = self.out.join(part.to_string());
        match fs::remove_dir(&folder) {
            Err(e) if e.kind() != std::io::ErrorKind::DirectoryNotEmpty => Err(DataError::write(&folder, e)),
            _ => Ok(()),
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // Leftovers of a failure are useless, unless earlier data could not be restored.
        if !self.holds_old_data {
            let _ = fs::remove_dir_all(&self.stage);
        }
        if self.is_new && !self.holds_old_data {
            // Only an empty folder is removed.
            let _ = fs::remove_file(self.out.join(LOCK));
            let _ = fs::remove_dir(&self.out);
        }
    }
}

impl Manifest {
    fn of(files: &[DividedFile], parts: u32) -> Self {
        let files = files.iter().map(|file| ManifestFile {
            name: file.name.clone(),
            by: file.by.to_string(),
            units: file.units,
        });
        Self {
            state: State::Done,
            parts,
            files: files.collect(),
        }
    }

    fn read(out: &Path) -> Result<Option<Self>, DataError> {
        let path = out.join(MANIFEST);
        let text = match fs::read(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|e| DataError::read(&path, e))?,
        };
        let manifest = serde_json::from_slice(&text)
            .map_err(|e| DataError::file(&path, format!("is malformed: {e}")))?;
        Ok(Some(manifest))
    }

    fn write(&self, out: &Path, stage: &Path) -> Result<(), DataError> {
        let (path, draft) = (out.join(MANIFEST), stage.join("manifest"));
        File::create(&draft)
            .and_then(|mut file| file.write_all(&self.to_json()).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&draft, &path))
            .map_err(|e| DataError::write(&path, e))?;
        sync_one(out)
    }
}

fn lock(out: &Path) -> Result<File, DataError> {
    let path = out.join(LOCK);
    let file = File::create(&path).map_err(|e| DataError::write(&path, e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DataError::file(out, "is being written to by another split")),
        // Some network file systems have no locks; then concurrent runs are not prevented, as with `cp`.
        Err(TryLockError::Error(e)) if e.kind() == std::io::ErrorKind::Unsupported => Ok(file),
        Err(TryLockError::Error(e)) => Err(DataError::write(&path, e)),
    }
}

fn remove_folder(folder: &Path) -> Result<(), DataError> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(DataError::write(folder, e)),
        _ => Ok(()),
    }
}

fn remove_file(path: &Path) -> Result<(), DataError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(DataError::write(path, e)),
        _ => Ok(()),
    }
}

/// Makes the names in a folder and below durable; returns the bytes of its files.
fn sync_folder(folder: &Path) -> Result<u64, DataError> {
    let failed = |e| DataError::write(folder, e);
    let mut bytes = 0;
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let about = entry.metadata().map_err(failed)?;
        bytes += match about.is_dir() {
            true => sync_folder(&entry.path())?,
            false => about.len(),
        };
    }
    sync_one(folder)?;
    Ok(bytes)
}

fn sync_one(folder: &Path) -> Result<(), DataError> {
    sync_names(folder).map_err(|e| DataError::write(folder, e))
}
