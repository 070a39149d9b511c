//! The server's own secret, in a file next to the database that only the server can read.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use paddlecloud_core::names::JobId;

const FILE: &str = "secret";
const LENGTH: usize = 32;

/// The key of stored digests, so that a stolen database alone reveals nothing.
#[derive(Clone)]
pub struct Secret([u8; LENGTH]);

/// Why the secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("cannot use the server's secret in `{path}`", path = .path.display())]
    Unusable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the server's secret in `{path}` has {found} bytes, not {LENGTH}: it was truncated or replaced", path = .path.display())]
    Length { path: PathBuf, found: u64 },
}

impl SecretError {
    /// How to fix it.
    pub fn hint(&self) -> Option<String> {
        match self {
            SecretError::Unusable { .. } => None,
            SecretError::Length { path, .. } => Some(format!(
                "restore it from a backup; without one, remove `{}`: a new one is created, and everyone must log in again",
                path.display()
            )),
        }
    }
}

impl Secret {
    /// Reads the secret of a data folder, or creates and syncs one.
    pub fn open(data: &Path) -> Result<Secret, SecretError> {
        let path = data.join(FILE);
        let wrap = |source| SecretError::Unusable {
            path: path.clone(),
            source,
        };
        match std::fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => create(data, &path).map_err(wrap),
            Ok(meta) if meta.is_file() && meta.len() != LENGTH as u64 => Err(SecretError::Length {
                found: meta.len(),
                path,
            }),
            _ => read(&path).map_err(wrap),
        }
    }

    /// The secret of one run: stable across restarts of the server, and useless for other runs.
    pub fn of_run(&self, run: &JobId) -> String {
        self.keyed_digest(format!("run {run}").as_bytes())
    }

    /// Derives a key for one purpose. It does not reveal the secret.
    pub fn derive(&self, purpose: &str) -> [u8; LENGTH] {
        blake3::derive_key(purpose, &self.0)
    }

    pub(super) fn keyed_digest(&self, bytes: &[u8]) -> String {
        blake3::keyed_hash(&self.0, bytes).to_hex().to_string()
    }
}

fn read(path: &Path) -> std::io::Result<Secret> {
    let mut bytes = [0; LENGTH];
    std::fs::File::open(path)?.read_exact(&mut bytes)?;
    Ok(Secret(bytes))
}

/// Creates the secret in a temporary file and renames it, so that a partial secret is never read.
fn create(data: &Path, path: &Path) -> std::io::Result<Secret> {
    let secret = Secret(random());
    let fresh = data.join(".secret.new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(&secret.0)?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    std::fs::File::open(data)?.sync_all()?;
    Ok(secret)
}

/// Random bytes from the system.
pub(super) fn random() -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    let mut filled = 0;
    while filled < LENGTH {
        let rest = &mut bytes[filled..];
        match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the system has no random bytes: {error}"),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_secret_stays_the_same_and_is_private() {
        let data = tempfile::tempdir().unwrap();
        let first = Secret::open(data.path()).unwrap();
        let second = Secret::open(data.path()).unwrap();
        assert_eq!(first.keyed_digest(b"x"), second.keyed_digest(b"x"));
        let run = JobId::new(5, 6);
        assert_eq!(first.of_run(&run), second.of_run(&run));
        assert_ne!(first.of_run(&run), first.of_run(&JobId::new(5, 7)));
        let mode = std::fs::metadata(data.path().join(FILE))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_cut_secret_is_an_error_and_not_replaced() {
        let data = tempfile::tempdir().unwrap();
        std::fs::write(data.path().join(FILE), "short").unwrap();
        let error = Secret::open(data.path()).err().unwrap();
        let path = data.path().join(FILE).display().to_string();
        assert_eq!(
            error.to_string().replace(&path, "SECRET"),
            "the server's secret in `SECRET` has 5 bytes, not 32: it was truncated or replaced"
        );
        assert!(error.hint().unwrap().contains("backup"));
        assert_eq!(std::fs::read(data.path().join(FILE)).unwrap(), b"short");
    }
}
