//! Copies a worker's output to a plain file, the `train.log` of the original PaddleCloud.
//!
//! Best effort: the log itself is authoritative. The file is among the worker's own files, and the worker may have
//! replaced it with anything. It is therefore accessed with the worker's privileges, only below its bind, and written
//! only while it is a regular file.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2, renameat};

use super::identity::act_as;
use paddlecloud_worker::protocol::{RunAs, WorkerPlan};

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Opening must not block on a pipe or device.
const APPEND: OFlags = OFlags::WRONLY
    .union(OFlags::APPEND)
    .union(OFlags::CREATE)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

pub struct PlainCopy {
    /// The part of the path that the worker's user cannot change.
    base: PathBuf,
    /// The file's folder, relative to `base`.
    below: PathBuf,
    name: OsString,
    owner: Option<RunAs>,
    keep_bytes: u64,
    file: Option<(File, u64)>,
    complained: bool,
}

impl PlainCopy {
    /// The copy that the plan requests, if any.
    pub fn of(plan: &WorkerPlan) -> Option<Self> {
        let path = plan.plain_log.as_deref()?;
        let (name, folder) = (path.file_name()?.to_owned(), path.parent()?);
        let around = plan.binds.iter().map(|bind| bind.source.as_path());
        let base = around
            .filter(|source| plan.run_as.is_some() && folder.starts_with(source))
            .min_by_key(|source| source.components().count())
            .unwrap_or(folder);
        Some(Self {
            base: base.to_owned(),
            below: folder.strip_prefix(base).unwrap_or(Path::new("")).to_owned(),
            name,
            owner: plan.run_as.clone(),
            keep_bytes: plan.log.keep_bytes,
            file: None,
            complained: false,
        })
    }

    pub fn append(&mut self, bytes: &[u8]) {
        let result = self.try_append(bytes);
        if let Err(error) = &result
            && !self.complained
        {
            let path = self.base.join(&self.below).join(&self.name);
            crate::trouble!("cannot write `{}`: {error}", path.display());
        }
        self.complained = result.is_err();
    }

    fn try_append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let full = self.file.as_ref().is_some_and(|(_, len)| *len >= self.keep_bytes);
        if full {
            self.file = None;
            self.in_folder(move_aside)?;
        }
        if self.file.is_none() {
            self.file = Some(self.in_folder(open)?);
        }
        let (file, len) = self.file.as_mut().expect("opened above");
        *len += bytes.len() as u64;
        file.write_all(bytes)
    }

    /// Runs `work` on the file's folder and name with the worker's privileges.
    fn in_folder<T>(&self, work: impl FnOnce(&OwnedFd, &OsStr) -> io::Result<T>) -> io::Result<T> {
        let mut folder = openat(CWD, &self.base, FOLDER, Mode::empty())?;
        let _acting = self.owner.as_ref().map(act_as).transpose()?;
        if !self.below.as_os_str().is_empty() {
            let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
            folder = openat2(&folder, &self.below, FOLDER, Mode::empty(), beneath)?;
        }
        work(&folder, &self.name)
    }
}

fn open(folder: &OwnedFd, name: &OsStr) -> io::Result<(File, u64)> {
    let file = File::from(openat(folder, name, APPEND, Mode::from_raw_mode(0o644))?);
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok((file, found.len()))
}

fn move_aside(folder: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let mut old = name.to_owned();
    old.push(".1");
    Ok(renameat(folder, name, folder, old)?)
}
