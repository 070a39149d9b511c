//! A file service on a test's own folder, without a network.

use std::path::{Path, PathBuf};

use paddlecloud_core::access::Scopes;

use super::Files;
use crate::auth::Caller;
use crate::config::{Config, SystemUsers};
use crate::homes::Storage;
use crate::users::Users;

/// A service for the user `me`, whose home exists.
pub(super) fn files(folder: &Path) -> Files {
    files_of(folder, "- {name: me, password_file: word}\n")
}

/// The same for these users, in the format of the configuration.
pub(super) fn files_of(folder: &Path, users: &str) -> Files {
    let config = config_of(folder, users);
    std::fs::create_dir_all(home(folder)).unwrap();
    let users = Users::configured(&config.users, &SystemUsers::default());
    let storage = Storage::open(&config.storage, config.datacenter.clone())
        .unwrap()
        .with_users(users);
    Files::open(&config, &storage).unwrap()
}

fn config_of(folder: &Path, users: &str) -> Config {
    std::fs::write(folder.join("word"), "secret\n").unwrap();
    let text = format!("data: data\ndatacenter: dc\nlisten: 127.0.0.1:0\nusers:\n{users}");
    let mut config = Config::parse(&text, &folder.join("server.yaml")).unwrap();
    // System users with these names do not exist; the server acts for them.
    config.users.iter_mut().for_each(|user| user.system_user = None);
    config
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
