//! A file service on a test's own folder, without a network.

use std::path::{Path, PathBuf};

use paddlecloud_accounts::auth::Caller;
use paddlecloud_accounts::users::{SystemUsers, User, Users};
use paddlecloud_core::access::Scopes;
use paddlecloud_core::names::DatacenterName;
use paddlecloud_store::Limits;

use super::{Backend, FileSettings, Files};
use crate::homes::Storage;

/// A service for the user `me`, whose home exists.
pub(super) fn files(folder: &Path) -> Files {
    files_of(folder, &[user("me", "")])
}

/// The same for these users.
pub(super) fn files_of(folder: &Path, users: &[User]) -> Files {
    std::fs::create_dir_all(home(folder)).unwrap();
    let datacenter: DatacenterName = "dc".parse().unwrap();
    let data = folder.join("data");
    let storage = Storage::open(&data.join("storage"), datacenter.clone())
        .unwrap()
        .with_users(Users::configured(users, &SystemUsers::default()));
    let settings = FileSettings {
        backend: &Backend::Folder,
        storage: &data.join("storage"),
        data: &data,
        datacenter: &datacenter,
    };
    Files::open(&settings, &storage).unwrap()
}

/// A user with these limits: `storage=8Ki,files=3`.
pub(super) fn user(name: &str, words: &str) -> User {
    let mut limits = Limits::default();
    for (name, value) in words.split(',').filter_map(|word| word.split_once('=')) {
        limits.set(name, value).unwrap();
    }
    User {
        name: name.parse().unwrap(),
        credential: None,
        admin: false,
        limits,
        system_user: None,
    }
}

/// The home of `me`.
pub(super) fn home(folder: &Path) -> PathBuf {
    folder.join("data/storage/home/me")
}

pub(super) fn me() -> Caller {
    Caller {
        user: "me".parse().unwrap(),
        scopes: Scopes::user(),
    }
}
