//! The URL of the database. Nothing is opened here.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// Why a text is not the URL of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be `sqlite:/path/to/file` or `postgres://user@host/name`")]
pub struct DatabaseUrlError;

/// The URL of the database. `Debug` and `Display` omit the password.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(String);

impl DatabaseUrl {
    pub fn sqlite_file(path: &Path) -> DatabaseUrl {
        DatabaseUrl(format!("sqlite:{}", path.display()))
    }

    /// The whole URL including the password: for the driver only.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The file of a `sqlite:` URL.
    pub(crate) fn sqlite_path(&self) -> Option<&Path> {
        let rest = self.0.strip_prefix("sqlite:")?;
        Some(Path::new(rest.strip_prefix("//").unwrap_or(rest)))
    }

    /// Resolves a relative SQLite file against `base`.
    pub fn below(self, base: &Path) -> DatabaseUrl {
        match self.sqlite_path() {
            Some(path) => DatabaseUrl::sqlite_file(&base.join(path)),
            None => self,
        }
    }
}

impl FromStr for DatabaseUrl {
    type Err = DatabaseUrlError;

    fn from_str(text: &str) -> Result<DatabaseUrl, DatabaseUrlError> {
        let postgres = text.starts_with("postgres://") || text.starts_with("postgresql://");
        match postgres || text.strip_prefix("sqlite:").is_some_and(|path| !path.is_empty()) {
            true => Ok(DatabaseUrl(text.to_owned())),
            false => Err(DatabaseUrlError),
        }
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.0.split_once("://") else {
            return f.write_str(&self.0);
        };
        let plain = rest.split_once('?').map_or(rest, |(before, _)| before);
        match plain.rsplit_once('@') {
            Some((login, place)) => {
                let user = login.split(':').next().unwrap_or_default();
                write!(f, "{scheme}://{user}@{place}")
            }
            None => write!(f, "{scheme}://{plain}"),
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
