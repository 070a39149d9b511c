//! Cached tokens, per datacenter, user and endpoint, readable only by the user.

use std::path::{Path, PathBuf};

use crate::config::Datacenter;
use crate::private_file::{create_private_folder, replace_private_file};

/// The file of one datacenter's token.
#[derive(Debug, Clone)]
pub struct TokenFile(PathBuf);

impl TokenFile {
    pub fn of(paddle_home: &Path, datacenter: &Datacenter) -> TokenFile {
        let user = datacenter.username.as_deref().unwrap_or("");
        TokenFile(paddle_home.join("tokens").join(file_name(datacenter, user)))
    }

    /// The token, if one is cached.
    pub fn read(&self) -> Option<String> {
        let text = std::fs::read_to_string(&self.0).ok()?;
        let token = text.trim();
        let sound = !token.is_empty() && token.chars().all(|c| c.is_ascii_graphic());
        sound.then(|| token.to_owned())
    }

    /// Forgets the token.
    pub fn remove(&self) -> std::io::Result<()> {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Saves a token.
    pub fn write(&self, token: &str) -> std::io::Result<()> {
        let folder = self.0.parent().expect("the name was joined to a folder");
        create_private_folder(folder)?;
        replace_private_file(&self.0, &format!("{token}\n"))
    }
}

/// The certificate of the authority that was accepted for a datacenter's server.
#[derive(Debug, Clone)]
pub struct AuthorityFile(PathBuf);

impl AuthorityFile {
    pub fn of(paddle_home: &Path, datacenter: &Datacenter) -> AuthorityFile {
        let name = format!("{}.pem", file_name(datacenter, ""));
        AuthorityFile(paddle_home.join("authorities").join(name))
    }

    /// Where it is, if one was accepted.
    pub fn path(&self) -> Option<PathBuf> {
        self.0.exists().then(|| self.0.clone())
    }

    pub fn write(&self, pem: &str) -> std::io::Result<()> {
        let folder = self.0.parent().expect("the name was joined to a folder");
        create_private_folder(folder)?;
        replace_private_file(&self.0, pem)
    }
}

/// A name for what is kept about a datacenter and a user of it.
fn file_name(datacenter: &Datacenter, user: &str) -> String {
    let endpoint = datacenter.endpoint.to_string();
    let key = [datacenter.name.as_str(), user, &endpoint].join("\0");
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = datacenter.name.chars().take(40).map(plain).collect();
    format!("{name}-{:016x}", fnv1a(key.as_bytes()))
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datacenter(user: &str) -> Datacenter {
        Datacenter {
            username: Some(user.to_owned()),
            ..Datacenter::at("dc/1", "http://h".parse().unwrap())
        }
    }

    #[test]
    fn a_token_comes_back_only_for_the_same_user_and_is_private() {
        let home = tempfile::tempdir().unwrap();
        let mine = TokenFile::of(home.path(), &datacenter("me"));
        assert_eq!(mine.read(), None);
        mine.write("abc").unwrap();
        mine.write("def").unwrap();
        assert_eq!(mine.read().as_deref(), Some("def"));
        assert_eq!(TokenFile::of(home.path(), &datacenter("you")).read(), None);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(
                std::fs::metadata(&mine.0).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
        let kept = std::fs::read_dir(home.path().join("tokens")).unwrap().count();
        assert_eq!(kept, 1, "no temporary file stays");
    }
}
