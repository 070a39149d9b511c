//! Checks the users that the configuration declares, and reads their passwords.

use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use paddlecloud_accounts::users::{Credential, User};
use paddlecloud_store::RETIRED;

use super::ConfigError;

/// The mode bit that lets all users read a file.
const READ_BY_OTHERS: u32 = 0o004;

/// Reads a password (or its argon2id hash) from the first line of a file. A world-readable file is used with a warning.
pub(super) fn read_password(path: &Path) -> Result<Credential, ConfigError> {
    if let Some(warning) = world_readable_warning(path) {
        tracing::warn!("{warning}");
    }
    let text = std::fs::read_to_string(path).map_err(|error| ConfigError::unreadable(path, &error))?;
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() {
        return Err(ConfigError::in_file(path, "the first line must be the password"));
    }
    if line.starts_with("$argon2") {
        return parse_hash(line).map_err(|problem| ConfigError::in_file(path, problem));
    }
    Ok(Credential::Plain(line.to_owned()))
}

/// An argon2id hash in PHC string format.
pub(super) fn parse_hash(text: &str) -> Result<Credential, &'static str> {
    Credential::from_hash(text).ok_or("`password_hash` is not an argon2id hash")
}

fn world_readable_warning(path: &Path) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    let shown = path.display();
    (mode & READ_BY_OTHERS != 0).then(|| {
        format!("every user of this machine can read the password in `{shown}` (mode {mode:04o}): `chmod 600 {shown}`")
    })
}

/// Checks constraints that concern several users.
pub(super) fn check_users(users: &[User], path: &Path) -> Result<(), ConfigError> {
    let mut names = HashSet::new();
    let mut is_new = |user: &&User| names.insert(user.name.as_str().to_lowercase());
    if let Some(twice) = users.iter().find(|user| !is_new(user)) {
        return Err(ConfigError::in_file(
            path,
            format!("user `{}` is listed twice", twice.name),
        ));
    }
    if let Some(user) = users.iter().find(|user| user.name.as_str().contains(RETIRED)) {
        let problem = format!(
            "user `{}`: `{RETIRED}` marks the names of deleted accounts",
            user.name
        );
        return Err(ConfigError::in_file(path, problem).with_hint("choose another name"));
    }
    Ok(())
}

/// Checks that no two users share a system user, which isolates their workers on one machine.
pub(super) fn check_system_users(users: &[User], path: &Path) -> Result<(), ConfigError> {
    let mut system_users = HashSet::new();
    let shared = users
        .iter()
        .find(|user| !system_users.insert(user.system_user.as_deref()));
    if let Some(shared) = shared {
        let account = match &shared.system_user {
            Some(system_user) => format!("system user `{system_user}`"),
            None => "the server's own system user".to_owned(),
        };
        let problem = format!(
            "the workers of user `{}` would run as {account}, like another user's",
            shared.name
        );
        return Err(ConfigError::in_file(path, problem).with_hint("give every user their own `system_user`"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};

    use super::*;

    #[test]
    fn a_world_readable_password_file_is_reported_and_a_private_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("word");
        write(&file, "secret\n").unwrap();
        for (mode, is_reported) in [(0o644, true), (0o604, true), (0o640, false), (0o600, false)] {
            set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            assert_eq!(world_readable_warning(&file).is_some(), is_reported, "{mode:o}");
        }
        set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let warning = world_readable_warning(&file).unwrap();
        assert!(
            warning.contains("mode 0644") && warning.contains("chmod 600") && !warning.contains("secret"),
            "{warning}"
        );
    }
}
