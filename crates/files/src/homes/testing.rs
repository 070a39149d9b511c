//! A user's home in a test's own folder.

use std::path::PathBuf;

use paddlecloud_core::names::UserName;

use super::{OURS, Storage};

/// The home of the user `me`, which exists.
pub(crate) struct TestHome {
    _folder: tempfile::TempDir,
    pub(crate) storage: Storage,
    pub(crate) user: UserName,
    /// The server's own folder in the home. It may not exist.
    pub(crate) ours: PathBuf,
}

impl TestHome {
    pub(crate) fn new() -> TestHome {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path(), "local".parse().unwrap()).unwrap();
        let user: UserName = "me".parse().unwrap();
        storage.home(&user).unwrap();
        TestHome {
            ours: storage.home_path(&user).join(OURS),
            _folder: folder,
            storage,
            user,
        }
    }
}
