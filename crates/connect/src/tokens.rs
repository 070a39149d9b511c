//! Cached tokens, per datacenter, user and endpoint, readable only by the user.
//!
//! The first line of a file is the token. The second, if any, is the user who logged in with a password.

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
        let token = self.line(0)?;
        let sound = token.chars().all(|c| c.is_ascii_graphic());
        sound.then_some(token)
    }

    /// The user who logged in, if the configuration does not name one.
    pub fn user(&self) -> Option<String> {
        self.line(1)
    }

    fn line(&self, number: usize) -> Option<String> {
        let text = std::fs::read_to_string(&self.0).ok()?;
        let line = text.lines().nth(number)?.trim();
        (!line.is_empty()).then(|| line.to_owned())
    }

    /// Forgets the token.
    pub fn remove(&self) -> std::io::Result<()> {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Saves a token; the user stays.
    pub fn write(&self, token: &str) -> std::io::Result<()> {
        self.write_lines(token, self.user().as_deref())
    }

    /// Saves the user next to the token; `None` forgets the one that was saved.
    pub fn write_user(&self, user: Option<&str>) -> std::io::Result<()> {
        match self.read() {
            Some(token) => self.write_lines(&token, user),
            None => Ok(()),
        }
    }

    fn write_lines(&self, token: &str, user: Option<&str>) -> std::io::Result<()> {
        let folder = self.0.parent().expect("the name was joined to a folder");
        create_private_folder(folder)?;
        let user = user.map(|user| format!("{user}\n")).unwrap_or_default();
        replace_private_file(&self.0, &format!("{token}\n{user}"))
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
    fn a_user_is_saved_with_the_token_and_outlives_an_exchange() {
        let home = tempfile::tempdir().unwrap();
        let file = TokenFile::of(home.path(), &datacenter(""));
        file.write("abc").unwrap();
        assert_eq!(file.user(), None);
        file.write_user(Some("ann@example.org")).unwrap();
        file.write("def").unwrap();
        assert_eq!(file.read().as_deref(), Some("def"));
        assert_eq!(file.user().as_deref(), Some("ann@example.org"));
        file.write_user(None).unwrap();
        assert_eq!(file.user(), None);
        assert_eq!(file.read().as_deref(), Some("def"));
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
