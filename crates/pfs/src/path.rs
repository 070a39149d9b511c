//! Paths of the file service (`/pfs/<datacenter>/home/<user>/…`) and who may access them.
//!
//! The text only selects a space and a path inside it; `Root` ensures that nothing leaves the space.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::escape::Escaped;
use crate::relpath::{RelPath, RelPathError};
use crate::root::STAGING;

/// A path of the file service.
///
/// `home` and `user` are synonyms. `/pfs/public` is the public space of the current datacenter, so a datacenter cannot be called
/// `public`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PfsPath {
    datacenter: Option<String>,
    place: Place,
    trailing_slash: bool,
}

/// A part of the file service that is confined on its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Space {
    Home(HomeOwner),
    Public,
}

/// The user that owns a home: any valid folder name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HomeOwner(Arc<str>);

/// A space and a path in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    pub space: Space,
    pub path: RelPath,
}

/// The user who makes a request.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    pub user: &'a str,
    /// The datacenter whose files are served here.
    pub datacenter: &'a str,
    pub role: CallerRole,
}

/// The role of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallerRole {
    #[default]
    User,
    /// May write to the public space.
    Administrator,
}

/// The access that a caller requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// Why text is not a path of the file service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PfsPathError {
    #[error("`{0}` does not start with `/pfs/`")]
    NotPfs(String),
    #[error(
        "`{0}` is neither in a home (`/pfs/<datacenter>/home/<user>/`) nor public (`/pfs/<datacenter>/public/`)"
    )]
    NoSpace(String),
    #[error(transparent)]
    Path(#[from] RelPathError),
}

/// Why a caller may not access a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The same reply whether or not the path exists.
    #[error("`{0}` does not exist")]
    NotFound(PfsPath),
    #[error("`{path}` does not exist: the only datacenter here is `{here}`")]
    OtherDatacenter { path: PfsPath, here: String },
    /// The same reply whether or not the user exists.
    #[error("`{path}` is not in your home, `{home}`")]
    NotYourHome { path: PfsPath, home: String },
    #[error("`{0}` is public: it can be read, and written by administrators only")]
    ReadOnly(PfsPath),
}

impl PfsPath {
    /// Parses a path. `//` and `/./` are ignored, `..` is refused, nothing is decoded.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PfsPathError> {
        let shown = || Escaped(&bytes[..bytes.len().min(200)]).to_string();
        let mut parts = bytes
            .split(|byte| *byte == b'/')
            .filter(|part| !matches!(*part, b"" | b"."));
        if !bytes.starts_with(b"/") || parts.next() != Some(b"pfs") {
            return Err(PfsPathError::NotPfs(shown()));
        }
        let no_space = || PfsPathError::NoSpace(shown());
        let (datacenter, space) = match parts.next().ok_or_else(no_space)? {
            b"public" => (None, Space::Public),
            datacenter => {
                let space = match parts.next() {
                    Some(b"public") => Space::Public,
                    Some(b"home" | b"user") => Space::Home(owner(parts.next()).ok_or_else(no_space)?),
                    _ => return Err(no_space()),
                };
                (
                    Some(String::from_utf8(datacenter.to_vec()).map_err(|_| no_space())?),
                    space,
                )
            }
        };
        let path = RelPath::from_bytes(&parts.collect::<Vec<_>>().join(&b'/'))?;
        let trailing_slash = bytes.ends_with(b"/") || bytes.ends_with(b"/.");
        Ok(Self {
            datacenter,
            place: Place { space, path },
            trailing_slash,
        })
    }

    /// The datacenter the path names; `/pfs/public` names none.
    pub fn datacenter(&self) -> Option<&str> {
        self.datacenter.as_deref()
    }

    /// Space and path, before any access check.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Whether the path ends with a slash, which is significant for some commands.
    pub fn has_trailing_slash(&self) -> bool {
        self.trailing_slash
    }

    /// Checks the caller's access; returns the place or the error to report.
    pub fn admit(&self, caller: &Caller<'_>, access: Access) -> Result<&Place, AccessError> {
        let not_found = || AccessError::NotFound(self.clone());
        if self.datacenter().is_some_and(|named| named != caller.datacenter) {
            return Err(AccessError::OtherDatacenter {
                path: self.clone(),
                here: caller.datacenter.to_owned(),
            });
        }
        if self.place.path.parts().next() == Some(STAGING.as_bytes()) {
            return Err(not_found());
        }
        match &self.place.space {
            Space::Home(owner) if owner.as_str() == caller.user => Ok(&self.place),
            Space::Home(_) => Err(AccessError::NotYourHome {
                path: self.clone(),
                home: format!("/pfs/{}/home/{}", caller.datacenter, caller.user),
            }),
            Space::Public if access == Access::Read || caller.role == CallerRole::Administrator => {
                Ok(&self.place)
            }
            Space::Public => Err(AccessError::ReadOnly(self.clone())),
        }
    }
}

fn owner(part: Option<&[u8]>) -> Option<HomeOwner> {
    std::str::from_utf8(part?).ok()?.parse().ok()
}

impl FromStr for PfsPath {
    type Err = PfsPathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::from_bytes(text.as_bytes())
    }
}

impl fmt::Display for PfsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("/pfs")?;
        if let Some(datacenter) = &self.datacenter {
            write!(f, "/{datacenter}")?;
        }
        write!(f, "/{}", self.place.space)?;
        if !self.place.path.is_root() {
            write!(f, "/{}", self.place.path)?;
        }
        Ok(())
    }
}

impl Space {
    /// The folder of the space below the storage root.
    pub fn folder(&self) -> RelPath {
        match self {
            Self::Public => RelPath::from_bytes(b"public"),
            Self::Home(owner) => RelPath::from_bytes(format!("home/{}", owner.0).as_bytes()),
        }
        .expect("an owner's name is a plain name")
    }
}

impl Place {
    /// The parent folder in the same space; `None` for the space itself.
    pub fn parent(&self) -> Option<Self> {
        let path = self.path.parent()?;
        let space = self.space.clone();
        Some(Self { space, path })
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Public => f.write_str("public"),
            Self::Home(owner) => write!(f, "home/{}", Escaped(owner.0.as_bytes())),
        }
    }
}

impl Space {
    /// For sentences: `the home of ann`.
    pub fn in_words(&self) -> String {
        match self {
            Self::Public => "the public space".to_owned(),
            Self::Home(owner) => format!("the home of {}", Escaped(owner.0.as_bytes())),
        }
    }
}

impl HomeOwner {
    /// The user's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HomeOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

crate::as_text!(HomeOwner);

impl FromStr for HomeOwner {
    type Err = RelPathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        RelPath::root().child(text.as_bytes())?;
        Ok(Self(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ANN: Caller<'static> = Caller {
        user: "ann",
        datacenter: "dc1",
        role: CallerRole::User,
    };

    fn place(text: &str, access: Access) -> Result<String, AccessError> {
        let path: PfsPath = text.parse().unwrap();
        path.admit(&ANN, access)
            .map(|place| format!("{} {}", place.space, place.path))
    }

    #[test]
    fn home_and_user_are_the_same_place() {
        for text in [
            "/pfs/dc1/home/ann/a/b",
            "/pfs/dc1/user/ann/a/b",
            "//pfs//dc1/./home/ann/a//b/",
        ] {
            assert_eq!(place(text, Access::Write).unwrap(), "home/ann a/b");
        }
        assert_eq!(place("/pfs/dc1/home/ann", Access::Write).unwrap(), "home/ann .");
    }

    #[test]
    fn public_is_read_by_all_and_written_by_administrators() {
        for text in ["/pfs/dc1/public/x", "/pfs/public/x"] {
            assert_eq!(place(text, Access::Read).unwrap(), "public x");
            assert!(matches!(
                place(text, Access::Write),
                Err(AccessError::ReadOnly(_))
            ));
            let path: PfsPath = text.parse().unwrap();
            let admin = Caller {
                role: CallerRole::Administrator,
                ..ANN
            };
            assert!(path.admit(&admin, Access::Write).is_ok());
        }
    }

    #[test]
    fn the_path_of_another_home_is_answered_with_the_callers_own() {
        for text in ["/pfs/dc1/home/bob/x", "/pfs/dc1/home//x"] {
            let refused = place(text, Access::Read).unwrap_err().to_string();
            assert!(
                refused.ends_with("is not in your home, `/pfs/dc1/home/ann`"),
                "{refused}"
            );
        }
    }

    #[test]
    fn the_staging_folder_is_not_found() {
        let staged = place("/pfs/dc1/home/ann/.pfs-staging/x", Access::Read);
        assert!(matches!(staged, Err(AccessError::NotFound(_))));
    }

    #[test]
    fn a_path_of_another_datacenter_is_answered_with_the_one_that_exists() {
        for text in ["/pfs/dc2/home/ann/x", "/pfs/dc2/home/bob/x", "/pfs/dc2/public"] {
            let refused = place(text, Access::Read).unwrap_err().to_string();
            assert_eq!(
                refused,
                format!("`{text}` does not exist: the only datacenter here is `dc1`")
            );
        }
    }

    #[test]
    fn invalid_paths_are_refused() {
        for text in ["", "pfs/dc1/home/ann", "/etc/passwd", "/pfsx/dc1/public"] {
            assert!(
                matches!(text.parse::<PfsPath>(), Err(PfsPathError::NotPfs(_))),
                "{text}"
            );
        }
        for text in [
            "/pfs",
            "/pfs/",
            "/pfs/dc1",
            "/pfs/dc1/home",
            "/pfs/dc1/etc/x",
            "/pfs/dc1/home/..",
        ] {
            assert!(
                matches!(text.parse::<PfsPath>(), Err(PfsPathError::NoSpace(_))),
                "{text}"
            );
        }
        for text in [
            "/pfs/dc1/home/ann/../bob",
            "/pfs/dc1/public/..",
            "/pfs/dc1/home/ann/a\0b",
        ] {
            assert!(
                matches!(text.parse::<PfsPath>(), Err(PfsPathError::Path(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn the_trailing_slash_is_remembered() {
        let slash = |text: &str| text.parse::<PfsPath>().unwrap().has_trailing_slash();
        assert!(slash("/pfs/dc1/home/ann/a/") && !slash("/pfs/dc1/home/ann/a"));
    }

    #[test]
    fn shown_as_people_write_it() {
        let show = |text: &str| text.parse::<PfsPath>().unwrap().to_string();
        assert_eq!(show("/pfs/dc1/user/ann//a/"), "/pfs/dc1/home/ann/a");
        assert_eq!(show("/pfs/public/"), "/pfs/public");
    }

    proptest! {
        #[test]
        fn any_path_reaches_only_the_callers_home_and_public(
            tail in "(/|\\.|\\.\\.|%2e|%2f|a|ann|bob|home|user|public|pfs|dc1|dc2|\\x00|\u{2024}|\u{ff0f}){0,14}",
        ) {
            let Ok(path) = format!("/pfs/{tail}").parse::<PfsPath>() else { return Ok(()) };
            if let Ok(place) = path.admit(&ANN, Access::Read) {
                let folder = place.space.folder().to_string();
                prop_assert!(folder == "home/ann" || folder == "public");
                prop_assert!(place.path.parts().all(|part| part != b".." && !part.contains(&b'/')));
            }
        }
    }
}
