//! The server's own secret, in a file beside the database that only the server can read.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const FILE: &str = "secret";
const LENGTH: usize = 32;

/// Keys the digests that are stored, so that a stolen database alone tells nothing.
pub struct Secret([u8; LENGTH]);

/// Why the secret cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the server's secret in `{path}`", path = .path.display())]
pub struct SecretError {
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

impl Secret {
    /// Reads the secret of a data folder, or makes one and syncs it.
    pub fn open(data: &Path) -> Result<Secret, SecretError> {
        let path = data.join(FILE);
        let wrap = |source| SecretError {
            path: path.clone(),
            source,
        };
        match read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => create(data, &path).map_err(wrap),
            result => result.map_err(wrap),
        }
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

/// Written beside its place and moved there, so that half a secret is never read.
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

/// Bytes nobody can guess.
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
        assert!(Secret::open(data.path()).is_err());
        assert_eq!(std::fs::read(data.path().join(FILE)).unwrap(), b"short");
    }
}
