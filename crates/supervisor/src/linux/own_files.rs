//! A worker's own `/trainer_id` and similar files, for kernels that permit no private view of the file system.
//!
//! All workers then share the machine's `/`, but each needs different contents. So `/trainer_id` is a link to
//! `/proc/self/fd/<number>`, the same for all, and every program inherits its own file under that number. In a process
//! without that descriptor the link is broken, as if the file did not exist: in other processes of the machine, and in
//! those that a worker starts with all files closed. The links are permanent and need a writable `/`.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::MemfdFlags;

use super::{Refusal as _, Refused};
use paddlecloud_worker::protocol::PrivateFile;

/// The number of the first link. Below the usual limit of 1024 open files, above what programs use.
const FIRST_NUMBER: RawFd = 900;
const DESCRIPTORS: &str = "/proc/self/fd";

/// The files of one worker and their numbers in its program.
pub struct OwnFiles(Vec<(OwnedFd, RawFd)>);

impl OwnFiles {
    /// Empty if no links can be created, which the probe reports; programs then read their environment instead.
    pub fn offer(files: &[PrivateFile]) -> Self {
        if !can_be_offered() {
            return Self(Vec::new());
        }
        let offered = files.iter().zip(FIRST_NUMBER..).filter_map(|(file, number)| {
            let offered = link_number(&file.path, number).and_then(|number| Ok((filled(file)?, number)));
            offered
                .inspect_err(|error| {
                    crate::trouble!("cannot create the worker's `{}`: {error}", file.path.display())
                })
                .ok()
        });
        Self(offered.collect())
    }

    /// Duplicates the files to their numbers, so that they survive the exec. Must be the last step before it.
    pub fn hand_over(&self) -> Result<(), Refused> {
        for (file, number) in &self.0 {
            // SAFETY: both are plain numbers; after the fork nothing else uses the second one.
            if unsafe { libc::dup2(file.as_raw_fd(), *number) } == -1 {
                return Err(io::Error::last_os_error()).refused(|| "hand files over".into());
            }
        }
        Ok(())
    }
}

/// Whether links can be created here.
pub fn can_be_offered() -> bool {
    rustix::fs::access("/", rustix::fs::Access::WRITE_OK).is_ok()
}

/// The number that the link at this path points to. Creates the link if the path does not exist.
fn link_number(path: &Path, number: RawFd) -> io::Result<RawFd> {
    match symlink(PathBuf::from(DESCRIPTORS).join(number.to_string()), path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map(|()| number),
    }
    let target = fs::read_link(path)?;
    let number = target.strip_prefix(DESCRIPTORS).ok().and_then(Path::to_str);
    number
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| io::Error::other("something else is there"))
}

fn filled(file: &PrivateFile) -> io::Result<OwnedFd> {
    let name = file.path.file_name().unwrap_or_default();
    let mut memory = File::from(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?);
    memory.write_all(file.contents.as_bytes())?;
    Ok(memory.into())
}
